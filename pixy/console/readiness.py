"""Decide whether the daemon can serve, with reasons."""

from __future__ import annotations

import asyncio
from typing import Any

from pixy.console.watch import Watch


class Readiness:
    """Answers readiness probes.

    The daemon is ready if a broker of each cluster answers and it is not about to stop. Groups that cannot consume are
    named, but do not make it unready: their names are the clients' to choose.

    Args:
        watch: looks at the engine.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.draining = False
        """True once the daemon is about to stop."""

    async def check(self) -> dict[str, Any]:
        """Return the verdict, ``ready``, and a list of checks with their reasons."""
        names = self._watch.inspector.clusters()
        reached = await asyncio.gather(*(self._watch.kafka.problem(name) for name in names))
        checks: list[dict[str, Any]] = [
            {"check": "kafka", "cluster": name, "ok": not why, "reason": why}
            for name, why in zip(names, reached, strict=True)
        ]
        ready = not self.draining and not any(reached)
        stopping = "the daemon is about to stop" if self.draining else ""
        checks.append({"check": "serving", "ok": not self.draining, "reason": stopping})
        checks.append({"check": "loop", "ok": True, "reason": "", "blocks": self._watch.blocked})
        snapshot = await self._watch.snapshot()
        for group in snapshot.groups:
            late = [
                each.topic for each in group.topics if each.polls and not each.joined and not each.missing
            ]
            why = group.failure or (f"not joined yet for {', '.join(late[:10])}" if late else "")
            if why:
                checks.append(
                    {
                        "check": "group",
                        "cluster": group.cluster,
                        "group": group.group,
                        "ok": False,
                        "reason": why,
                    }
                )
        return {"ready": ready, "checks": checks}


__all__ = ["Readiness"]

"""Decide whether the daemon can serve, with reasons."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pixy.console.watch import Watch
from pixy.errors import PixyError

FRESH: Final = 5.0
"""Seconds for which Kafka's answer counts, so that probes of a whole fleet cost Kafka nothing."""


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
        self._reached: dict[str, tuple[float, str]] = {}

    async def check(self) -> dict[str, Any]:
        """Return the verdict, ``ready``, and a list of checks with their reasons."""
        names = self._watch.inspector.clusters()
        reached = await asyncio.gather(*(self._reach(name) for name in names))
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

    async def _reach(self, name: str) -> str:
        now = self._watch.system.loop.time()
        known = self._reached.get(name)
        if known is not None and now - known[0] < FRESH:
            return known[1]
        try:
            found = await self._watch.inspector.brokers(name)
            why = "" if found else "no broker is known"
        except PixyError as error:
            why = str(error)
        self._reached[name] = now, why
        return why


__all__ = ["Readiness"]

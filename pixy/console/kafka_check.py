"""Asks Kafka whether it answers, now. One answer serves everybody for :data:`FRESH` seconds.

librdkafka's word alone says too little: it tells that all brokers are down, not that one is up again, and its figures are seconds old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pixy.engine.inspector import Inspector
from pixy.errors import PixyError
from pixy.kafka.brokers import reason

FRESH: Final = 5.0
"""Seconds for which Kafka's answer counts, so that probes of a whole fleet cost Kafka nothing."""


class KafkaCheck:
    """Finds out why clusters do not answer.

    Args:
        inspector: asks the clusters.
        now: the time in seconds.
    """

    def __init__(self, inspector: Inspector, now: Callable[[], float]) -> None:
        self._inspector, self._now = inspector, now
        self._known: dict[str, tuple[float, str]] = {}
        self._asking: dict[str, asyncio.Task[str]] = {}

    def known(self, cluster: str) -> str | None:
        """Return the last outcome, as :meth:`problem` does; None if there is none that counts."""
        at, why = self._known.get(cluster, (float("-inf"), ""))
        return why if self._now() - at < FRESH else None

    async def problem(self, cluster: str, limit: float | None = None) -> str | None:
        """Say why no broker answers.

        Args:
            cluster: its name.
            limit: the longest wait in seconds; the question then goes on, for the next one who asks.

        Returns:
            Empty if one answers; None: that is not known within the limit.
        """
        if (known := self.known(cluster)) is not None:
            return known
        task = self._asking.get(cluster)
        if task is None or task.done():
            task = self._asking[cluster] = asyncio.create_task(self._ask(cluster))
        done, _ = await asyncio.wait([task], timeout=limit)
        return task.result() if done else None

    async def close(self) -> None:
        """Give up the questions that wait."""
        for task in self._asking.values():
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values())

    async def _ask(self, cluster: str) -> str:
        try:
            why = "" if await self._inspector.brokers(cluster) else "no broker is known"
        except PixyError as error:
            why = reason(error)
        self._known[cluster] = self._now(), why
        return why


__all__ = ["FRESH", "KafkaCheck"]

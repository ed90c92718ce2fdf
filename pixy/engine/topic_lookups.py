"""Looks up a cluster's topics for its producers and groups.

A group looks a topic up until it exists; a producer tries three times (:mod:`pixy.engine.produce.topic_lookup`).
So the look-ups of groups are shared and bounded, and after one that finds no topic the next one waits. Without this,
a thousand clients that ask a thousand groups for one misspelt topic would send Kafka two thousand requests a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pixy.errors import PixyError, UnknownTopic
from pixy.kafka.errors import TRANSIENT_CODES, translate

_TIMEOUT = 5.0
"""Seconds for one request."""
_AT_ONCE = 16
"""Look-ups for groups at the same time; further ones wait. Each takes a thread while Kafka does not answer."""
_MANY = 1000
"""Remembered answers beyond which those that are too old are dropped."""

Metadata = Callable[[str, float], Awaitable[dict[str, Any]]]
"""Asks for one topic, with a timeout in seconds: :meth:`pixy.kafka.producer.ProducerClient.metadata`."""


class TopicLookups:
    """Belongs to the cluster's actor and runs on its loop. Asking may make the broker create the topic.

    Args:
        metadata: asks Kafka.
        interval: seconds for which a topic that was not found, or an error, is not asked for again.
        now: returns the time in seconds.
    """

    def __init__(self, metadata: Metadata, interval: float, now: Callable[[], float]) -> None:
        self._metadata = metadata
        self._interval = interval
        self._now = now
        self._under_way: dict[str, asyncio.Task[int | None]] = {}
        self._failed: dict[str, tuple[float, PixyError | None]] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def writable(self, topic: str) -> tuple[int, ...] | None:
        """For a producer: the partitions that have a leader, sorted; None without such a topic.

        Raises:
            PixyError: no broker answers, or the topic is being made and has no leader yet.
        """
        found = await self._metadata_of(topic)
        if found is None:
            return None
        if found.error is not None and found.error.code() in TRANSIENT_CODES:
            raise translate(found.error)
        if found.error is not None or not found.partitions:
            return None
        return tuple(sorted(n for n, info in found.partitions.items() if info.leader >= 0))

    async def partitions(self, topic: str) -> int | None:
        """For a group: the number of partitions; None without such a topic. Raises PixyError."""
        failed = self._failed.get(topic)
        if failed is not None and self._now() < failed[0]:
            if failed[1] is not None:
                raise failed[1]
            return None
        task = self._under_way.get(topic)
        if task is None:
            task = self._under_way[topic] = asyncio.get_running_loop().create_task(self._look_up(topic))
            task.add_done_callback(lambda done: self._end(topic, done))
        return await asyncio.shield(task)  # one asker that gives up does not end it for the others

    async def _look_up(self, topic: str) -> int | None:
        async with self._room:
            found = await self._metadata_of(topic)
        return None if found is None or found.error is not None else len(found.partitions) or None

    async def _metadata_of(self, topic: str) -> Any:
        try:
            return (await self._metadata(topic, _TIMEOUT)).get(topic)
        except UnknownTopic:
            return None

    def _end(self, topic: str, task: asyncio.Task[int | None]) -> None:
        del self._under_way[topic]
        error = None if task.cancelled() else task.exception()
        failed = isinstance(error, PixyError) or (
            not task.cancelled() and not error and task.result() is None
        )
        if not failed:
            self._failed.pop(topic, None)
            return
        if len(self._failed) >= _MANY:
            now = self._now()
            self._failed = {name: entry for name, entry in self._failed.items() if entry[0] > now}
        until = self._now() + self._interval
        self._failed[topic] = (until, error if isinstance(error, PixyError) else None)

    def close(self) -> None:
        """End the look-ups that are under way."""
        for task in self._under_way.values():
            task.cancel()


__all__ = ["TopicLookups"]

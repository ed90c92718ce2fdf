"""Looks up a cluster's topics for its producers and groups.

A group looks a topic up until it exists; a producer tries three times (:mod:`pixy.engine.produce.topic_lookup`).
So the look-ups of groups are shared and bounded, and after one that finds no topic the next one waits. Without this,
a thousand clients that ask a thousand groups for one misspelt topic would send Kafka two thousand requests a second.

Topics that nobody has found yet (strangers) have few threads of those that ask Kafka. While those are taken, a topic is
first sought in a list of all topics, which one request brings; one that is in the list does not queue behind strangers.
So clients that name thousands of topics that do not exist delay each other, and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pixy.engine.produce.topic_lookup import Resolved, look_up
from pixy.errors import PixyError, ShuttingDown, UnknownTopic
from pixy.kafka.errors import TRANSIENT_CODES, translate

_TIMEOUT = 5.0
"""Seconds for one request."""
_AT_ONCE = 8
"""Look-ups of strangers at the same time; further ones wait. Each takes a thread, of 16, while Kafka does not answer."""
_LIST_EVERY = 1.0
"""Seconds between two requests for all topics."""
_FRESH = 1.0
"""Seconds for which the result of :meth:`TopicLookups.resolve` need not be asked for again."""
_MANY = 1000
"""Remembered answers beyond which those that are too old are dropped."""

Metadata = Callable[[str | None, float], Awaitable[dict[str, Any]]]
"""Asks for one topic, or all, with a timeout in seconds: :meth:`pixy.kafka.producer.ProducerClient.metadata`."""


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
        self._known: frozenset[str] = frozenset()
        self._listed = float("-inf")
        self._listing: asyncio.Task[None] | None = None
        self._resolving: dict[tuple[str, bool], asyncio.Task[Resolved]] = {}
        self._refused: dict[str, float] = {}
        self._fresh: dict[str, tuple[float, tuple[int, ...]]] = {}

    @property
    def waiting(self) -> int:
        """Topics that are being looked up for producers."""
        return len(self._resolving)

    async def resolve(self, topic: str, *, surely: bool = False) -> Resolved:
        """Find out whether there is a topic, at the first message to it, before an actor is started for it.

        Askers share a look-up. After one that found no topic, the next one does not try three times. What a group did
        not find does not count: its question may be what makes the broker create the topic, which takes a moment.

        Args:
            topic: which one.
            surely: the message is lost if there is none. So always try three times, and never believe a look-up that had begun
                before: the topic may have been made since.
        """
        key = topic, surely
        if surely and key in self._resolving:
            found = await asyncio.shield(self._resolving[key])
            if found.partitions is not None or found.error is not None:
                return found
        task = self._resolving.get(key)
        if task is None or task.done():  # its callback comes in the next turn of the loop
            task = asyncio.get_running_loop().create_task(self._resolve(topic, surely))
            self._resolving[key] = task
            task.add_done_callback(lambda done: self._resolved(key, done))
        return await asyncio.shield(task)

    def _resolved(self, key: tuple[str, bool], task: asyncio.Task[Resolved]) -> None:
        if self._resolving.get(key) is task:
            del self._resolving[key]

    async def _resolve(self, topic: str, surely: bool) -> Resolved:
        lately = not surely and self._now() < self._refused.get(topic, float("-inf"))
        attempts = {"attempts": 1} if lately else {}
        try:
            found = await look_up(self.writable, topic, **attempts)
        except asyncio.CancelledError:  # by close()
            return Resolved(None, ShuttingDown())
        now = self._now()
        if found.partitions:
            if len(self._fresh) >= _MANY:
                self._fresh = {name: entry for name, entry in self._fresh.items() if entry[0] > now}
            self._fresh[topic] = (now + _FRESH, found.partitions)
        elif found.partitions is None and found.error is None:
            if len(self._refused) >= _MANY:
                self._refused = {name: until for name, until in self._refused.items() if until > now}
            self._refused[topic] = now + self._interval
        return found

    async def writable(self, topic: str) -> tuple[int, ...] | None:
        """Return the partitions that have a leader, sorted; None without such a topic. For a producer.

        Raises:
            PixyError: no broker answers, the topic is being made and has no leader yet, or the daemon may not see it.
        """
        fresh = self._fresh.pop(topic, None)
        if fresh is not None and self._now() < fresh[0]:
            return fresh[1]
        found = await self._metadata_of(topic)
        if found is None:
            return None
        if found.error is not None:
            error = translate(found.error)
            if isinstance(error, UnknownTopic):
                return None
            raise error
        if not found.partitions:
            return None
        return tuple(sorted(n for n, info in found.partitions.items() if info.leader >= 0))

    async def partitions(self, topic: str) -> int | None:
        """Return the number of partitions; None without such a topic. For a group. Raises PixyError."""
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
        found = await self._metadata_of(topic)
        if found is None:
            return None
        if found.error is not None and found.error.code() not in TRANSIENT_CODES:
            # Unless Kafka says so, the topic is not absent: a group that took a missing right for it would begin at the
            # oldest message once it may read.
            error = translate(found.error)
            if not isinstance(error, UnknownTopic):
                raise error
        return None if found.error is not None else len(found.partitions) or None

    async def _metadata_of(self, topic: str) -> Any:
        if topic not in self._known and self._room.locked():
            await self._list()
        if topic in self._known:
            return await self._ask(topic)
        async with self._room:
            return await self._ask(topic)

    async def _ask(self, topic: str) -> Any:
        try:
            return (await self._metadata(topic, _TIMEOUT)).get(topic)
        except UnknownTopic:
            return None

    async def _list(self) -> None:
        """Learn which topics there are, at most once in ``_LIST_EVERY``."""
        if self._listing is None:
            if self._now() < self._listed + _LIST_EVERY:
                return
            self._listing = asyncio.get_running_loop().create_task(self._ask_for_all())
        await asyncio.shield(self._listing)

    async def _ask_for_all(self) -> None:
        try:
            found = await self._metadata(None, _TIMEOUT)
            self._known = frozenset(name for name, info in found.items() if info.error is None)
        except PixyError:
            pass  # then everybody is a stranger
        finally:
            self._listed = self._now()
            self._listing = None

    def _end(self, topic: str, task: asyncio.Task[int | None]) -> None:
        del self._under_way[topic]
        error = None if task.cancelled() else task.exception()
        failed = isinstance(error, PixyError) or (
            not task.cancelled() and not error and task.result() is None
        )
        if not failed:
            self._failed.pop(topic, None)
            return
        self._remember(topic, error if isinstance(error, PixyError) else None)

    def _remember(self, topic: str, error: PixyError | None) -> None:
        if len(self._failed) >= _MANY:
            now = self._now()
            self._failed = {name: entry for name, entry in self._failed.items() if entry[0] > now}
        self._failed[topic] = (self._now() + self._interval, error)

    def close(self) -> None:
        """End the look-ups that are under way."""
        for task in (*self._under_way.values(), *self._resolving.values()):
            task.cancel()
        if self._listing is not None:
            self._listing.cancel()


__all__ = ["TopicLookups"]

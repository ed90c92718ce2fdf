"""Looks up the topics that a producer writes to: after their first message, after a replacement, and while there is trouble.

It finds topics that were made again (:mod:`pixy.kafka.remade_topics`), and what has become of their partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pixy.errors import KafkaError
from pixy.kafka.brokers import LIMIT, Brokers
from pixy.kafka.remade_topics import LOOK_EVERY, RemadeTopics
from pixy.kafka.settings import Settings
from pixy.kafka.threads import KafkaThreads
from pixy.kafka.topics import Topics

logger = logging.getLogger("pixy.kafka")

_FIRST_LOOK: Final = 0.5
"""Seconds after which the id of a topic that is written to for the first time is asked for, with those of others."""


class TopicWatch:
    """Looks now and then, until :meth:`close`. Runs on the event loop.

    Args:
        settings: of the producer.
        threads: for the requests.
        patience: seconds after which a message has its result, an error at least.
        trouble: returns how many messages have no result, and how many have failed so far.
        found: called with the result of each look.
        remade: called with topics that were made again while messages wait: make a new producer.
    """

    def __init__(
        self,
        settings: Settings,
        threads: KafkaThreads,
        patience: float,
        trouble: Callable[[], tuple[int, int]],
        found: Callable[[Topics], None],
        remade: Callable[[list[str]], None],
    ) -> None:
        self._threads = threads
        self._trouble, self._found, self._remade = trouble, found, remade
        self._loop = asyncio.get_running_loop()
        self.brokers = Brokers(settings, patience=2 * LIMIT, keep=1)
        self.topics = RemadeTopics(patience)
        self._closed = False
        self._looking: asyncio.Task[None] | None = None
        self._pause = LOOK_EVERY
        self._look_at = self._loop.call_later(LOOK_EVERY, self._begin)

    def use(self, topic: str) -> None:
        """Note that a topic is written to."""
        if self.topics.used(topic, self._loop.time()):
            self._look_within(_FIRST_LOOK)

    def renewed(self) -> None:
        """Note that there is a new producer: what is known of the topics may be old."""
        self.topics.renewed()
        self._look_within(0.0)

    def stop(self) -> None:
        """Begin no further look."""
        self._closed = True
        self._look_at.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def close(self) -> None:
        """Close the connections, after :meth:`stop`."""
        self.brokers.close()

    def _look_within(self, seconds: float) -> None:
        soon = self._loop.time() + seconds
        if self._looking is not None:
            self._pause = min(self._pause, seconds)
        elif not self._closed and self._look_at.when() > soon:
            self._look_at.cancel()
            self._look_at = self._loop.call_at(soon, self._begin)

    def _begin(self) -> None:
        self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        self._pause = LOOK_EVERY
        try:
            await self._look_up(*self._trouble())
        except KafkaError as error:
            logger.debug("topics could not be looked up: %s", error)
        finally:
            self._looking = None
            if not self._closed:
                self._look_at = self._loop.call_later(self._pause, self._begin)

    async def _look_up(self, waiting: int, errors: int) -> None:
        names, troubled = self.topics.look(self._loop.time(), waiting, errors)
        if not names:
            return
        found = await self._threads.run(lambda: self.brokers.topics(names))
        if self._closed:
            return
        self._found(found)
        if remade := self.topics.found(found.ids, troubled, found.cluster_id):
            self._remade(remade)


__all__ = ["TopicWatch"]

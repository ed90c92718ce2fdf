"""The producer clients of a cluster: one, and a second one for the topics whose messages Kafka has refused.

Each refusal makes librdkafka's idempotent producer begin a new epoch, in which requests without an answer get new sequence numbers: if
their broker dies just then, it may have written them, and they are in the log twice. With clients of their own, the topics of which Kafka
refuses messages do that to each other at most, and to no other topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pixy.kafka.errors import translate
from pixy.kafka.new_producers import ReadyProducer
from pixy.kafka.producer import ProducerClient
from pixy.kafka.producer_messages import Report
from pixy.kafka.settings import Settings
from pixy.kafka.threads import KafkaThreads

logger = logging.getLogger("pixy.kafka")

_MAKE_EVERY = 1.0
"""Seconds after which making the second client is tried again."""
MOST_APART: Final = 10_000
"""Topics that the second client sends for. The one that came first goes back to the first client when there are more."""


class ProducerClients:
    """Runs on the event loop.

    Args:
        settings: of both clients.
        deliver: this and the next: see :class:`pixy.kafka.producer.ProducerClient`.
        failed: called with an error after which one of the clients cannot continue.
        extra: further settings, of the first client alone.
        stamp: as for that class.
    """

    def __init__(
        self,
        settings: Settings,
        deliver: Callable[[list[Report]], None],
        failed: Callable[[Exception], None],
        *,
        extra: Settings | None = None,
        stamp: bool = False,
    ) -> None:
        self._settings = settings
        make = partial(ProducerClient, deliver=deliver, failed=failed, refused=self._refused, stamp=stamp)
        self._make = make
        self._first = make(settings | (extra or {}))
        self._second: ProducerClient | None = None
        self._making: asyncio.Task[None] | None = None
        self._apart: dict[str, None] = {}

    @property
    def down(self) -> str:
        """The reason why no broker can be reached; see :attr:`ProducerClient.down`."""
        return self._first.down

    def of(self, topic: str) -> ProducerClient:
        """Return the client that sends a topic's messages from now on.

        Its messages that another client has must have their results first: else new ones may be written before them.
        """
        return self._second if topic in self._apart and self._second is not None else self._first

    async def metadata(self, topic: str | None, timeout: float) -> dict[str, Any]:
        """Look topics up; see :meth:`ProducerClient.metadata`."""
        return await self._first.metadata(topic, timeout)

    async def close(self, timeout: float) -> int:
        """Send what is buffered, for at most ``timeout`` seconds. Return how many messages were given up."""
        if self._making is not None:
            self._making.cancel()  # unless it is made
        if self._second is None:
            return await self._first.close(timeout)
        return sum(await asyncio.gather(self._first.close(timeout), self._second.close(timeout)))

    def _refused(self, topic: str) -> None:
        if topic in self._apart:
            return
        if len(self._apart) >= MOST_APART:
            del self._apart[next(iter(self._apart))]
        self._apart[topic] = None
        logger.warning(
            "%s: Kafka has refused a message: from now on this topic is written by a Kafka client apart from that of other topics",
            topic,
        )
        if self._making is None:
            self._making = asyncio.create_task(self._make_second())

    async def _make_second(self) -> None:
        """Make the second client. Should that fail, because a certificate is being changed, for example, try again."""
        threads, logged = KafkaThreads("kafka-producer-new", 1), False
        while True:
            try:
                ready = await threads.run(lambda: ReadyProducer(self._settings))
                self._second = self._make(self._settings, ready=ready)
                return
            except Exception as error:
                if not logged:
                    logger.error(
                        "no second Kafka client, which is tried again every second: %s", translate(error)
                    )
                    logged = True
            await asyncio.sleep(_MAKE_EVERY)


__all__ = ["MOST_APART", "ProducerClients"]

"""The producers of one cluster's topics: bounded, and started once their topic is found.

A part of the cluster's actor, not an actor: it runs inside the actor's handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from actors import ActorRef, Future
from pixy.engine.cluster_messages import GetProducer
from pixy.engine.produce.topic_producer import TopicProducer
from pixy.engine.topic_lookups import TopicLookups
from pixy.errors import PixyError, ShuttingDown, TooManyRequests
from pixy.kafka.errors import unknown_topic

Ref = ActorRef[TopicProducer]

_PATIENCE = 1.0
"""Seconds that an asynchronous message waits for the look-up of its topic, before a producer keeps it."""
_CROWD = 64
"""Look-ups at the same time. If there are more, no producer is started to keep messages for a topic that is not found yet."""


class Producers:
    """Starts a topic's producer for whoever asks first.

    Args:
        spawn: starts a topic's actor.
        most: ``producer.max_topics``.

    Attributes:
        closed: no producer is started any more.
    """

    def __init__(self, spawn: Callable[[str], Ref], most: int) -> None:
        self._spawn = spawn
        self._most = most
        self._producers: dict[str, Ref] = {}
        self.closed = False

    def __len__(self) -> int:
        return len(self._producers)

    def alive(self) -> list[Ref]:
        """Return the producers that have not stopped."""
        return [ref for ref in self._producers.values() if ref.is_alive()]

    def get(self, topic: str) -> Ref | None:
        """Return a topic's producer; None if there is none, or it has stopped."""
        ref = self._producers.get(topic)
        return ref if ref is not None and ref.is_alive() else None

    def check_room(self, coming: int) -> None:
        """Check whether another producer may be started.

        Args:
            coming: topics that are being looked up for their producers.

        Raises:
            ShuttingDown: no producer is started any more.
            TooManyRequests: there are too many.
        """
        if self.closed:
            raise ShuttingDown
        if coming + len(self._producers) >= self._most:
            raise TooManyRequests("producer.max_topics")

    async def find(self, request: GetProducer, reply: Future[Any], lookups: TopicLookups) -> None:
        """Start a producer once the topic is found: a name that no topic has costs no actor.

        Args:
            request: names the topic.
            reply: gets the producer, or what is wrong.
            lookups: look the topic up.
        """
        try:
            async with asyncio.timeout(None if request.patient else _PATIENCE):
                found = await lookups.resolve(request.topic, surely=not request.patient)
        except TimeoutError:
            if lookups.waiting > _CROWD:
                reply.try_fail(TooManyRequests("producer.max_topics"))
                return
        else:
            if found.partitions is None and (found.error is None or request.patient):
                reply.try_fail(found.error or unknown_topic())
                return
        try:
            reply.try_set(self._started(request.topic))
        except PixyError as error:
            reply.try_fail(error)

    def _started(self, topic: str) -> Ref:
        ref = self.get(topic)
        if ref is None:
            self.check_room(0)
            ref = self._producers[topic] = self._spawn(topic)
        return ref

    def stopped(self, ref: ActorRef[Any]) -> None:
        """Forget a producer that has stopped."""
        for topic, producer in tuple(self._producers.items()):
            if producer is ref:
                del self._producers[topic]


__all__ = ["Producers"]

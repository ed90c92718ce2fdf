"""A session in Kafka's own groups: the group's consumer is a member itself.

While a revoke callback is running, a commit by librdkafka from another thread does not return and was seen to land
after, and undo, the callback's own newer one. So the final commit of a revoked partition is made inside the callback,
after a bounded wait for the owners to drain. The group's other partitions are served from their buffers meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from pixy.config.model import Proxy
from pixy.errors import PixyError
from pixy.kafka import settings
from pixy.kafka.errors import not_shared_out, removed
from pixy.membership import Assigned, Event, Lost, Revoked
from pixy.membership.kafka.beginnings import Memory
from pixy.membership.kafka.fetching_session import DRAIN_SLACK, FetchingSession
from pixy.membership.kafka.removed import Removed
from pixy.wire.types import TopicPartition


class KafkaSession(FetchingSession):
    """See :class:`pixy.membership.Session`.

    Args:
        proxy: the cluster's configuration.
        group: the group's name.
        post: called on the loop with each event, in order.
        memory: what the group's sessions before knew of its topics; None for nothing.
    """

    def __init__(
        self, proxy: Proxy, group: str, post: Callable[[Event], None], memory: Memory | None = None
    ) -> None:
        super().__init__(proxy, group, post, settings.consumer(proxy, group), memory)
        self._wake_every = self._conf.heartbeat_interval / 10
        self._woken = 0.0
        self._shares_out = self._conf.kafka_protocol == "classic"
        """True if a member shares the partitions out, and not the coordinator."""
        self._topics: dict[str, int] = {}
        self._assigned = False
        """True if the group has answered with an assignment since this member began to join."""
        self._removed = Removed(self._conf.heartbeat_interval)
        self._thread.start()

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See :class:`pixy.membership.Session`."""
        self._command(lambda: self._subscribe(dict(topics)))

    def _subscribe(self, topics: dict[str, int]) -> None:
        self._partitions.subscribed(topics)
        if not topics:
            self._assigned = False
            self._partitions.beginnings.left()
        elif not self._assigned:
            self._partitions.beginnings.before_joining(
                {each: count for each, count in topics.items() if each not in self._topics}
            )
        self._topics = topics
        # An empty subscription leaves the group, which takes polls as well.
        self._subscribed = self._subscribed or bool(topics)
        self._client.subscribe(topics)

    # -- the thread -------------------------------------------------------------------------------

    def _step(self) -> None:
        if not self._assigned:
            self._partitions.beginnings.ask()
        super()._step()
        if self._removed.unnoticed and not self._closing:
            raise removed(self._removed.unnoticed)
        if self._partitions.missed and self._shares_out and not self._closing:
            raise not_shared_out(self._partitions.missed)
        now = time.monotonic()
        self._look_for_assignment(self._lookups, now)
        if self._subscribed and now - self._woken >= self._wake_every and not self._quiet:
            # With 64 partitions and three members, a joining one got its partitions after 0.6 instead of 1.1 s.
            # Not in a quiet group: this holds the GIL until librdkafka's thread answers, and a thousand groups that did
            # it twice a second kept each other, and the loop, from running.
            self._woken = now
            self._client.wake()

    # -- callbacks, in the thread -----------------------------------------------------------------

    def _committed(self, error: PixyError | None, partitions: dict[TopicPartition, PixyError]) -> None:
        self._removed.answered([error] if error is not None else partitions.values(), time.monotonic())
        super()._committed(error, partitions)

    def _rebalanced(self) -> None:
        self._removed.rebalanced()
        self._left_behind.rebalanced()

    def _assign(self, partitions: list[TopicPartition]) -> None:
        self._busy_at = time.monotonic()
        self._assigned = True
        self._rebalanced()
        self._client.assign(())  # those that can be fetched follow
        if not partitions:
            self._post(Assigned(()))
            return
        self._partitions.add(partitions, first=self._client.generation() <= 1)

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        self._busy_at = time.monotonic()
        self._rebalanced()
        if not self._closing and partitions:
            self._commit_finally(self._partitions.new_starts(partitions))
            timeout = self._conf.drain_timeout + DRAIN_SLACK
            self._wait_for_release(Revoked(tuple(partitions)), timeout)
        self._partitions.drop(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._rebalanced()
        self._partitions.drop(partitions)
        self._post(Lost(tuple(partitions)))


__all__ = ["KafkaSession"]

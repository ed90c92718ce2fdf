"""A session in Kafka's own groups: one librdkafka consumer per group, driven by one thread.

That thread alone calls librdkafka's consumer: it polls, assigns, seeks and pauses. A periodic commit
goes out in a thread of its own, over a connection of our own; each later commit, and each read of
committed offsets, first waits for its end, so commits take effect in the order in which they were
handed over. While a revoke callback is running, a commit by librdkafka from another thread does not
return and was seen to land after, and undo, the callback's own newer one. So the final commit of a
revoked partition is made inside the callback, after a bounded wait for the owners to drain. The group's other partitions are served from their buffers meanwhile.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pixy.config.model import Proxy
from pixy.errors import PixyError
from pixy.kafka import settings
from pixy.kafka.consumer import Commit, ConsumerClient
from pixy.kafka.errors import translate
from pixy.kafka.flow import FlowControl
from pixy.membership import (
    Assigned,
    AssignedPartition,
    Committed,
    Event,
    Fetched,
    Lost,
    Revoked,
    SessionFailed,
)
from pixy.membership.kafka.member_thread import MemberThread
from pixy.membership.start_position import resolve_start
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_POLL = 0.1
_BATCH = 256
_QUERY_TIMEOUT = 10.0
_DRAIN_SLACK = 0.5


class KafkaSession(MemberThread[Event]):
    """See :class:`pixy.membership.Session`.

    Args:
        proxy: the cluster's configuration.
        group: the group's name.
        post: called on the loop with each event, in order.
    """

    def __init__(self, proxy: Proxy, group: str, post: Callable[[Event], None]) -> None:
        super().__init__(f"group {group}", f"kafka-{group}", post)
        self._conf = proxy.consumer
        self._flow: FlowControl[TopicPartition] = FlowControl(
            self._conf.prefetch_max_messages, self._conf.fetch_max_bytes
        )
        self._epochs = itertools.count(1)
        self._epoch_of: dict[TopicPartition, int] = {}
        self._known: dict[str, int] = {}
        self._subscribed = False
        self._client = ConsumerClient(
            settings.consumer(proxy, group),
            assign=self._assign,
            revoke=self._revoke,
            lost=self._lost,
            committed=self._committed,
        )
        self._thread.start()

    # -- commands, from the loop ------------------------------------------------------------------

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See :class:`pixy.membership.Session`."""
        self._command(lambda: self._subscribe(dict(topics)))

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None:
        """See :class:`pixy.membership.Session`."""
        self._flow.credit(partition, messages, size)

    def next_epoch(self) -> int:
        """See :class:`pixy.membership.Session`."""
        return next(self._epochs)

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """See :class:`pixy.membership.Session`."""
        self._command(lambda: self._seek(partition, offset, epoch))

    def commit(self, commits: Iterable[Commit]) -> None:
        """See :class:`pixy.membership.Session`."""
        batch = tuple(commits)
        self._command(lambda: self._commit(batch))

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake_up()

    def _wake_up(self) -> None:
        self._flow.nudge()

    # -- the thread -------------------------------------------------------------------------------

    def _failed(self, error: PixyError) -> Event:
        return SessionFailed(error)

    def _step(self) -> None:
        self._run_commands()
        if self._closing:
            return
        demand = self._flow.demand()
        if demand == 0 or not self._subscribed:
            demand = self._flow.wait_for_demand(_POLL)
            if self._commands or not self._subscribed:
                return
        # Without demand a poll still serves rebalances. It may return one message too many; flow
        # control pauses the partition before these add up.
        first = self._client.poll(_POLL if demand else 0)
        if first is not None:
            more = self._client.take(min(demand, _BATCH) - 1) if demand > 1 else []
            self._post_fetched([first, *more])
        self._pause_and_resume()

    def _post_fetched(self, messages: list[Any]) -> None:
        batches: dict[TopicPartition, tuple[int, list[Any]]] = {}
        sizes: dict[TopicPartition, int] = {}
        for message in messages:
            if message.error() is not None:
                self._check_error(message)
                continue
            partition = (message.topic(), message.partition())
            batch = batches.get(partition)
            if batch is None:
                batch = batches[partition] = (self._epoch_of.get(partition, 0), [])
                sizes[partition] = 0
            batch[1].append(message)
            sizes[partition] += len(message)
        for partition, size in sizes.items():
            self._flow.took(partition, len(batches[partition][1]), size)
        if batches:
            self._post(Fetched(batches))

    def _check_error(self, message: Any) -> None:
        error = message.error()
        if error.fatal():
            raise translate(error)
        logger.warning("%s: %s", self._name, error.str())

    def _pause_and_resume(self) -> None:
        pause, resume = self._flow.changes()
        for partitions, act in ((pause, self._client.pause), (resume, self._client.resume)):
            if partitions:
                try:
                    act(partitions)
                except Exception as error:  # revoked a moment ago
                    logger.info("%s: flow control: %s", self._name, error)

    # -- commands, in the thread ------------------------------------------------------------------

    def _subscribe(self, topics: dict[str, int]) -> None:
        for topic in [name for name in self._known if name not in topics]:
            del self._known[topic]
        for topic, partitions in topics.items():
            self._known.setdefault(topic, partitions)
        self._subscribed = bool(topics)
        self._client.subscribe(topics)

    def _seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        if partition not in self._epoch_of:
            return  # revoked meanwhile
        self._epoch_of[partition] = epoch
        self._flow.assigned([partition])
        try:
            self._client.seek(partition, offset)
            # Flow control counts from zero again and has forgotten that it may have paused it.
            self._client.resume([partition])
        except Exception as error:
            raise translate(error) from error

    def _commit(self, batch: tuple[Commit, ...]) -> None:
        try:
            self._client.commit(batch, wait=False)
        except PixyError as error:
            self._post(Committed(error, {}))

    # -- callbacks, in the thread -----------------------------------------------------------------

    def _committed(self, error: PixyError | None, partitions: dict[TopicPartition, PixyError]) -> None:
        self._post(Committed(error, partitions))

    def _assign(self, partitions: list[TopicPartition]) -> None:
        assigned: list[AssignedPartition] = []
        fetch: list[tuple[TopicPartition, int]] = []
        if partitions:
            committed = self._client.committed(partitions, _QUERY_TIMEOUT)
            bounds = self._client.bounds(partitions, _QUERY_TIMEOUT)
            for partition in partitions:
                topic, number = partition
                found = committed[partition]
                # A partition that was added after the subscription begins at its oldest message:
                # ``newest`` is for the messages that a new group does not want to see.
                grown = number >= self._known.get(topic, number + 1)
                start = resolve_start(
                    found.offset,
                    *bounds[partition],
                    from_oldest=grown or self._conf.initial_offset == "oldest",
                )
                epoch = self.next_epoch()
                self._epoch_of[partition] = epoch
                fetch.append((partition, start.fetch))
                metadata = found.metadata if start.position == found.offset else ""
                assigned.append(AssignedPartition(topic, number, start.position, metadata, epoch, start.new))
        self._client.assign(fetch)
        if partitions:
            # librdkafka keeps the pause of a partition that was revoked and comes back.
            self._client.resume(partitions)
        self._flow.assigned(partitions)
        self._post(Assigned(tuple(assigned)))

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        if not self._closing and partitions:
            timeout = self._conf.drain_timeout + _DRAIN_SLACK
            self._wait_for_release(Revoked(tuple(partitions)), timeout, partitions)
        self._forget(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._forget(partitions)
        self._post(Lost(tuple(partitions)))

    def _forget(self, partitions: list[TopicPartition]) -> None:
        self._flow.revoked(partitions)
        for partition in partitions:
            self._epoch_of.pop(partition, None)


__all__ = ["KafkaSession"]

"""The part of a group's session that does not depend on who shares the partitions out: fetch and commit.

One librdkafka consumer per group, driven by one thread, which alone calls it: it polls, assigns, seeks and pauses. A
periodic commit goes out in a thread of its own, over a connection of our own; each later commit, and each read of
committed offsets, first waits for its end, so commits take effect in the order in which they were handed over.

An assigned partition is handed to librdkafka once it is known where it begins. That is looked up in a thread of its
own (:mod:`pixy.membership.kafka.start_lookups`), so a partition without a leader delays no other, and the poll
goes on. Every change of a position is ours too: librdkafka reports an offset out of range and stops, and the session
begins again where :func:`~pixy.membership.start_position.resolve_start` says. The ids of the topics are compared
before each commit, and every few seconds: another id is another topic of the same name, which begins at its
oldest message.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from pixy.config.model import Proxy
from pixy.errors import PixyError
from pixy.kafka.consumer import OUT_OF_RANGE, PARTITION_END, Check, Commit, ConsumerClient
from pixy.kafka.errors import GROUP_REFUSED_CODES, ends_consumer, translate
from pixy.kafka.flow import FlowControl
from pixy.kafka.settings import Settings
from pixy.membership import Committed, Event, Fetched, SessionFailed
from pixy.membership.kafka.beginnings import Memory
from pixy.membership.kafka.member_thread import MemberThread
from pixy.membership.kafka.session_partitions import SessionPartitions
from pixy.membership.kafka.start_lookups import StartLookups
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_POLL, _POLL_STARTING, _POLL_QUIET = 0.1, 0.01, 0.5
"""Seconds. A poll cannot be interrupted, so polls are short while partitions wait for their beginnings, and longer when
nothing has come for a while: 1,000 idle groups that polled ten times a second would take all of a processor."""
_QUIET_AFTER = 3.0
"""Seconds without a message, a command or a rebalance."""
_BATCH = 256
DRAIN_SLACK = 0.5
"""Seconds that a session waits longer than the owners for a drain."""
_FINAL_PATIENCE = 5.0


class FetchingSession(MemberThread[Event]):
    """Base class of implementations of :class:`pixy.membership.Session`. Subclasses start the thread.

    A commit that was handed over before a partition was revoked, and runs after that, leaves the partition out:
    the broker would take it from any member, and it would move the next owner's offset back.

    Args:
        proxy: the cluster's configuration.
        group: the group's name.
        post: called on the loop with each event, in order.
        made: the settings of the consumer.
        memory: what the group's sessions before knew of its topics; None for nothing.
    """

    def __init__(
        self,
        proxy: Proxy,
        group: str,
        post: Callable[[Event], None],
        made: Settings,
        memory: Memory | None = None,
    ) -> None:
        super().__init__(f"group {group}", f"kafka-{group}", post)
        self._conf = proxy.consumer
        self._flow: FlowControl[TopicPartition] = FlowControl(
            self._conf.prefetch_max_messages, self._conf.fetch_max_bytes
        )
        self._subscribed = False
        self._busy_at = time.monotonic()
        """The time of the last message, command or rebalance, on the monotonic clock."""
        self._before_end = 0
        """The number given out when the end was asked for; 0 before. Last positions of partitions assigned later are not committed."""
        self._lookups = StartLookups(made, group)
        self._client = ConsumerClient(
            made,
            assign=self._assign,
            revoke=self._revoke,
            lost=self._lost,
            committed=self._committed,
        )
        self._partitions = SessionPartitions(
            self._name,
            self._conf,
            self._client,
            self._flow,
            self._lookups,
            self._post,
            self._command,
            memory or Memory(),
        )

    # -- commands, from the loop ------------------------------------------------------------------

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None:
        """See :class:`pixy.membership.Session`."""
        self._flow.credit(partition, messages, size)

    def next_epoch(self) -> int:
        """See :class:`pixy.membership.Session`."""
        return self._partitions.next_epoch()

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """See :class:`pixy.membership.Session`."""
        self._command(lambda: self._partitions.seek(partition, offset, epoch))

    def commit(self, commits: Iterable[Commit]) -> None:
        """See :class:`pixy.membership.Session`."""
        batch, before = tuple(commits), self.next_epoch()
        self._command(lambda: self._commit(batch, before))

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._busy_at = time.monotonic()
        self._wake_up()

    def _wake_up(self) -> None:
        self._flow.nudge()

    # -- the thread -------------------------------------------------------------------------------

    _last_words = 5.0

    def _failed(self, error: PixyError) -> Event:
        return SessionFailed(error)

    def _close(self) -> None:
        self._lookups.close()
        super()._close()

    def _step(self) -> None:
        self._run_commands()
        if self._closing:
            return
        self._partitions.look_up()
        demand = self._flow.demand()
        if demand == 0 or not self._subscribed:
            demand = self._flow.wait_for_demand(_POLL)
            if self._commands or not self._subscribed:
                return
        # Without demand a poll still serves rebalances. It may return one message too many; flow
        # control pauses the partition before these add up.
        first = self._client.poll(self._poll_time() if demand else 0)
        if first is not None:
            self._busy_at = time.monotonic()
            more = self._client.take(min(demand, _BATCH) - 1) if demand > 1 else []
            self._post_fetched([first, *more])
            self._partitions.check_unheard(busy=True)
        elif demand:
            self._partitions.check_unheard(busy=False)
        self._pause_and_resume()

    @property
    def _quiet(self) -> bool:
        """True if nothing has happened in the group for a while."""
        return time.monotonic() - self._busy_at >= _QUIET_AFTER

    def _poll_time(self) -> float:
        if self._partitions.waiting:
            return _POLL_STARTING
        return _POLL_QUIET if self._quiet else _POLL

    def _post_fetched(self, messages: list[Any]) -> None:
        batches: dict[TopicPartition, tuple[int, list[Any]]] = {}
        sizes: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for message in messages:
            partition = (message.topic(), message.partition())
            if (error := message.error()) is not None:
                if error.code() == PARTITION_END:
                    ends[partition] = message.offset()
                else:
                    self._check_error(error, partition)
                continue
            batch = batches.get(partition)
            if batch is None:
                epoch = self._partitions.epoch(partition)
                if epoch is None:
                    continue  # unassigned meanwhile
                batch = batches[partition] = (epoch, [])
                sizes[partition] = 0
            batch[1].append(message)
            sizes[partition] += len(message)
        for partition, size in sizes.items():
            self._flow.took(partition, len(batches[partition][1]), size)
        gaps = self._partitions.fetched(batches, ends)
        if batches or gaps:
            self._post(Fetched(batches, gaps))

    def _check_error(self, error: Any, partition: TopicPartition) -> None:
        if ends_consumer(error) or error.code() in GROUP_REFUSED_CODES:
            raise translate(error)
        logger.warning("%s: %s", self._name, error.str())
        if error.code() == OUT_OF_RANGE:
            self._partitions.out_of_range(partition)

    def _pause_and_resume(self) -> None:
        pause, resume = self._flow.changes()
        for partitions, act in ((pause, self._client.pause), (resume, self._client.resume)):
            if partitions:
                try:
                    act(partitions)
                except Exception as error:  # revoked a moment ago
                    logger.info("%s: flow control: %s", self._name, error)

    # -- commands, in the thread ------------------------------------------------------------------

    def _commit(self, batch: tuple[Commit, ...], before: int) -> None:
        held = tuple(each for each in batch if self._partitions.held((each.topic, each.partition), before))
        if not held:
            self._post(Committed(None, {}))
            return
        try:
            self._client.commit(
                self._partitions.with_leaders(held), wait=False, check=self._partitions.check(held)
            )
        except PixyError as error:
            self._post(Committed(error, {}))

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """See :class:`pixy.membership.Session`."""
        self._before_end = self._before_end or self.next_epoch()
        await super().close(commits, timeout)

    def _holds(self, partition: TopicPartition) -> bool:
        return self._partitions.held(partition, self._before_end)

    def _commit_last(self, batch: tuple[Commit, ...]) -> None:
        super()._commit_last(self._partitions.with_leaders(batch))

    def _final_check(self, batch: tuple[Commit, ...]) -> Check | None:
        return self._partitions.check(batch, _FINAL_PATIENCE)

    # -- callbacks, in the thread -----------------------------------------------------------------

    def _committed(self, error: PixyError | None, partitions: dict[TopicPartition, PixyError]) -> None:
        self._post(Committed(error, partitions))

    def _assign(self, partitions: list[TopicPartition]) -> None:
        """Take newly assigned partitions, if the consumer is a member of the group."""

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        """Give partitions back, if the consumer is a member of the group."""

    def _lost(self, partitions: list[TopicPartition]) -> None:
        """Drop partitions, if the consumer is a member of the group."""


__all__ = ["DRAIN_SLACK", "FetchingSession"]

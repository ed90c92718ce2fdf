"""The session of a REST consumer instance on Kafka's own groups: one librdkafka consumer in one thread.

confluent-kafka serves one call at a time per consumer, so while a read waits in ``poll``, every command
waits for the end of that poll. Hence polls are short (:mod:`pixy.membership.poll_interval`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pixy.config.model import Proxy
from pixy.errors import KafkaError, PixyError, Unavailable
from pixy.kafka import settings
from pixy.kafka.consumer import Check, Commit
from pixy.kafka.instance_consumer import InstanceConsumer
from pixy.kafka.partition_logs import Log
from pixy.membership.instances import (
    Assigned,
    Done,
    Earlier,
    InstanceEvent,
    Lost,
    Met,
    MetTopic,
    Revoked,
    SessionFailed,
    not_assigned,
)
from pixy.membership.kafka.instance_partitions import InstancePartitions, Moment
from pixy.membership.kafka.instance_reads import POLL_INTERVAL, InstanceReads, Wanted
from pixy.membership.kafka.instance_starts import StartOffsets
from pixy.membership.kafka.instance_topics import InstanceTopics
from pixy.membership.kafka.late_starts import LateStarts
from pixy.membership.kafka.member_thread import MemberThread
from pixy.membership.kafka.start_lookups import StartLookups
from pixy.wire.errors import ErrorCode
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_TICK, _TICK_JOINING = 0.5, 0.05
_JOINING = 15.0
_QUERY_TIMEOUT = 10.0
_RELEASE_TIMEOUT = 1.0

_starter = ThreadPoolExecutor(1, thread_name_prefix="instance-starter")


class KafkaInstance(MemberThread[InstanceEvent]):
    """See :class:`pixy.membership.instances.InstanceSession`.

    Args:
        proxy: the configuration of the cluster.
        group: the group's id.
        name: the instance's name, for the client id, the thread's name and logs.
        reset: where a partition without a committed offset begins: ``earliest`` or ``latest``.
        isolation: ``read_committed`` or ``read_uncommitted``.
        commits: whether the instance commits automatically, also the starts in :attr:`Assigned.new`.
        earlier: what the instance knew before it restarted.
        post: called on the loop with each event, in order.
    """

    _client: InstanceConsumer

    def __init__(
        self,
        proxy: Proxy,
        group: str,
        name: str,
        reset: str,
        isolation: str,
        commits: bool,
        earlier: Earlier,
        post: Callable[[InstanceEvent], None],
    ) -> None:
        super().__init__(f"instance {name} of group {group}", f"kafka-{name}", post)
        self._earlier = earlier
        self._starts = StartOffsets(self._name, oldest=reset == "earliest", commits=commits, earlier=earlier)
        self._pause_after = proxy.instances.pause_after
        self._wake = threading.Event()
        self._wanted = Wanted()
        self._assigned = InstancePartitions()
        self._before_end: Moment | None = None
        """When the end was asked for; None before. Last positions of partitions assigned later are not committed."""
        self._polling = False
        """True if the consumer has a subscription or partitions, so polling makes sense."""
        self._joined = self._member = False
        # "earliest" is for a position that is out of range: it has expired, or the topic was made again. Nothing
        # that is there is skipped. StartOffsets looks up where partitions without a committed offset begin.
        self._settings = settings.instance(proxy, group, name, "earliest", isolation)
        self._committed_only = isolation == "read_committed"
        # Thread.start() waits until the thread runs: up to seconds among a thousand threads, so not on the loop.
        self._starting = self._loop.run_in_executor(_starter, self._start)

    # -- commands, called on the loop ------------------------------------------------------------------

    def subscribe(self, token: int, topics: tuple[str, ...], added: tuple[str, ...] = ()) -> None:
        """See :class:`pixy.membership.instances.InstanceSession`."""
        self._command(token, lambda: self._subscribe(topics, added))

    def assign(
        self,
        token: int,
        partitions: tuple[TopicPartition, ...],
        keep: Mapping[TopicPartition, int],
        *,
        repeated: bool = False,
    ) -> None:
        """See :class:`pixy.membership.instances.InstanceSession`."""
        before = self._assigned.moment()
        self._command(token, lambda: self._assign_only(partitions, dict(keep), repeated, before))

    def seek(self, token: int, offsets: Mapping[TopicPartition, int]) -> None:
        """See :class:`pixy.membership.instances.InstanceSession`."""
        self._command(token, lambda: self._seek(dict(offsets)))

    def committed(self, token: int, partitions: tuple[TopicPartition, ...]) -> None:
        """See :class:`pixy.membership.instances.InstanceSession`."""
        self._command(token, lambda: self._client.committed(list(partitions), _QUERY_TIMEOUT))

    def commit(self, token: int, commits: tuple[Commit, ...], *, assigned_only: bool = False) -> None:
        """See :class:`pixy.membership.instances.InstanceSession`."""
        if assigned_only:
            before = self._assigned.moment()
            self._command(token, lambda: self._commit_positions(commits, before, token))
        else:
            self._command(token, lambda: self._commit(commits))

    def want(self, most: int, max_bytes: int, *, wait: bool = True) -> None:
        """See :class:`pixy.membership.instances.InstanceSession`."""
        self._wanted.arguments = (most, max_bytes, wait)
        if most:
            self._wake.set()

    def heard(self, event: Assigned) -> None:
        """See :class:`pixy.membership.instances.InstanceSession`."""
        self._assigned.heard(event.number)

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """See :class:`pixy.membership.instances.InstanceSession`."""
        self._before_end = self._before_end or self._assigned.moment()
        await super().close(commits, timeout)

    def _command(self, token: int, act: Callable[[], Any]) -> None:
        def command() -> None:
            try:
                self._post(Done(token, act(), None))
            except PixyError as error:
                self._post(Done(token, None, error))

        self._run_soon(command)

    def _run_soon(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake.set()

    def _wake_up(self) -> None:
        self._wake.set()

    async def _started(self) -> None:
        await self._starting

    def _start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:  # the system allows no more threads
            self._post(SessionFailed(Unavailable(f"{self._name}: {error}")))

    # -- the thread -------------------------------------------------------------------------------

    _last_words = 2.0

    def _open(self) -> None:
        # Takes milliseconds, so not on the loop.
        self._client = InstanceConsumer(
            self._settings,
            assign=self._assign,
            revoke=self._revoke,
            lost=self._lost,
            committed=lambda _error, _parts: None,
        )
        self._lookups = StartLookups(self._settings, self._settings["group.id"])
        self._topics = InstanceTopics(
            self._client,
            self._lookups,
            self._run_soon,
            self._begin_anew,
            self._earlier.topics,
            self._post_met,
            shares_out=self._settings["group.protocol"] == "classic",
        )
        self._late = LateStarts(self._client, self._lookups, self._run_soon, self._begin_late)
        self._reads = InstanceReads(
            self._name,
            self._client,
            self._wanted,
            self._assigned,
            self._topics,
            self._late,
            self._commands,
            self._post,
            self._pause_after,
        )

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self._lookups.close()

    def _failed(self, error: PixyError) -> InstanceEvent:
        return SessionFailed(error)

    def _step(self) -> None:
        self._wake.clear()
        self._run_commands()
        if self._closing:
            return
        self._late.look_up()
        if self._member:
            self._look_for_assignment(self._lookups, time.monotonic())
        if not self._polling:
            self._wake.wait()
        elif self._wanted.most:
            self._reads.look()
        else:
            self._rest()

    def _rest(self) -> None:
        reads = self._reads
        joining = not self._joined and time.monotonic() - reads.looked < _JOINING
        tick = _TICK * (2 if reads.paused else 1)
        if joining:
            with POLL_INTERVAL:  # slows down when a thousand join at once
                tick = max(_TICK_JOINING, POLL_INTERVAL.seconds)
                self._wake.wait(tick)
        else:
            self._wake.wait(tick)
        if time.monotonic() - reads.polled >= tick:
            reads.rest()

    # -- commands, in the thread ------------------------------------------------------------------

    def _subscribe(self, topics: tuple[str, ...], added: tuple[str, ...]) -> None:
        self._starts.subscribed(topics, added)
        self._topics.subscribed(topics)
        self._client.subscribe_or_raise(topics)
        self._polling = self._member = True
        self._joined = False
        self._reads.looked = time.monotonic()

    def _assign_only(
        self,
        partitions: tuple[TopicPartition, ...],
        keep: dict[TopicPartition, int],
        repeated: bool,
        before: Moment,
    ) -> dict[TopicPartition, int]:
        chosen = list(partitions)
        positions = self._assigned.kept(chosen, keep, before)
        try:
            again = self._topics.added(chosen)
            found = self._starts.of_assignment(
                self._client, chosen, positions, again, late=self._late.waiting, repeated=repeated
            )
            self._client.assign_only(found.to_fetch)
        except PixyError:
            self._topics.forget(set(chosen) - self._assigned.keys)
            raise
        starts = found.starts
        self._topics.subscribed(())
        self._starts.assigned()
        self._topics.forget(self._assigned.keys - set(starts))
        self._forget_records(self._assigned.keys)
        self._assigned.replace(starts, keep)
        self._late.add(found.late)
        self._reads.replaced(starts)
        self._reads.expect(starts)
        self._polling = self._joined = True
        self._member = False
        self._post_met()
        return starts

    def _seek(self, offsets: dict[TopicPartition, int]) -> None:
        self._seek_all_or_none(offsets)
        self._reads.sought(offsets)

    def _seek_all_or_none(self, offsets: Mapping[TopicPartition, int]) -> None:
        if gone := [each for each in offsets if each not in self._assigned.keys]:
            raise not_assigned(gone[0])  # a revocation of it is on its way to the loop
        deadline = time.monotonic() + _QUERY_TIMEOUT
        for number, (partition, offset) in enumerate(offsets.items()):
            try:
                self._client.seek_until(deadline, partition, offset)
            except PixyError as error:
                if number:  # the reader would skip what lies between, without a notice
                    self._run_soon(partial(self._give_up, error))
                raise

    def _give_up(self, error: PixyError) -> None:
        raise error

    def _commit(self, commits: tuple[Commit, ...]) -> tuple[Commit, ...]:
        self._client.commit(commits, wait=True, check=self._topics.check(commits))
        return commits

    def _commit_positions(
        self, commits: tuple[Commit, ...], before: Moment, token: int
    ) -> tuple[Commit, ...]:
        left = self._assigned.to_commit(commits, before, token)
        if left:
            self._commit_last(left)
            self._assigned.committed(left, token)
        return left

    def _final_check(self, batch: tuple[Commit, ...]) -> Check | None:
        return self._topics.check(batch)

    def _commit_last(self, batch: tuple[Commit, ...]) -> None:
        """Commit the reader's positions, without those in partitions that its topic, made again, has no more."""
        try:
            super()._commit_last(batch)
        except KafkaError as error:
            left = self._topics.existing(
                batch
            )  # as the check has just found; the topic may have grown since it last did
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or left == batch:
                raise
            super()._commit_last(left)

    def _holds(self, partition: TopicPartition) -> bool:
        return self._before_end is not None and self._assigned.held(partition, self._before_end)

    def _begin_anew(self, found: set[TopicPartition]) -> None:
        """Begin other topics of the same names at their oldest records, and commit that."""
        partitions = found & self._assigned.keys
        logger.warning("%s: %s: made again; begin at the oldest record", self._name, sorted(partitions))
        self._starts.made_again(found)
        self._drop(partitions)
        self._post(Lost(tuple(partitions)))
        for partition in partitions:
            self._client.restart(partition, 0)  # if it has expired already, the broker refuses it
        self._reads.restarted(partitions)
        starts = dict.fromkeys(partitions, 0)
        number = self._assigned.add(starts)
        self._reads.expect(starts)
        self._post_met()
        self._post(Assigned(starts, frozenset(partitions), number))

    def _begin_late(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Fetch partitions whose beginning is known now."""
        starts = {each: log.newest(committed=self._committed_only) for each, log in logs.items()}
        for partition, offset in starts.items():
            self._client.restart(partition, offset)
        self._reads.restarted(starts)
        number = self._assigned.add(starts)
        self._reads.expect(starts)
        self._post(Assigned(starts, frozenset(starts) if self._member else frozenset(), number))

    def _post_met(self) -> None:
        ids, known = self._topics.ids, self._starts.known
        topics = {each: MetTopic(ids.get(each), known.get(each)) for each in {*ids, *known}}
        self._post(Met(topics, self._late.waiting))

    # -- callbacks, in the thread -----------------------------------------------------------------

    def _assign(self, partitions: list[TopicPartition]) -> None:
        self._left_behind.rebalanced()
        again = self._topics.added(partitions)
        found = self._starts.of_member(self._client, partitions, again)
        starts = found.starts
        self._client.assign(found.to_fetch.items())
        self._late.add(found.late)
        number = self._assigned.add(starts)
        self._reads.expect(starts)
        self._reads.added(partitions)
        self._joined = True
        self._post_met()
        self._post(Assigned(starts, frozenset(found.new), number))

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        self._left_behind.rebalanced()
        if not self._closing and partitions:
            self._wait_for_release(Revoked(tuple(partitions)), _RELEASE_TIMEOUT)
            self._joined = False
        self._forget(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._left_behind.rebalanced()
        self._forget(partitions)
        self._post(Lost(tuple(partitions)))

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        self._topics.forget(partitions)
        self._drop(partitions)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = set(partitions)
        self._assigned.drop(dropped)
        self._forget_records(dropped)

    def _forget_records(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = set(partitions)
        self._starts.forget(dropped)
        self._reads.forget(dropped)


__all__ = ["KafkaInstance"]

"""Tests that every implementation of :class:`pixy.membership.Session` passes.

Each function of ``CHECKS`` gets a :class:`Stage`, which an implementation's test module provides:

- the model of the simulations: ``tests/unit/engine/consume/test_group_model.py``, in virtual time;
- Kafka's own groups (both protocols) and ZooKeeper's: ``tests/integration/test_membership.py``, on real brokers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pixy.membership import (
    Assigned,
    AssignedPartition,
    Commit,
    Committed,
    Event,
    Fetched,
    Revoked,
    Session,
    SessionFailed,
)
from pixy.wire.types import TopicPartition

E = TypeVar("E")

MESSAGES = 60
"""In each partition, from offset 0 on."""
ROOM = 12
"""Messages of a partition that a session fetches ahead of credit; Kafka may return some more."""
PATIENCE = 60.0
"""Seconds."""


class Member:
    """A session and the events that it has posted."""

    session: Session

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self.fetched: dict[tuple[TopicPartition, int], list[int]] = {}
        """Offsets by partition and epoch, in the order in which they came."""
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def post(self, event: Event) -> None:
        """Take an event of the session."""
        self._events.put_nowait(event)

    async def event(self, wanted: type[E]) -> E:
        """Take events up to the first of this type."""
        async with asyncio.timeout(PATIENCE):
            while True:
                event = await self._events.get()
                assert not isinstance(event, SessionFailed), event
                self._note(event)
                if isinstance(event, wanted):
                    return event

    def _note(self, event: Event) -> None:
        if isinstance(event, Assigned):
            for each in event.partitions:
                self.partitions[each.topic, each.partition] = each
        elif isinstance(event, Fetched):
            for partition, (epoch, records) in event.batches.items():
                offsets = self.fetched.setdefault((partition, epoch), [])
                offsets += [record.offset() for record in records]

    async def join(self) -> None:
        """Subscribe, and wait for partitions."""
        self.session.subscribe({self.topic: 2})
        while not self.partitions:
            await self.event(Assigned)

    async def fetch(self, partition: TopicPartition, epoch: int, count: int) -> list[int]:
        """Wait for so many messages of an epoch; return their offsets."""
        while len(self.fetched.get((partition, epoch), ())) < count:
            await self.event(Fetched)
        return self.fetched[partition, epoch]


class Stage(ABC):
    """A topic of two partitions with ``MESSAGES`` each, and a group."""

    topic: str

    @abstractmethod
    def open(self) -> Member:
        """Open a session of the group."""

    @abstractmethod
    async def revoke(self, member: Member) -> tuple[Revoked, Callable[[], Awaitable[AssignedPartition]]]:
        """Make the group revoke a partition of the member.

        Returns:
            The event, and a function that waits, after the release, for the next assignment of one of
            the partitions, to whichever member.
        """


async def the_first_subscription_joins_and_begins_at_the_oldest_message(stage: Stage) -> None:
    member = stage.open()
    await member.join()
    assert set(member.partitions) == {(stage.topic, 0), (stage.topic, 1)}
    for start in member.partitions.values():
        assert (start.position, start.metadata, start.new) == (0, "", True)
    epochs = {start.epoch for start in member.partitions.values()}
    assert len(epochs) == 2
    assert member.session.next_epoch() not in epochs
    assert member.session.next_epoch() != member.session.next_epoch()
    await member.session.close((), PATIENCE)


async def messages_come_in_order_under_the_epoch_of_their_assignment(stage: Stage) -> None:
    member = stage.open()
    await member.join()
    for partition, start in member.partitions.items():
        offsets = await member.fetch(partition, start.epoch, ROOM)
        assert offsets == list(range(len(offsets)))
    assert {epoch for _, epoch in member.fetched} == {each.epoch for each in member.partitions.values()}
    await member.session.close((), PATIENCE)


async def credit_brings_the_rest_of_a_partition(stage: Stage) -> None:
    member = stage.open()
    await member.join()
    partition, epoch = (stage.topic, 0), member.partitions[stage.topic, 0].epoch
    credited = 0
    while credited < MESSAGES:
        offsets = await member.fetch(partition, epoch, credited + 1)
        member.session.credit(partition, len(offsets) - credited, 10 * (len(offsets) - credited))
        credited = len(offsets)
    assert member.fetched[partition, epoch] == list(range(MESSAGES))
    await member.session.close((), PATIENCE)


async def a_seek_fetches_again_under_its_own_epoch(stage: Stage) -> None:
    member = stage.open()
    await member.join()
    partition, first = (stage.topic, 1), member.partitions[stage.topic, 1].epoch
    await member.fetch(partition, first, ROOM)
    epoch = member.session.next_epoch()
    member.session.seek(partition, 5, epoch)
    offsets = await member.fetch(partition, epoch, 3)
    assert offsets == list(range(5, 5 + len(offsets)))
    before = len(member.fetched[partition, first])
    again = member.session.next_epoch()
    member.session.seek(partition, 0, again)
    offsets = await member.fetch(partition, again, 3)
    assert offsets == list(range(len(offsets)))
    assert len(member.fetched[partition, first]) == before, "the first epoch is over"
    await member.session.close((), PATIENCE)


async def a_commit_is_answered_once_and_the_next_session_begins_there(stage: Stage) -> None:
    member = stage.open()
    await member.join()
    for offset in (3, 7):
        member.session.commit([Commit(stage.topic, 0, offset, "BB")])
        assert await member.event(Committed) == Committed(None, {})
    await member.session.close([Commit(stage.topic, 1, 9, "")], PATIENCE)
    after = stage.open()
    await after.join()
    found = {
        number: (start.position, start.metadata, start.new) for (_, number), start in after.partitions.items()
    }
    assert found == {0: (7, "BB", False), 1: (9, "", False)}
    await after.session.close((), PATIENCE)


async def a_revoked_partition_goes_on_where_it_was_released(stage: Stage) -> None:
    member = stage.open()
    await member.join()
    revoked, next_assignment = await stage.revoke(member)
    assert set(revoked.partitions) <= set(member.partitions) and revoked.partitions
    commits = [Commit(topic, number, 11, "BB") for topic, number in revoked.partitions]
    member.session.release(revoked, commits)
    start = await next_assignment()
    assert (start.topic, start.partition) in revoked.partitions
    assert (start.position, start.metadata, start.new) == (11, "BB", False)
    await member.session.close((), PATIENCE)


CHECKS: tuple[Callable[[Stage], Awaitable[None]], ...] = (
    the_first_subscription_joins_and_begins_at_the_oldest_message,
    messages_come_in_order_under_the_epoch_of_their_assignment,
    credit_brings_the_rest_of_a_partition,
    a_seek_fetches_again_under_its_own_epoch,
    a_commit_is_answered_once_and_the_next_session_begins_there,
    a_revoked_partition_goes_on_where_it_was_released,
)

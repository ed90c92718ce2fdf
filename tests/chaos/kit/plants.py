"""Defects on purpose, planted into the daemon: each must make the checker find something.

They change what passes between the parts (records, offers, commits), not the parts' own state.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from pixy.engine.consume.offers import OfferBook
from pixy.engine.consume.partition_messages import Records
from pixy.engine.consume.partition_owner import PartitionOwner
from pixy.engine.instances.changes import Changes
from pixy.kafka import library_calls, producer, returned_messages
from pixy.kafka.consumer import Commit
from pixy.kafka.gated_sender import GatedSender
from pixy.membership.kafka.session import KafkaSession

EACH = 20
"""A plant acts each twentieth time when it could, so that a run of seconds meets it for certain."""


def _counting() -> Callable[[], bool]:
    """Return a function that is true each :data:`EACH`-th time."""
    turns = itertools.count(1)
    return lambda: next(turns) % EACH == 0


def loss() -> None:
    """Lose a fetched record: the next one makes it look like a gap in the log."""
    receive, acts = PartitionOwner.on_receive, _counting()

    def losing(self: Any, message: Any) -> Any:
        if type(message) is Records and acts():
            message = dataclasses.replace(message, records=message.records[1:])
        return receive(self, message)

    PartitionOwner.on_receive = losing  # type: ignore[method-assign]


def early_commit() -> None:
    """Commit ten messages more than were acknowledged."""
    commit, acts = KafkaSession.commit, _counting()

    def early(self: Any, commits: Iterable[Commit]) -> None:
        batch = tuple(commits)
        if acts():
            batch = tuple(Commit(each.topic, each.partition, each.offset + 10, "") for each in batch)
        commit(self, batch)

    KafkaSession.commit = early  # type: ignore[method-assign]


def reorder() -> None:
    """Offer a message only after its ack timeout, as if a client had it."""
    offer, acts = OfferBook.offer, _counting()

    def forgetting(self: Any, now: float, client: str = "") -> Any:
        found = offer(self, now, client)
        return offer(self, now, client) if found is not None and acts() else found

    OfferBook.offer = forgetting  # type: ignore[method-assign]


def stall() -> None:
    """Announce no message of each fourth partition of a group, whichever owner here has it."""
    start, offerable = PartitionOwner.on_start, OfferBook.offerable
    seen: dict[Any, bool] = {}
    silent: weakref.WeakSet[Any] = weakref.WeakSet()

    def starting(self: Any) -> Any:
        done = start(self)
        if seen.setdefault((self._group, self._partition), len(seen) % 4 == 0):
            silent.add(self._book)
        return done

    def announcing(self: Any, now: float) -> int:
        found = offerable(self, now)
        return 0 if self in silent else found

    PartitionOwner.on_start = starting  # type: ignore[method-assign]
    OfferBook.offerable = announcing  # type: ignore[method-assign]


def stale_partitions() -> None:
    """Go on with the partitions that a topic had at first: what was chosen for one that is gone is refused, or lost."""
    for module in (library_calls, producer, returned_messages):
        module.may_move = lambda *_: False  # type: ignore[attr-defined]
    GatedSender.found = lambda *_: None  # type: ignore[method-assign]


def idle_instances() -> None:
    """Consume nothing any more in an instance that begins again and fails to choose its partitions at the first attempt."""
    failed = Changes.failed

    def giving_up(self: Any, wanted: Any, error: Any) -> bool:
        return wanted is not None and failed(self, wanted, error)

    Changes.failed = giving_up  # type: ignore[method-assign]


PLANTS: dict[str, Callable[[], None]] = {
    "loss": loss,
    "early-commit": early_commit,
    "reorder": reorder,
    "stall": stall,
    "stale-partitions": stale_partitions,
    "idle-instances": idle_instances,
}

__all__ = ["PLANTS"]

"""Defects on purpose, planted into the daemon: each must make the checker find something.

They change what passes between the parts (records, offers, commits), not the parts' own state.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any

from pixy.engine.consume.offers import OfferBook
from pixy.engine.consume.partition_messages import Records
from pixy.engine.consume.partition_owner import PartitionOwner
from pixy.kafka.consumer import Commit
from pixy.membership.kafka.session import KafkaSession

RARELY = 1 / 50
"""How often a plant acts, of the times when it could."""


def loss() -> None:
    """Lose a fetched record: the next one makes it look like a gap in the log."""
    receive = PartitionOwner.on_receive

    def losing(self: Any, message: Any) -> Any:
        if type(message) is Records and random.random() < RARELY:
            message = dataclasses.replace(message, records=message.records[1:])
        return receive(self, message)

    PartitionOwner.on_receive = losing  # type: ignore[method-assign]


def early_commit() -> None:
    """Commit ten messages more than were acknowledged."""
    commit = KafkaSession.commit

    def early(self: Any, commits: Iterable[Commit]) -> None:
        batch = tuple(commits)
        if random.random() < RARELY:
            batch = tuple(Commit(each.topic, each.partition, each.offset + 10, "") for each in batch)
        commit(self, batch)

    KafkaSession.commit = early  # type: ignore[method-assign]


def reorder() -> None:
    """Offer a message only after its ack timeout, as if a client had it."""
    offer = OfferBook.offer

    def forgetting(self: Any, now: float) -> Any:
        found = offer(self, now)
        return offer(self, now) if found is not None and random.random() < RARELY else found

    OfferBook.offer = forgetting  # type: ignore[method-assign]


def stall() -> None:
    """Announce no messages of one partition any more, for as long as it is assigned."""
    offerable = OfferBook.offerable
    silent: list[Any] = []

    def announcing(self: Any, now: float) -> int:
        found = offerable(self, now)
        if found and not silent and random.random() < RARELY:
            silent.append(self)
        return 0 if self in silent else found

    OfferBook.offerable = announcing  # type: ignore[method-assign]


PLANTS: dict[str, Callable[[], None]] = {
    "loss": loss,
    "early-commit": early_commit,
    "reorder": reorder,
    "stall": stall,
}

__all__ = ["PLANTS"]

"""The release of revoked partitions: the session waits, inside Kafka's callback, for the last positions of their owners.

A part of the group's actor, not an actor: it runs inside the actor's handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pixy.engine.consume.owned_partitions import OwnedPartitions
from pixy.engine.consume.rejoining import RejoiningSession
from pixy.kafka.consumer import Commit
from pixy.membership import Revoked
from pixy.wire.types import TopicPartition


class Releases:
    """The latest revocation that the session waits for, if any.

    Args:
        session: gets the last positions.
        partitions: those of this member.
        ended: called when no release is awaited any more.
    """

    def __init__(
        self, session: RejoiningSession, partitions: OwnedPartitions, ended: Callable[[], None]
    ) -> None:
        self._session = session
        self._partitions = partitions
        self._ended = ended
        self._event: Revoked | None = None
        self._waited: set[TopicPartition] = set()
        """Those of the event that were not assigned again."""

    def begin(self, event: Revoked) -> None:
        """Wait for the drains of a revocation; the session has given up an earlier one."""
        self.give_up(self._waited)
        self._event, self._waited = event, set(event.partitions)

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop those that still drain: the session is past its wait for their release, without a commit."""
        given_up = self._waited.intersection(partitions)
        self._waited -= given_up
        if not self._waited:
            self._event = None
        if given_up:
            self._partitions.lose(tuple(given_up))

    def forget(self) -> None:
        """Release nothing: nobody waits for it any more."""
        self._event = None
        self._waited.clear()

    def release_drained(self) -> None:
        """Release the revoked partitions once all of them have drained, whatever else drains because the group leaves."""
        if self._event is None:
            return
        commits = self._partitions.take_drained(self._waited)
        if commits is not None:
            self.release(commits)

    def release(self, commits: list[Commit]) -> None:
        """Release the revoked partitions, if the session waits for that.

        Args:
            commits: their last positions.
        """
        event = self._event
        self.forget()
        self._ended()
        if event is not None:
            self._session.release(event, commits)


__all__ = ["Releases"]

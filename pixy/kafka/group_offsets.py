"""Reads and commits a group's offsets, and removes members, through our own wire library. Blocking.

confluent-kafka (2.16) does not store and read metadata correctly. It includes the C string's terminator in a
commit's metadata: it stores ``"BK\\0"``, and even ``"\\0"`` for none. And it looks for a terminator in
metadata that other clients have stored, and returns the memory behind them up to one. Either way neither this
daemon nor the Go original understands the sparse acks, and acknowledged messages are delivered again.
Besides, librdkafka sends no negative offsets, and it ends the process (a null pointer) when a coordinator
answers ``AdminClient.list_consumer_group_offsets`` with an error that asks to find the coordinator again.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from pixy.errors import KafkaError
from pixy.kafka.brokers import bootstrap, translated, wire_options
from pixy.kafka.errors import TRANSIENT_CODES, error_of
from pixy.kafka.settings import Settings
from pixy.kafka.topics import Topics
from pixy.wire.client import GroupClient, Member
from pixy.wire.connection import Broker
from pixy.wire.errors import ErrorCode
from pixy.wire.group import NOBODY, GroupOffset
from pixy.wire.types import TopicPartition

T = TypeVar("T")

_MEMBER = b"CGMDv2:"
_BACKOFF, _MAX_BACKOFF = 0.05, 1.0
_LEAVES = -1
"""The epoch in the last heartbeat of a member that leaves (KIP-848)."""

UNKNOWN = -1
"""Kafka's number for no leader epoch."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset, None if there is none, its metadata, and the leader epoch that the commit named."""

    offset: int | None
    metadata: str
    epoch: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset to commit. ``epoch`` is the leader epoch of the last message of the log that is known to whoever commits (KIP-320)."""

    topic: str
    partition: int
    offset: int
    metadata: str
    epoch: int = UNKNOWN


Check = Callable[["GroupOffsets", tuple[Commit, ...]], tuple[Commit, ...]]
"""Returns which of the commits may be made, or others in their place. Those of partitions that it leaves out fail, as if Kafka had
refused them because the partition does not exist. Raises PixyError, which fails the commit.
"""


class GroupOffsets:
    """One connection to a group's coordinator, opened when it is needed. For one thread at a time.

    Args:
        settings: a client's settings in librdkafka's terms; see :mod:`pixy.kafka.settings`.
        group: the id of the group.
    """

    def __init__(self, settings: Settings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._client: GroupClient | None = None

    def commit(
        self,
        commits: Iterable[Commit],
        member: Member = NOBODY,
        *,
        patience: float = 0.0,
        check: Check | None = None,
    ) -> dict[TopicPartition, KafkaError]:
        """Commit offsets. Return the errors by partition.

        Args:
            commits: what to commit.
            member: commits as this member; the default commits for a group without members.
            patience: seconds to try again while the coordinator cannot be found. A coordinator that has moved
                or closed the connection is looked up once more in any case.
            check: called before each attempt, with this object and the commits; returns what may be committed, which
                may have changed while the coordinator was looked for.

        Raises:
            KafkaError: the coordinator could not be reached, or refused everything for one reason.
        """
        batch = tuple(commits)

        def attempt(client: GroupClient) -> dict[TopicPartition, KafkaError]:
            checked = batch if check is None or not batch else check(self, batch)
            wanted = {
                (each.topic, each.partition): (each.offset, each.metadata, each.epoch) for each in checked
            }
            errors = left_out(batch, checked)
            if not wanted:
                return errors
            codes = client.commit_offsets(wanted, member)
            errors |= {tp: error_of(code) for tp, code in codes.items() if code}
            _raise_transient(errors.values())
            return errors

        return self._patiently(attempt, patience)

    def committed(
        self, partitions: Iterable[TopicPartition], *, patience: float = 0.0
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of partitions, with -1 and -2 where somebody has stored them.

        Args:
            partitions: which.
            patience: seconds to try again after errors that pass.

        Raises:
            KafkaError: the coordinator could not be reached, or refused.
        """
        found, errors = self.fetch(partitions, patience=patience)
        for error in errors.values():
            raise error
        return found

    def all_committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of the group, without those that the coordinator refused.

        Raises:
            KafkaError: the coordinator could not be reached, or refused everything for one reason.
        """

        def attempt(client: GroupClient) -> dict[TopicPartition, CommittedOffset]:
            found = client.fetch_offsets(None)
            if found.error_code:
                raise error_of(found.error_code)
            return {tp: _committed(each) for tp, each in found.offsets.items() if not each.error_code}

        return self._patiently(attempt, 0.0)

    def fetch(
        self, partitions: Iterable[TopicPartition], *, patience: float = 0.0
    ) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, KafkaError]]:
        """Return the committed offsets of partitions, and the errors of those that the coordinator refused.

        Args:
            partitions: which.
            patience: seconds to try again after errors that pass.

        Raises:
            KafkaError: the coordinator could not be reached, or refused everything for one reason.
        """
        wanted = list(partitions)

        def attempt(
            client: GroupClient,
        ) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, KafkaError]]:
            found = client.fetch_offsets(wanted)
            if found.error_code:
                raise error_of(found.error_code)
            answers = {tp: found.of(*tp) for tp in wanted}
            errors = {tp: error_of(each.error_code) for tp, each in answers.items() if each.error_code}
            _raise_transient(errors.values())
            return {tp: _committed(each) for tp, each in answers.items() if not each.error_code}, errors

        return self._patiently(attempt, patience)

    def topics(self, names: Iterable[str], *, patience: float = 0.0) -> Topics:
        """Describe topics as the coordinator knows them; the request creates none.

        The coordinator deletes the committed offsets of a topic when it learns that the topic was deleted. So a
        commit that follows an answer with the old id is deleted too, unless the topic goes in between.

        Args:
            names: their names.
            patience: seconds to try again after errors that pass.

        Raises:
            KafkaError: the coordinator could not be reached.
        """
        wanted = {"Topics": [{"Name": each} for each in names], "AllowAutoTopicCreation": False}
        return self._patiently(lambda client: Topics(client.call("Metadata", wanted)), patience)

    def leave(self, member: Member, *, classic: bool) -> int:
        """Have the coordinator remove a member; return the code of its answer.

        Args:
            member: who leaves.
            classic: whether the group's protocol is the one before KIP-848.

        Raises:
            KafkaError: the coordinator could not be reached.
        """

        def attempt(client: GroupClient) -> int:
            if classic:
                answer = client.leave(member)
                codes = [answer["ErrorCode"], *(each["ErrorCode"] for each in answer.get("Members") or ())]
                return next(filter(None, codes), 0)
            leaving = {"GroupId": self._group, "MemberId": member.member_id, "MemberEpoch": _LEAVES}
            return int(client.call("ConsumerGroupHeartbeat", leaving)["ErrorCode"])

        return self._patiently(attempt, 0.0)

    @property
    def coordinator(self) -> Broker | None:
        """The coordinator, as far as it is known."""
        return None if self._client is None else self._client.broker

    def close(self) -> None:
        """Close the connection, if there is one; the next call opens another."""
        if self._client is not None:
            self._client.close()

    def _patiently(self, attempt: Callable[[GroupClient], T], patience: float) -> T:
        deadline, pause = time.monotonic() + patience, 0.0
        while True:
            try:
                return self._once(attempt)
            except KafkaError as error:
                again = not pause or time.monotonic() + pause < deadline
                if error.code not in TRANSIENT_CODES or not again:
                    raise
            if self._client is not None:
                self._client.forget()
            time.sleep(pause)
            pause = min(_MAX_BACKOFF, pause * 2 or _BACKOFF)

    def _once(self, attempt: Callable[[GroupClient], T]) -> T:
        with translated():
            if self._client is None:
                self._client = GroupClient(
                    bootstrap(self._settings), self._group, **wire_options(self._settings)
                )
            return attempt(self._client)


def _committed(found: GroupOffset) -> CommittedOffset:
    # An earlier version of this daemon stored the terminator as well.
    metadata = (found.metadata or "").rstrip("\0")
    return CommittedOffset(None if found.offset == -1 else found.offset, metadata, found.leader_epoch)


def left_out(batch: Iterable[Commit], checked: Iterable[Commit]) -> dict[TopicPartition, KafkaError]:
    """Return the errors of the commits that a :data:`Check` has left out.

    Args:
        batch: the commits that were wanted.
        checked: those of them that the check has returned.
    """
    made = {(each.topic, each.partition) for each in checked}
    wanted = ((each.topic, each.partition) for each in batch)
    return {each: error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for each in wanted if each not in made}


def _raise_transient(errors: Iterable[KafkaError]) -> None:
    for error in errors:
        if error.code in TRANSIENT_CODES:
            raise error


def parse_member(data: bytes) -> Member:
    """Parse a consumer's membership from librdkafka's ``rd_kafka_consumer_group_metadata_write``.

    The format is ``CGMDv2:``, the generation (int32 in the machine's byte order), group and member id, each
    terminated by NUL, a byte that is 1 if there is no instance id, and the instance id, terminated by NUL.

    Raises:
        ValueError: the data has another format.
    """
    if not data.startswith(_MEMBER):
        raise ValueError(f"librdkafka's group metadata have another format: {data[:16]!r}")
    at = len(_MEMBER) + 4
    (generation,) = struct.unpack_from("=i", data, len(_MEMBER))
    _group, member, rest = data[at:].split(b"\0", 2)
    instance = None if rest[:1] == b"\1" else rest[1:].rstrip(b"\0").decode()
    return Member(member.decode(), generation, instance)

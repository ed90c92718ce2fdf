"""Messages of the :class:`~pixy.engine.admin.Admin`, and the types of its replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from actors import Request
from pixy.engine.consume import sparse_acks
from pixy.kafka.group_members import GroupMember, ListedGroup
from pixy.kafka.topic_changes import NewTopic
from pixy.kafka.topics import PartitionInfo
from pixy.wire.types import TopicPartition

R = TypeVar("R")

NEWEST, OLDEST = -1, -2
"""Special offsets: the end and the beginning of a partition."""

Consumers = dict[str, dict[str, list[int]]]
"""Group to client to sorted partitions."""


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """A partition's offsets and a group's committed offset in it.

    Attributes:
        begin: the oldest offset.
        end: the offset after the newest.
        offset: the committed one; -1 if there is none, or as :class:`SetOffsets` stored it.
        metadata: what was committed with it.
    """

    partition: int
    begin: int
    end: int
    offset: int
    metadata: str

    @property
    def count(self) -> int:
        """The number of messages in the partition."""
        return self.end - self.begin

    @property
    def lag(self) -> int:
        """The number of messages not consumed; 0 without a commit, negative for a commit beyond the end."""
        if self.offset == NEWEST:
            return 0
        return self.count if self.offset == OLDEST else self.end - self.offset

    @property
    def sparse_acks(self) -> str:
        """The metadata as ranges relative to the offset; empty if the metadata is something else."""
        return sparse_acks.to_text(self.offset, self.metadata)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; a part that was not asked for is None.

    Attributes:
        id: of one topic that was asked for; empty if the broker gives none.
    """

    name: str
    partitions: tuple[PartitionInfo, ...] | None
    config: dict[str, str] | None
    id: str = ""


class AdminRequest(Request[R]):
    """A request to Kafka, which an :class:`~pixy.engine.admin.Admin` serves in a task of its own."""

    __slots__ = ()


class AdminChange(AdminRequest[None]):
    """A request that must not be made twice, and that ``admin_changes`` may forbid."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GetOffsets(AdminRequest[list[PartitionOffset]]):
    """Ask for a group's offsets in each partition of a topic."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class SetOffsets(AdminRequest[None]):
    """Commit offsets for a group that nobody consumes.

    Attributes:
        offsets: (partition, offset, metadata). Offsets -1 and -2 are stored as they are. -1 is none: the group
            begins there as a new one would, or at the oldest message if it knows other partitions of the topic.
            -2 is the beginning.
    """

    group: str
    topic: str
    offsets: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class GetTopics(AdminRequest[list[TopicInfo]]):
    """Ask for all topics or for one, by name.

    Attributes:
        topic: None for all.
        with_partitions: include the partitions.
        with_config: include the topic's own settings.
    """

    topic: str | None = None
    with_partitions: bool = False
    with_config: bool = False


@dataclass(frozen=True, slots=True)
class GetConsumers(AdminRequest[Consumers]):
    """Ask who consumes a topic: the members of one group, or of all groups if ``group`` is empty."""

    topic: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class HasMembers(AdminRequest[bool]):
    """Ask whether a group has members in Kafka's own protocol."""

    group: str


@dataclass(frozen=True, slots=True)
class HasCommits(AdminRequest[bool]):
    """Ask whether a group has committed an offset of a topic."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class GetBrokers(AdminRequest[list[int]]):
    """Ask for the ids of the brokers, sorted.

    Attributes:
        once: fail at once if no broker answers, instead of trying again for a while.
    """

    once: bool = False


@dataclass(frozen=True, slots=True)
class GetBounds(AdminRequest[tuple[int, int]]):
    """Ask for the oldest offset of a partition and the offset of the next record to be written."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class FindOffsets(AdminRequest[dict[TopicPartition, int]]):
    """Ask for the offset at a time in each partition.

    Attributes:
        times: milliseconds since 1970, for the first offset whose record is not older, or the end if there is
            none; -1 for the end; -2 for the beginning.
    """

    times: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CreateTopic(AdminChange):
    """Create a topic, or check with ``validate_only`` whether it could be created."""

    topic: NewTopic
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterTopic(AdminChange):
    """Change a topic.

    Attributes:
        values: settings to set.
        defaults: names of settings that go back to the broker's default.
        partitions: how many it shall have; 0 leaves them.
        validate_only: change nothing.
    """

    topic: str
    values: Mapping[str, str]
    defaults: tuple[str, ...] = ()
    partitions: int = 0
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic(AdminChange):
    """Delete a topic with all its messages."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteGroup(AdminChange):
    """Delete a group without members, with its offsets."""

    group: str


@dataclass(frozen=True, slots=True)
class ListGroups(AdminRequest[list[ListedGroup]]):
    """Ask for all consumer groups, sorted by name."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group with its offsets.

    Attributes:
        state: in Kafka's words.
        members: with what is assigned to each.
        offsets: of each topic that it has committed offsets in, sorted by name and partition.
    """

    group: str
    state: str
    members: tuple[GroupMember, ...]
    offsets: dict[str, list[PartitionOffset]]


@dataclass(frozen=True, slots=True)
class DescribeGroup(AdminRequest[GroupView]):
    """Ask for a group's state, members and offsets."""

    group: str


__all__ = [
    "NEWEST",
    "OLDEST",
    "AdminChange",
    "AdminRequest",
    "AlterTopic",
    "Consumers",
    "CreateTopic",
    "DeleteGroup",
    "DeleteTopic",
    "DescribeGroup",
    "FindOffsets",
    "GetBounds",
    "GetBrokers",
    "GetConsumers",
    "GetOffsets",
    "GetTopics",
    "GroupView",
    "ListGroups",
    "PartitionOffset",
    "SetOffsets",
    "TopicInfo",
]

"""The original's range assignment: every member computes the same one from the same registrations. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pixy.wire.types import TopicPartition


def assign_ranges(partitions: Collection[int], members: Collection[str]) -> dict[str, list[int]]:
    """Divide a topic's partitions into contiguous ranges, one for each member in the order of their bytes.

    The first members get one more where the division leaves a rest: 7 partitions and 3 members make 3, 2, 2.

    Args:
        partitions: their numbers.
        members: the ids of the members that subscribe to the topic.

    Returns:
        The partitions of each member; an empty list for one that gets none.
    """
    numbers = sorted(partitions)
    least, rest = divmod(len(numbers), len(members)) if members else (0, 0)
    ranges: dict[str, list[int]] = {}
    begin = 0
    for rank, member in enumerate(sorted(members, key=str.encode)):
        end = begin + least + (rank < rest)
        ranges[member] = numbers[begin:end]
        begin = end
    return ranges


def partitions_of(
    member: str, subscriptions: Mapping[str, Collection[str]], counts: Mapping[str, int]
) -> set[TopicPartition]:
    """Return the partitions that one member of a group has to claim.

    Args:
        member: its id.
        subscriptions: the topics of each member.
        counts: the number of partitions of each topic; a topic without one is left out.
    """
    wanted: set[TopicPartition] = set()
    for topic in subscriptions.get(member, ()):
        sharing = [each for each, topics in subscriptions.items() if topic in topics]
        ranges = assign_ranges(range(counts.get(topic, 0)), sharing)
        wanted.update((topic, number) for number in ranges[member])
    return wanted

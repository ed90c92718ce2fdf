"""A member's assignment, taken over and told once."""

from __future__ import annotations

from pixy.tap.groups import Group, Member, Partition
from pixy.tap.registry import Registry


def report_assignment(
    registry: Registry, group: Group, member: Member, found: frozenset[Partition], at: float, generation: int
) -> None:
    """Take over a member's assignment, and emit ``assignment`` if it is another than before.

    Args:
        registry: the registry.
        group: the member's group.
        member: the member.
        found: its partitions, by topic name or id; of a Streams group its tasks.
        at: when, in seconds since the epoch.
        generation: the generation, or the member's epoch, that it belongs to.
    """
    if found == member.partitions:
        return
    member.partitions = found
    show = registry.topics.show
    named: dict[str, list[int]] = {}
    for topic, partition in found:
        named.setdefault(show(topic), []).append(partition)
    registry.emit(
        "assignment",
        at,
        group=group.id,
        generation=generation,
        member=member.id,
        client_id=member.client_id,
        partitions={topic: sorted(named[topic]) for topic in sorted(named)},
        path=member.path.value,
    )


__all__ = ["report_assignment"]

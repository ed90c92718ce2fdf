"""Find anomalies of a stable group."""

from __future__ import annotations

from collections.abc import Iterator

from pixy.tap.groups import PROBABLY_TIMED_OUT, Group, Partition
from pixy.tap.topics import Topics

UNOWNED, UNSEEN, DOUBLE, MIXED, SPLIT = (
    "unowned partitions",
    "partitions of members elsewhere",
    "partition with two owners",
    "mixed assignors",
    "generation split",
)
_SHOWN = 20


def anomalies(group: Group, topics: Topics) -> Iterator[tuple[str, str]]:
    """Iterate over a group's anomalies as (kind, detail). The group must not be rebalancing.

    Args:
        group: the group.
        topics: names and numbers of partitions.
    """
    members = group.alive()
    if not members or group.kind in {"offsets", "share", "streams"}:
        return  # in a share group partitions have several owners; the tasks of a Streams group are no partitions
    owners: dict[Partition, list[str]] = {}
    for (topic, partition), member in group.owners():
        owners.setdefault((topics.resolve(topic), partition), []).append(member.id)
    silent = {
        (topics.resolve(topic), partition)
        for gone in group.gone
        # The coordinator has begun nothing new without it: the guess may be wrong, or early.
        if gone.how == PROBABLY_TIMED_OUT and gone.member.generation == group.generation
        for topic, partition in gone.member.partitions or ()
    }
    double = sorted(
        _show(topics, each) + f": {', '.join(names)}" for each, names in owners.items() if len(names) > 1
    )
    if double:
        yield DOUBLE, _list(double)
    # A member that joined before the tap started, or has an unknown protocol type, may own any partition.
    if all(member.partitions is not None for member in members):
        unowned = [
            _show(topics, (topic, partition))
            for topic in sorted(group.subscribed())
            for partition in range(topics.count(topic) or 0)
            if (topic, partition) not in owners and (topic, partition) not in silent
        ]
        if unowned:
            # A KIP-848 coordinator gives each partition to a member: the tap does not see that one.
            yield (UNSEEN if group.kind == "consumer" else UNOWNED), _list(unowned)
    assignors = {member.assignors for member in members if member.assignors}
    if len(assignors) > 1:
        yield MIXED, " / ".join(sorted(", ".join(each) for each in assignors))
    behind = [m.id for m in members if m.seen_here and 0 <= m.generation < group.generation]
    if behind:
        yield SPLIT, f"not in generation {group.generation}: {_list(behind)}"


def _show(topics: Topics, partition: Partition) -> str:
    return f"{topics.show(partition[0])}-{partition[1]}"


def _list(texts: list[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

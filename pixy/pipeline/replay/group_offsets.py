"""Translate a group's committed offsets to the topic that a replay has written."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def last_by(table: pa.Table, group: str, value: str) -> dict[int, int]:
    """Find the highest value of each group in a map of offsets.

    Args:
        table: the map.
        group: column to group by.
        value: column to take the maximum of.
    """
    found = table.group_by(group).aggregate([(value, "max")])
    return dict(zip(found.column(group).to_pylist(), found.column(f"{value}_max").to_pylist(), strict=True))


def translate_offset(table: pa.Table, committed: dict[int, int], starts: dict[int, int]) -> dict[int, int]:
    """Compute a group's offsets in the new topic.

    The result is exact where records kept their partition. With another partitioner each new partition
    starts at its first record that the group had not processed: nothing is lost, some may be consumed again.

    Args:
        table: the map.
        committed: the group's next offset, by old partition.
        starts: offset at which the replay began to write, by new partition.

    Returns:
        The group's next offset, by new partition.
    """
    todo = None
    for partition, offset in committed.items():
        mask = pc.and_(
            pc.equal(table.column("partition"), partition),
            pc.greater_equal(table.column("offset"), offset),
        )
        todo = mask if todo is None else pc.or_(todo, mask)
    known = pc.is_in(table.column("partition"), value_set=pa.array(list(committed), pa.int32()))
    if todo is None:
        return {}
    # A group has still to read the partitions that it never committed.
    todo = pc.or_(todo, pc.invert(known)) if len(starts) else todo
    open_ = table.filter(todo).group_by("new_partition").aggregate([("new_offset", "min")])
    found = {
        partition: offset + 1 for partition, offset in last_by(table, "new_partition", "new_offset").items()
    }
    found = {**starts, **found}
    found.update(
        zip(
            open_.column("new_partition").to_pylist(),
            open_.column("new_offset_min").to_pylist(),
            strict=True,
        )
    )
    return found

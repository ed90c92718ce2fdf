"""Read a lake's table with other readers of Delta tables, to compare what they see with the lake's history."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from tests.integration.pipeline.support import World

Position = tuple[str, int, int]
"""Topic, partition, offset."""


def delta_rows(world: World) -> Any:
    return world.spark.read.format("delta").load(str(world.folder / "lake" / "data"))


def read_by_spark(world: World) -> list[tuple[Position, int]]:
    """Read positions and content hashes with Delta's reader for Spark; sorted, so duplicates show."""
    return sorted(
        ((row["topic"], row["partition"], row["offset"]), row["hash"]) for row in delta_rows(world).collect()
    )


def read_by_arrow(world: World) -> list[tuple[Position, int]]:
    """Read the same with delta-rs and pyarrow."""
    columns = ["topic", "partition", "offset", "hash"]
    table = DeltaTable(str(world.folder / "lake" / "data")).to_pyarrow_table(columns=columns)
    return sorted(((row["topic"], row["partition"], row["offset"]), row["hash"]) for row in table.to_pylist())

"""Read the Delta table of a lake, to compare it with the lake's manifests."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.pipeline.support import World

Position = tuple[str, int, int]
"""Topic, partition, offset."""


def delta_rows(world: World) -> Any:
    return world.spark.read.format("delta").load(str(world.folder / "lake" / "data"))


def read_by_delta(world: World) -> list[tuple[Position, int]]:
    """Read positions and content hashes with Delta's reader; sorted, so duplicates show."""
    return sorted(
        ((row["topic"], row["partition"], row["offset"]), row["hash"]) for row in delta_rows(world).collect()
    )


def read_by_manifests(world: World) -> list[tuple[Position, int]]:
    lake = world.lake()
    files = [lake.path(path) for path in lake.state().files]
    found = world.spark.read.parquet(*files).select("topic", "partition", "offset", "hash").collect()
    return sorted(((row["topic"], row["partition"], row["offset"]), row["hash"]) for row in found)


def delta_commits(world: World) -> list[int]:
    """Read the transaction versions in Delta's log: the entries it has committed."""
    found = []
    for path in sorted((world.folder / "lake" / "data" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        found += [action["txn"]["version"] for action in actions if "txn" in action]
    return found

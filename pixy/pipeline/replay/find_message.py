"""Finds one message in the maps of replays: where its copies are, and what it is a copy of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake.manifest_v1 import parse_object
from pixy.pipeline.replay.state import FORMAT, MAP, PLAN

MOST_REPLAYS: Final = 1000
"""State folders that are looked into."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A record and its copy.

    Attributes:
        state: the folder of the replay.
        topic: of the record in the lake, with ``partition`` and ``offset``.
        to: the topic of the copy, with ``new_partition`` and ``new_offset``.
        noted: seconds since 1970 at which the map had it.
    """

    state: str
    topic: str
    partition: int
    offset: int
    to: str
    new_partition: int
    new_offset: int
    noted: float


def find_copies(replays: str, topic: str, partition: int, offset: int) -> tuple[list[Copy], list[Copy]]:
    """Return the copies of a message, and the records that it is a copy of.

    Args:
        replays: the folder with the replays' state folders, or one of those.
        topic: of the message.
        partition: of the message.
        offset: of the message.

    Raises:
        LakeError: a plan or a map cannot be read.
    """
    copies: list[Copy] = []
    origins: list[Copy] = []
    for folder in _states(Path(replays)):
        try:
            plan = parse_object((folder / PLAN).read_bytes(), str(folder / PLAN), FORMAT)
        except OSError as error:
            raise LakeError(f"{folder / PLAN} cannot be read: {error.strerror}") from error
        asked = plan.get("asked", {})
        if asked.get("topic") == topic:
            copies += _rows(folder, asked, [("partition", "=", partition), ("offset", "=", offset)])
        if asked.get("to") == topic:
            origins += _rows(folder, asked, [("new_partition", "=", partition), ("new_offset", "=", offset)])
    return copies, origins


def _states(folder: Path) -> list[Path]:
    if (folder / PLAN).is_file():
        return [folder]
    return sorted(each.parent for each in folder.glob(f"*/{PLAN}"))[:MOST_REPLAYS]


def _rows(folder: Path, asked: dict[str, Any], wanted: list[tuple[str, str, int]]) -> list[Copy]:
    found: list[Copy] = []
    for part in sorted((folder / MAP).glob("part-*.parquet")):
        try:
            noted = part.stat().st_mtime
            rows = pq.read_table(part, filters=wanted).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise LakeError(f"{part} cannot be read: {error}") from error
        found += [
            Copy(
                str(folder), asked["topic"], each["partition"], each["offset"],
                asked["to"], each["new_partition"], each["new_offset"], noted,
            )
            for each in rows
        ]  # fmt: skip
    return found


__all__ = ["MOST_REPLAYS", "Copy", "find_copies"]

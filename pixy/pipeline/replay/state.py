"""What a replay has done: its plan, and the map of old to new offsets, kept so that it can go on.

The map is a folder of Parquet files, each written aside and renamed; what is not in it may still have
been written to the topic, which a restart finds out by reading the topic's tail.
"""

from __future__ import annotations

import fcntl
import json
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pixy.pipeline.errors import LakeError, PipelineError
from pixy.pipeline.lake.manifest import parse_object
from pixy.pipeline.lake.store import LocalStore

FORMAT = "kafka-pixy-replay"
VERSION = 1
PLAN = "replay.json"
MAP = "map"
MATCHES = "matches.parquet"

MAP_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("new_partition", pa.int32()),
        ("new_offset", pa.int64()),
    ]
)


class ReplayState:
    """A folder that belongs to one replay."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).resolve()
        self._store = LocalStore(folder)
        self._rows: tuple[array[int], ...] = tuple(array("q") for _ in MAP_SCHEMA)
        self._parts = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process a replay."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = Path(self.folder, ".lock").open("wb")  # noqa: SIM115
        except OSError as error:
            raise LakeError(f"can not write {self.folder}: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(f"{self.folder} is in use: this replay runs already") from None
            yield

    # -- plan -------------------------------------------------------------------------------------

    def load(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        """The plan of an earlier run; None if there is none.

        Raises:
            PipelineError: it is the plan of another replay; the text says what differs.
        """
        try:
            plan = parse_object(self._store.read(PLAN), str(self.folder / PLAN), FORMAT)
        except FileNotFoundError:
            return None
        for name, value in asked.items():
            if plan["asked"].get(name) != value:
                raise PipelineError(
                    f"{self.folder} belongs to another replay: its {name} is "
                    f"{plan['asked'].get(name)!r}, this one's is {value!r}; give another --state"
                )
        return plan

    def save(self, plan: dict[str, Any]) -> None:
        """Keep the plan."""
        document = {"format": FORMAT, "version": VERSION, **plan}
        self._store.replace(PLAN, (json.dumps(document, indent=1) + "\n").encode())

    # -- map --------------------------------------------------------------------------------------

    def add(
        self, partition: int, offsets: Sequence[int], new_partition: int, new_offsets: Sequence[int]
    ) -> None:
        """Note that records of one partition were acknowledged in another."""
        columns = self._rows
        columns[0].extend([partition] * len(offsets))
        columns[1].extend(offsets)
        columns[2].extend([new_partition] * len(offsets))
        columns[3].extend(new_offsets)

    @property
    def unsaved(self) -> int:
        """Records noted and not on disk."""
        return len(self._rows[0])

    def flush(self) -> None:
        """Put what was noted on disk, as one more part of the map."""
        if not self.unsaved:
            return
        folder = self.folder / MAP
        folder.mkdir(exist_ok=True)
        if not self._parts:
            self._parts = len(list(folder.glob("part-*.parquet")))
        table = pa.table(
            [
                pa.array(memoryview(column), pa.int64()).cast(field.type)
                for column, field in zip(self._rows, MAP_SCHEMA, strict=True)
            ],
            schema=MAP_SCHEMA,
        )
        draft, target = folder / ".draft", folder / f"part-{self._parts:06d}.parquet"
        try:
            with draft.open("wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except OSError as error:
            raise LakeError(f"can not write {target}: {error.strerror}") from error
        self._parts += 1
        self._rows = tuple(array("q") for _ in MAP_SCHEMA)

    def map(self) -> pa.Table:
        """All of the map that is on disk."""
        parts = sorted((self.folder / MAP).glob("part-*.parquet"))
        try:
            tables = [pq.read_table(part) for part in parts]
        except (OSError, pa.ArrowException) as error:
            raise LakeError(f"{self.folder / MAP} can not be read: {error}") from error
        return pa.concat_tables(tables) if tables else MAP_SCHEMA.empty_table()


def last_by(table: pa.Table, group: str, value: str) -> dict[int, int]:
    """The highest ``value`` for each ``group`` of a map."""
    found = table.group_by(group).aggregate([(value, "max")])
    return dict(zip(found.column(group).to_pylist(), found.column(f"{value}_max").to_pylist(), strict=True))


def translate_offset(table: pa.Table, committed: dict[int, int], starts: dict[int, int]) -> dict[int, int]:
    """A group's offsets in the new topic.

    Where records kept their partition this is exact. Where partitions were made anew, each new one
    starts at its first record that the group had not done: nothing is lost, some may come again.

    Args:
        table: the map.
        committed: by old partition, the group's next offset.
        starts: by new partition, where the replay began to write.
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
    # What a group never committed it has still to read.
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

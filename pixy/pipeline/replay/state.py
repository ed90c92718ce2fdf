"""The state folder of a replay: its plan, and the map of old to new offsets. A restart resumes from it.

The map is a folder of Parquet files, each written to a draft and renamed. Records that it lacks may still
have been written to the topic; a restart finds them by reading the topic's tail.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.errors import LakeError, PipelineError
from pixy.pipeline.lake.locking import exclusive_lock
from pixy.pipeline.lake.manifest_v1 import parse_object

FORMAT = "kafka-pixy-replay"
VERSION = 1
PLAN = "replay.json"
MAP = "map"
MATCHES = "matches.parquet"
_OF = "of-"
"""Part of the names of map files that have the records of one partition, whose number follows."""

MAP_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("new_partition", pa.int32()),
        ("new_offset", pa.int64()),
    ]
)


class ReplayState:
    """The folder of one replay.

    Args:
        folder: its path.
        partition: of the source, to see and write the map of that one alone; None for the whole map.

    Attributes:
        folder: its absolute path.
    """

    def __init__(self, folder: str, partition: int | None = None) -> None:
        self.folder = Path(folder).resolve()
        self._partition = partition
        self._prefix = "part-" if partition is None else f"part-{_OF}{partition}-"
        self._rows: tuple[array[int], ...] = tuple(array("q") for _ in MAP_SCHEMA)
        self._parts = 0

    def locked(self) -> AbstractContextManager[None]:
        """Let one process at a time run the replay, or its partition; raises PipelineError if another one does."""
        name = ".lock" if self._partition is None else f".lock-{self._partition}"
        return exclusive_lock(
            self.folder / name, PipelineError(f"{self.folder} is in use: this replay runs already")
        )

    # -- plan -------------------------------------------------------------------------------------

    def load(self, identity: dict[str, Any]) -> dict[str, Any] | None:
        """Load the plan of an earlier run; None if there is none.

        Args:
            identity: the request's :meth:`~pixy.pipeline.replay.request.ReplayRequest.identity`.

        Raises:
            PipelineError: the folder belongs to another replay; the text says what differs.
        """
        try:
            plan = parse_object((self.folder / PLAN).read_bytes(), str(self.folder / PLAN), FORMAT)
        except FileNotFoundError:
            return None
        for name in (*identity, *plan["asked"]):
            value = identity.get(name)
            if plan["asked"].get(name) != value:
                raise PipelineError(
                    f"{self.folder} belongs to another replay: its {name} is "
                    f"{plan['asked'].get(name)!r}, this one's is {value!r}; give another --state"
                )
        return plan

    def save(self, plan: dict[str, Any]) -> None:
        """Write the plan, whole or not at all."""
        document = {"format": FORMAT, "version": VERSION, **plan}
        draft = self.folder / f".{PLAN}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with draft.open("w") as file:
                file.write(json.dumps(document, indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.folder / PLAN)
        except OSError as error:
            raise LakeError(f"cannot write {self.folder / PLAN}: {error.strerror}") from error

    # -- map --------------------------------------------------------------------------------------

    def add(
        self, partition: int, offsets: Sequence[int], new_partition: int, new_offsets: Sequence[int]
    ) -> None:
        """Add acknowledged records to the map, in memory.

        Args:
            partition, offsets: the records in the lake.
            new_partition, new_offsets: the same records in the new topic, in the same order.
        """
        columns = self._rows
        columns[0].extend([partition] * len(offsets))
        columns[1].extend(offsets)
        columns[2].extend([new_partition] * len(offsets))
        columns[3].extend(new_offsets)

    @property
    def unsaved(self) -> int:
        """Number of records that are not on disk yet."""
        return len(self._rows[0])

    def flush(self) -> None:
        """Write the new records to disk, as one more part of the map."""
        if not self.unsaved:
            return
        folder = self.folder / MAP
        folder.mkdir(exist_ok=True)
        if not self._parts:
            self._parts = len(list(folder.glob(f"{self._prefix}*.parquet")))
        table = pa.table(
            [
                pa.array(memoryview(column), pa.int64()).cast(field.type)
                for column, field in zip(self._rows, MAP_SCHEMA, strict=True)
            ],
            schema=MAP_SCHEMA,
        )
        draft, target = folder / f".{self._prefix}draft", folder / f"{self._prefix}{self._parts:06d}.parquet"
        try:
            with draft.open("wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except OSError as error:
            raise LakeError(f"cannot write {target}: {error.strerror}") from error
        self._parts += 1
        self._rows = tuple(array("q") for _ in MAP_SCHEMA)

    def map(self) -> pa.Table:
        """Read the parts of the map that are on disk."""
        parts = sorted((self.folder / MAP).glob("part-*.parquet"))
        only = None
        if self._partition is not None:
            only = [("partition", "=", self._partition)]
            others = f"part-{_OF}"
            parts = [
                each
                for each in parts
                if each.name.startswith(self._prefix) or not each.name.startswith(others)
            ]
        try:
            tables = [pq.read_table(part, filters=only) for part in parts]
        except (OSError, pa.ArrowException) as error:
            raise LakeError(f"{self.folder / MAP} cannot be read: {error}") from error
        return pa.concat_tables(tables) if tables else MAP_SCHEMA.empty_table()

"""An archive job's checkpoint: whose it is, and which offsets Spark planned for a batch.

Spark's part is a folder of its own below, so that what we say about it can not be in Spark's way. Spark
writes the end of a batch to ``offsets/<batch>`` before it runs it, and ``commits/<batch>`` afterwards.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from pixy.pipeline.errors import CheckpointError, ManifestError, UnknownVersion
from pixy.pipeline.lake.manifest import parse_object
from pixy.pipeline.lake.store import Store

FORMAT = "kafka-pixy-checkpoint"
VERSION = 1
IDENTITY = "pixy.json"
SPARK = "spark"

Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Owner:
    """What a checkpoint belongs to; ``subscription`` is the topics' names, or one pattern."""

    job: str
    lake: str
    cluster_id: str
    subscription: str


class Checkpoint:
    """A folder that is this job's.

    Attributes:
        id: random, made with the checkpoint; the manifests name it.
        fresh: it was made just now.
    """

    def __init__(self, store: Store, id_: str, *, fresh: bool) -> None:
        self.store = store
        self.id = id_
        self.fresh = fresh

    @property
    def spark(self) -> str:
        """The folder for Spark's ``checkpointLocation``."""
        return f"{self.store.root}/{SPARK}"

    @classmethod
    def open(cls, store: Store, owner: Owner) -> Checkpoint:
        """Open the job's checkpoint, or make it in an empty folder.

        Raises:
            CheckpointError: it belongs to something else; the text says what differs.
        """
        where = f"{store.root}/{IDENTITY}"
        try:
            data = store.read(IDENTITY)
        except FileNotFoundError:
            others = [name for name in store.names("") if not name.startswith(".")]
            if others:
                raise CheckpointError(
                    f"{store.root} is not empty and has no {IDENTITY}: it is the checkpoint of "
                    f"another program (there is {others[0]}); give another --checkpoint"
                ) from None
            id_ = uuid.uuid4().hex
            document = {"format": FORMAT, "version": VERSION, "id": id_, **asdict(owner)}
            store.publish(IDENTITY, (json.dumps(document, indent=1) + "\n").encode())
            return cls(store, id_, fresh=True)
        try:
            document = parse_object(data, where, FORMAT)
        except UnknownVersion:
            raise
        except ManifestError as error:
            raise CheckpointError(str(error)) from error
        _compare(store.root, document, owner)
        return cls(store, str(document["id"]), fresh=False)

    def last_planned(self) -> int:
        """The last batch that Spark has planned; -1 if there is none."""
        return _last(self.store.names(f"{SPARK}/offsets"))

    def last_committed(self) -> int:
        """The last batch that Spark has done with; -1 if there is none."""
        return _last(self.store.names(f"{SPARK}/commits"))

    def ends(self, batch: int) -> Offsets:
        """The offsets after a batch's last ones; before batch 0, where the query started.

        Raises:
            CheckpointError: Spark's log has no such batch, or is not to be read.
        """
        path = f"{SPARK}/sources/0/0" if batch < 0 else f"{SPARK}/offsets/{batch}"
        where = f"{self.store.root}/{path}"
        try:
            # A zero byte goes before the initial offsets, for readers of Spark 2.1.
            lines = self.store.read(path).decode().lstrip("\0").splitlines()
        except FileNotFoundError:
            raise CheckpointError(f"{where} is missing: the checkpoint is not whole") from None
        try:
            if lines[0] != "v1":
                raise UnknownVersion(f"{where} has format version {lines[0]!r}, not v1")
            found: dict[str, dict[str, int]] = json.loads(lines[-1])
            return {
                (topic, int(partition)): int(offset)
                for topic, partitions in found.items()
                for partition, offset in partitions.items()
            }
        except (IndexError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{where} is not to be read: {error}") from error


def _compare(where: str, document: dict[str, Any], owner: Owner) -> None:
    for name, wanted in asdict(owner).items():
        found = document.get(name)
        if found != wanted:
            shown = "subscription (--topics, --pattern)" if name == "subscription" else name
            raise CheckpointError(
                f"{where} is the checkpoint of another job: its {shown} is {found}, this job's is "
                f"{wanted}; give another --checkpoint, or the job it belongs to"
            )


def _last(names: list[str]) -> int:
    return max((int(name) for name in names if name.isdecimal()), default=-1)

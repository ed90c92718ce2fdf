"""The checkpoint of an archive job: its owner, and the offsets that Spark planned for each batch.

Spark's checkpoint is a subfolder, so that our file is never in Spark's way. Spark writes the end offsets of
a batch to ``offsets/<batch>`` before it runs the batch, and ``commits/<batch>`` afterwards.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from pixy.pipeline.errors import CheckpointError, ManifestError, UnknownVersion
from pixy.pipeline.lake.manifest import parse_object
from pixy.pipeline.lake.store import Store
from pixy.wire.types import TopicPartition

FORMAT = "kafka-pixy-checkpoint"
VERSION = 1
IDENTITY = "pixy.json"
SPARK = "spark"

Offsets = dict[TopicPartition, int]
"""The next offset of each partition."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The job, lake, cluster and topics that a checkpoint belongs to.

    Attributes:
        job: name of the job.
        lake: id of the lake.
        cluster_id: Kafka's id of the cluster.
        subscription: the topics' names, or the pattern, as text.
    """

    job: str
    lake: str
    cluster_id: str
    subscription: str


class Checkpoint:
    """The checkpoint folder of a job.

    Attributes:
        id: random, made with the checkpoint; the manifests name it.
        fresh: true if it was created by this call of :meth:`open`.
    """

    def __init__(self, store: Store, id_: str, *, fresh: bool) -> None:
        self.store = store
        self.id = id_
        self.fresh = fresh

    @property
    def spark(self) -> str:
        """Spark's ``checkpointLocation``."""
        return f"{self.store.root}/{SPARK}"

    @classmethod
    def open(cls, store: Store, owner: Owner) -> Checkpoint:
        """Open the job's checkpoint, or create it in an empty folder.

        Args:
            store: the checkpoint's folder.
            owner: must be the owner that the folder names.

        Raises:
            CheckpointError: the folder belongs to another job or program; the text says what differs.
            UnknownVersion: the checkpoint has an unknown format version.
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
        """Number of the last batch that Spark has planned; -1 if there is none."""
        return _last(self.store.names(f"{SPARK}/offsets"))

    def last_committed(self) -> int:
        """Number of the last batch that Spark has committed; -1 if there is none."""
        return _last(self.store.names(f"{SPARK}/commits"))

    def ends(self, batch: int) -> Offsets:
        """Read the end offsets of a batch.

        Args:
            batch: number of the batch; -1 for the offsets at which the query started.

        Raises:
            CheckpointError: Spark's log lacks the batch, or cannot be read.
        """
        path = f"{SPARK}/sources/0/0" if batch < 0 else f"{SPARK}/offsets/{batch}"
        where = f"{self.store.root}/{path}"
        try:
            # A zero byte goes before the initial offsets, for readers of Spark 2.1.
            lines = self.store.read(path).decode().lstrip("\0").splitlines()
        except FileNotFoundError:
            raise CheckpointError(f"{where} is missing: the checkpoint is incomplete") from None
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
            raise CheckpointError(f"{where} cannot be read: {error}") from error


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

"""Write lakes of format 1, as its last version did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pixy.pipeline.lake.checksum import Stats, total
from pixy.pipeline.lake.manifest_v1 import digest_of
from tests.unit.pipeline.support import Row, stats_of, table_of

HEAD = {"format": "kafka-pixy-lake", "version": 1}


def stats_document(stats: Stats) -> dict[str, Any]:
    return {
        **{name: getattr(stats, name) for name in Stats.__dataclass_fields__},
        "checksum": f"{stats.checksum:016x}",
        "content_checksum": f"{stats.content_checksum:016x}",
    }


class OldLake:
    """A lake of format 1.

    Attributes:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._digest = ""
        self._seq = 0
        (folder / "_manifests").mkdir(parents=True)
        identity = {**HEAD, "id": "abc", "cluster": "main", "cluster_id": "kafka-1", "created": 5}
        (folder / "_lake.json").write_text(json.dumps(identity))

    def file(self, topic: str, date: str, name: str, rows: Sequence[Row]) -> dict[str, Any]:
        """Write a data file; return its entry in a manifest."""
        path = f"data/topic={topic}/date={date}/{name}.parquet"
        at = self.folder / path
        at.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(topic, rows), at)
        partitions = [
            {"partition": number, **stats_document(each)} for number, each in stats_of(topic, rows).items()
        ]
        return {
            "path": path,
            "topic": topic,
            "date": date,
            "rows": len(rows),
            "size": at.stat().st_size,
            "partitions": partitions,
        }

    def publish(self, **fields: Any) -> None:
        """Append an entry to the log."""
        document = {
            **HEAD,
            "seq": self._seq,
            "previous": self._digest,
            "published": 1000 + self._seq,
            "job": "job",
            "batch": self._seq,
            "checkpoint": "c",
            "isolation": "read_committed",
            "replaces": [],
            **fields,
        }
        self._digest = digest_of(document)
        text = json.dumps({**document, "digest": self._digest}, indent=1)
        (self.folder / f"_manifests/{self._seq:012d}.json").write_text(text)
        self._seq += 1

    def batch(self, topic: str, rows: Sequence[Row], start: int, end: int, date: str = "2023-11-14") -> str:
        """Archive records of partition 0; return the file's path."""
        file = self.file(topic, date, f"{self._seq}", rows)
        place = {"topic": topic, "topic_id": "id", "partition": 0, "start": start, "end": end}
        stats = total(stats_of(topic, rows).values())
        self.publish(kind="batch", ranges=[{**place, **stats_document(stats)}], files=[file])
        return str(file["path"])

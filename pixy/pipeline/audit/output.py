"""The audit's folder: Parquet tables, the JSON summary, the report. Each file is replaced as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.audit import findings as found
from pixy.pipeline.audit.facts import NO_WINDOW
from pixy.pipeline.audit.tables import SKETCH_ROWS, WINDOWS, Key, Row
from pixy.pipeline.errors import PipelineError, UnknownVersion

if TYPE_CHECKING:
    from pixy.pipeline.audit.job import Result

FORMAT, VERSION = "kafka-pixy-audit", 1
SUMMARY = "audit.json"
REPORT = "report.html"

PARTITIONS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("log_start", pa.int64()),
        ("log_end", pa.int64()),
        ("archived_start", pa.int64()),
        ("archived_end", pa.int64()),
        ("archived_records", pa.int64()),
        ("not_archived_yet", pa.int64()),
        ("missing", pa.int64()),
        ("lost", pa.int64()),
        ("overlapping", pa.int64()),
        ("gaps", pa.map_(pa.string(), pa.int64())),
    ]
)


@dataclass(slots=True)
class Previous:
    """What the run before has left in the folder."""

    run: int = 0
    windows: dict[Key, Row] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    sketches: list[Row] = field(default_factory=list)
    closed_before: int = 0


def previous(folder: str) -> Previous:
    """The run before; raises if the folder holds something else, or windows of another length."""
    summary = Path(folder, SUMMARY)
    if not summary.exists():
        others = [path.name for path in Path(folder).iterdir()] if Path(folder).is_dir() else []
        if others:
            raise PipelineError(f"{folder} is not empty and no audit: it has no {SUMMARY}; give a new folder")
        return Previous()
    try:
        document = json.loads(summary.read_bytes())
        if document.get("format") != FORMAT:
            raise PipelineError(f"{summary} is not an audit's summary")
        if document.get("version") != VERSION:
            raise UnknownVersion(
                f"{summary} has format version {document.get('version')!r}; this program knows version {VERSION}"
            )
        rows = pq.read_table(Path(folder, "windows.parquet")).to_pylist()
        sketches = pq.read_table(Path(folder, "latencies.parquet")).to_pylist()
        return Previous(
            int(document["run"]),
            {_key(row): row for row in rows},
            document["inputs"]["settings"],
            [{**row, "window": _millis(row["window"])} for row in sketches],
            int(document["windows"]["closed_before_ms"]),
        )
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise PipelineError(f"{folder} holds an audit that can not be read: {error}") from error


def _key(row: Row) -> Key:
    return row["topic"], row["partition"], row["group"], _millis(row.pop("window"))


def write(result: Result, summary: dict[str, Any], report: str) -> list[str]:
    """Write everything, the summary last; the paths. Raises PipelineError, naming the file."""
    folder = Path(result.request.out)
    files: dict[str, Any] = {
        "windows.parquet": _table(
            WINDOWS,
            (
                {"topic": key[0], "partition": key[1], "group": key[2], "window": _time(key[3]), **row}
                for key, row in sorted(result.windows.rows.items(), key=lambda item: _sortable(item[0]))
            ),
        ),
        "latencies.parquet": _table(
            SKETCH_ROWS, ({**row, "window": _time(row["window"])} for row in result.sketches)
        ),
        "partitions.parquet": _table(
            PARTITIONS, ({**row, "gaps": list(row["gaps"].items())} for row in partition_rows(result))
        ),
        "findings.parquet": _table(found.SCHEMA, (each.row() for each in result.findings)),
        REPORT: report.encode(),
        SUMMARY: (json.dumps(summary, indent=1) + "\n").encode(),
    }
    made = []
    for name, content in files.items():
        path = folder / name
        aside = folder / f".{name}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                aside.write_bytes(content)
            else:
                pq.write_table(content, aside, compression="zstd")
            aside.replace(path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise PipelineError(f"{path} can not be written: {error.strerror or error}") from error
        made.append(str(path))
    return made


def partition_rows(result: Result) -> Iterable[Row]:
    """One row a partition: where each source begins and ends, and what is missing by reason."""
    for view in result.partitions:
        gaps: dict[str, int] = {}
        for gap in view.gaps:
            gaps[str(gap.why)] = gaps.get(str(gap.why), 0) + gap.end - gap.start
        log, archived = view.log or (None, None), view.archived or (None, None)
        yield {
            "topic": view.topic,
            "partition": view.partition,
            "log_start": log[0],
            "log_end": log[1],
            "archived_start": archived[0],
            "archived_end": archived[1],
            "archived_records": view.rows,
            "not_archived_yet": view.unarchived,
            "missing": sum(gaps.values()),
            "lost": view.archive_lost.count,
            "overlapping": sum(b - a for a, b, _ in view.overlapping),
            "gaps": gaps,
        }


def _table(schema: pa.Schema, rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema)


def _time(millis: int) -> datetime | None:
    return None if millis == NO_WINDOW else datetime.fromtimestamp(millis / 1000, UTC)


def _millis(time: datetime | None) -> int:
    return NO_WINDOW if time is None else round(time.timestamp() * 1000)


def _sortable(key: Key) -> tuple[str, int, str, int]:
    return key[0], key[1], key[2] or "", key[3]


__all__ = ["FORMAT", "REPORT", "SUMMARY", "VERSION", "Previous", "partition_rows", "previous", "write"]

"""Write the audit's tables, summary and report. Each file is replaced as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.audit import findings, previous_run, tables
from pixy.pipeline.audit.result import AuditResult
from pixy.pipeline.audit.tables import Key, Row
from pixy.pipeline.audit.tallies import NO_WINDOW
from pixy.pipeline.errors import PipelineError

FINDINGS = "findings.parquet"
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


def write(result: AuditResult, summary: dict[str, Any], report: str) -> list[str]:
    """Write all files, the summary last, so that a summary proves the tables complete.

    Args:
        result: supplies the tables.
        summary: the content of ``audit.json``.
        report: the content of ``report.html``.

    Returns:
        The paths of the files.

    Raises:
        PipelineError: a file cannot be written; the text names it.
    """
    folder = Path(result.request.out)
    files: dict[str, pa.Table | bytes] = {
        previous_run.WINDOWS: _table(
            tables.WINDOWS,
            (
                {"topic": key[0], "partition": key[1], "group": key[2], "window": _time(key[3]), **row}
                for key, row in sorted(result.windows.rows.items(), key=lambda item: _sortable(item[0]))
            ),
        ),
        previous_run.LATENCIES: _table(
            tables.SKETCH_ROWS, ({**row, "window": _time(row["window"])} for row in result.sketches)
        ),
        "partitions.parquet": _table(
            PARTITIONS, ({**row, "gaps": list(row["gaps"].items())} for row in partition_rows(result))
        ),
        FINDINGS: _table(findings.SCHEMA, (each.row() for each in result.findings)),
        "report.html": report.encode(),
        previous_run.SUMMARY: (json.dumps(summary, indent=1) + "\n").encode(),
    }
    for name, content in files.items():
        _replace(folder, name, content)
    return [str(folder / name) for name in files]


def previous_findings(folder: str) -> list[findings.Finding]:
    """Read the findings of the run that wrote a folder; none if there was none."""
    path = Path(folder, FINDINGS)
    return [findings.from_row(row) for row in pq.read_table(path).to_pylist()] if path.exists() else []


def _replace(folder: Path, name: str, content: pa.Table | bytes) -> None:
    path, temporary = folder / name, folder / f".{name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            pq.write_table(content, temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise PipelineError(f"{path} cannot be written: {error.strerror or error}") from error


def partition_rows(result: AuditResult) -> Iterable[Row]:
    """Return one row per partition: the range of each source, and the number of missing offsets by reason."""
    for view in result.partitions:
        gaps: dict[str, int] = {}
        for gap in view.gaps:
            gaps[str(gap.reason)] = gaps.get(str(gap.reason), 0) + gap.end - gap.start
        log, archived = view.log or (None, None), view.archived or (None, None)
        yield {
            "topic": view.topic,
            "partition": view.partition,
            "log_start": log[0],
            "log_end": log[1],
            "archived_start": archived[0],
            "archived_end": archived[1],
            "archived_records": view.archived_records,
            "not_archived_yet": view.unarchived,
            "missing": sum(gaps.values()),
            "lost": view.archive_lost.count,
            "overlapping": sum(end - start for start, end, _ in view.overlapping),
            "gaps": gaps,
        }


def _table(schema: pa.Schema, rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema)


def _time(millis: int) -> datetime | None:
    return None if millis == NO_WINDOW else datetime.fromtimestamp(millis / 1000, UTC)


def _sortable(key: Key) -> tuple[str, int, str, int]:
    return key[0], key[1], key[2] or "", key[3]


__all__ = ["PARTITIONS", "partition_rows", "previous_findings", "write"]

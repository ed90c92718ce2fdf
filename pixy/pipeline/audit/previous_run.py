"""The earlier run in an audit's folder: its windows and sketches, which the next run merges with its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.audit.tables import Key, Row
from pixy.pipeline.audit.tallies import NO_WINDOW
from pixy.pipeline.errors import PipelineError, UnknownVersion, UsageError

FORMAT, VERSION = "kafka-pixy-audit", 1
SUMMARY = "audit.json"
WINDOWS = "windows.parquet"
LATENCIES = "latencies.parquet"


@dataclass(slots=True)
class PreviousRun:
    """Results of the earlier run; the defaults stand for "there was none".

    Attributes:
        closed_before: windows that ended at or before this were closed, milliseconds since 1970.
        inputs: description of its sources.
        at: when it read them, milliseconds since 1970.
        complete: it, and those before it that it has carried on, looked at all windows.
        waiting: of each queue, whether it was late, and the timestamp of its oldest message; -1 if unknown.
    """

    run: int = 0
    windows: dict[Key, Row] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    sketches: list[Row] = field(default_factory=list)
    closed_before: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    at: int = 0
    complete: bool = False
    waiting: list[tuple[bool, int]] = field(default_factory=list)

    def check_window(self, window: int, folder: str) -> None:
        """Raise UsageError if the earlier run's windows in ``folder`` have another length, in milliseconds."""
        earlier = self.settings.get("window_ms", window)
        if earlier != window:
            raise UsageError(
                f"--window: {folder} has windows of {earlier / 1000:g} s; give the same length, or another folder with --out"
            )


def read_previous_run(folder: str) -> PreviousRun:
    """Read the earlier run's results; an empty or absent folder has none.

    Raises:
        UnknownVersion: another version of this program wrote them.
        PipelineError: the folder holds something else, or results that cannot be read.
    """
    summary = Path(folder, SUMMARY)
    if Path(folder).exists() and not Path(folder).is_dir():
        raise PipelineError(f"{folder} is not a folder; give a new one")
    if not summary.exists():
        if Path(folder).is_dir() and any(Path(folder).iterdir()):
            raise PipelineError(f"{folder} is not empty and holds no audit (no {SUMMARY}); give a new folder")
        return PreviousRun()
    try:
        document = json.loads(summary.read_bytes())
        if document.get("format") != FORMAT:
            raise PipelineError(f"{summary} is not the summary of an audit")
        if document.get("version") != VERSION:
            raise UnknownVersion(
                f"{summary} has format version {document.get('version')!r}; "
                f"this program reads version {VERSION}"
            )
        rows = pq.read_table(Path(folder, WINDOWS)).to_pylist()
        sketches = pq.read_table(Path(folder, LATENCIES)).to_pylist()
        return PreviousRun(
            int(document["run"]),
            {_key(row): row for row in rows},
            document["inputs"]["settings"],
            [{**row, "window": _millis(row["window"])} for row in sketches],
            int(document["windows"]["closed_before_ms"]),
            document["inputs"],
            _parsed(document["at"]),
            bool(document.get("complete")),
            [(bool(each["late"]), _parsed(each["oldest"])) for each in document["waiting"]],
        )
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise PipelineError(f"{folder} holds an audit that cannot be read: {error}") from error


def _key(row: Row) -> Key:
    return row["topic"], row["partition"], row["group"], _millis(row.pop("window"))


def _parsed(stamp: str | None) -> int:
    return -1 if stamp is None else round(datetime.fromisoformat(stamp).timestamp() * 1000)


def _millis(time: datetime | None) -> int:
    return NO_WINDOW if time is None else round(time.timestamp() * 1000)


__all__ = ["FORMAT", "LATENCIES", "SUMMARY", "VERSION", "WINDOWS", "PreviousRun", "read_previous_run"]

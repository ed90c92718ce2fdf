"""The audit's result, before it is summarized, rendered and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pixy.pipeline.audit.findings import Finding
from pixy.pipeline.audit.merge_windows import MergedWindows
from pixy.pipeline.audit.partitions import PartitionView
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.tables import Row


@dataclass(slots=True)
class AuditResult:
    """Windows, partitions, findings and latencies of one run.

    Attributes:
        now: when the sources were read, microseconds since 1970.
        inputs: the sources as used, see :func:`pixy.pipeline.audit.open_sources.describe`.
        digest: SHA-256 of ``inputs``: two runs with the same digest read the same data.
        sketches: rows of :data:`pixy.pipeline.audit.tables.SKETCH_ROWS`.
        run: number of this run in its folder, from 1.
        complete: this run, and those that it carries on, looked at all windows.
    """

    request: AuditRequest
    now: int
    inputs: dict[str, Any]
    digest: str
    windows: MergedWindows
    partitions: list[PartitionView]
    findings: list[Finding]
    sketches: list[Row]
    run: int = 1
    complete: bool = True


__all__ = ["AuditResult"]

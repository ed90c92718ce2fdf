"""Summarize the audit of a table: verdict, totals, a row for each partition."""

from __future__ import annotations

from typing import Any

from pixy.pipeline.table_audit.buckets import FAULTS, Problem
from pixy.pipeline.table_audit.job import TableAudit
from pixy.pipeline.table_audit.repair import Counts
from pixy.pipeline.table_audit.request import TableRequest
from pixy.pipeline.table_audit.table import PartitionRows

_NOTHING = PartitionRows(0, -1, -1)


def summarize(request: TableRequest, result: TableAudit, counts: Counts) -> dict[str, Any]:
    """Return the summary as plain values; docs/pipeline.md ("Audit of a table") describes it."""
    totals = {str(problem): counts.total(problem) for problem in Problem}
    late_rows = sum(rows.late for rows in result.survey.partitions.values())
    wrong = any(totals[str(problem)] for problem in FAULTS) or late_rows or result.survey.unmapped
    return {
        "verdict": "faulty" if wrong else "clean",
        "table": request.table,
        "format": request.format,
        "lake": request.lake or None,
        "late_after_ms": request.late_after,
        "rows": sum(rows.rows for rows in result.survey.partitions.values()),
        **totals,
        "written_late": late_rows,
        "unmapped": result.survey.unmapped,
        "ranges": counts.ranges,
        "first": counts.first,
        "partitions": _partitions(result, counts),
    }


def _partitions(result: TableAudit, counts: Counts) -> list[dict[str, Any]]:
    rows = []
    for each in result.partitions:
        tp = (each.topic, each.partition)
        found, held = counts.offsets[tp], result.survey.partitions.get(tp, _NOTHING)
        rows.append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "start": each.start,
                "end": each.end,
                "rows": held.rows,
                **{str(problem): found[problem] for problem in Problem},
                "written_late": held.late,
                "reasons": dict(counts.explained[tp]),
            }
        )
    return rows


__all__ = ["summarize"]

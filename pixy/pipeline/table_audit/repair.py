"""Write the list for repair, one JSON line for each range of offsets, and count what it holds."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from pixy.pipeline.errors import PipelineError
from pixy.pipeline.table_audit.bounds import Expected
from pixy.pipeline.table_audit.buckets import FAULTS, Found, Problem
from pixy.wire.types import TopicPartition

MAX_SHOWN: Final = 20
"""Ranges that the command prints; the list for repair has all of them."""


@dataclass(slots=True)
class Counts:
    """What was found: offsets by problem for each partition, and the first ranges."""

    offsets: dict[TopicPartition, Counter[Problem]] = field(default_factory=lambda: defaultdict(Counter))
    explained: dict[TopicPartition, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    ranges: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)

    def total(self, problem: Problem) -> int:
        """Return how many offsets have the problem."""
        return sum(counts[problem] for counts in self.offsets.values())


def write_repair(path: str, findings: Iterable[tuple[Expected, Found]]) -> Counts:
    """Take the findings one by one: count them, and write those that are faults to a file, which is replaced as a whole.

    Args:
        path: the file; empty for none.
        findings: in any order; they are not gathered.

    Raises:
        PipelineError: the file cannot be written.
    """
    if not path:
        return _count(findings, None)
    temporary = Path(f"{path}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            counts = _count(findings, file)
        temporary.replace(path)
    except OSError as error:
        raise PipelineError(f"--repair {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return counts


def _count(findings: Iterable[tuple[Expected, Found]], file: TextIO | None) -> Counts:
    counts = Counts()
    for partition, each in findings:
        tp = (partition.topic, partition.partition)
        counts.offsets[tp][each.problem] += each.end - each.start
        if each.problem is Problem.EXPLAINED:
            counts.explained[tp][each.reason] += each.end - each.start
        if each.problem not in FAULTS:
            continue
        line = _line(partition, each)
        counts.ranges += 1
        if len(counts.first) < MAX_SHOWN:
            counts.first.append(line)
        if file is not None:
            file.write(json.dumps(line) + "\n")
    return counts


def _line(partition: Expected, each: Found) -> dict[str, Any]:
    return {
        "problem": str(each.problem),
        "topic": partition.topic,
        "partition": partition.partition,
        "start": each.start,
        "end": each.end,
        "offsets": each.end - each.start,
        "source": each.source or None,
        "first_timestamp": None if each.first_timestamp < 0 else each.first_timestamp,
        "last_timestamp": None if each.last_timestamp < 0 else each.last_timestamp,
        "why": each.reason,
    }


__all__ = ["MAX_SHOWN", "Counts", "write_repair"]

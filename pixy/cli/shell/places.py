"""Offsets on the command line: those that stand for the beginning or the end of a log, and those that lie outside of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pixy.cli.shell.output import Word, note

BEGIN, END = -2, -1
"""Times of ``FindOffsets``, and offsets of ``SetOffsets``: the beginning and the end. As a committed offset, -1 means that there is none."""
_NAMED: Final = 5
"""Partitions that have a line each when more offsets were outside of the log."""


def shown(offset: int | None) -> Any:
    """Return a committed offset for a table: a word for the beginning, None (a dash) where nothing is committed."""
    if offset is None or offset == END:
        return None
    return Word("begin") if offset == BEGIN else offset


def shown_lag(offset: int | None, lag: int | None) -> int | None:
    """Return a lag for a table: None (a dash) where nothing is committed, so that nobody knows it; Kafka-Pixy's own answer is 0 there."""
    return None if offset is None or offset == END else lag


def explain(offsets: Iterable[int | None]) -> None:
    """Print what the dashes and words of a table mean, if it has any."""
    found = {offset if offset == BEGIN else END for offset in offsets if offset is None or offset < 0}
    if END in found:
        note(
            "offset -: nothing is committed, so the group begins there as a new one would: "
            "consumer.initial_offset of the daemon says where"
        )
    if BEGIN in found:
        note("offset begin: the group begins at the oldest message")


def within(asked: Mapping[int, int], logs: Mapping[int, Any]) -> dict[int, int]:
    """Keep an offset of each partition within its log.

    Args:
        asked: offsets by partition.
        logs: by partition, something with ``begin`` and ``end``.
    """
    return {number: min(max(at, logs[number].begin), logs[number].end) for number, at in asked.items()}


def say_moved(asked: Mapping[int, int], wanted: Mapping[int, int], *, dry_run: bool) -> None:
    """Print what became of offsets that lie outside of the log: a line for each partition, up to a few.

    Args:
        asked: offsets by partition.
        wanted: what :func:`within` has made of them.
        dry_run: nothing is set.
    """
    moved = [number for number in sorted(asked) if asked[number] != wanted[number]]
    done = "would be set" if dry_run else "set"
    for number in moved[:_NAMED]:
        where = "after the end" if asked[number] > wanted[number] else "before the beginning"
        note(f"partition {number}: {asked[number]} is {where} of the log: {done} to {wanted[number]}")
    if (more := len(moved) - _NAMED) > 0:
        note(f"{more} more partition{'s' * (more != 1)}, too: the table shows where")


def say_outside(asked: Mapping[int, int], logs: Iterable[Any]) -> None:
    """Print which offsets that were set lie outside of the log: a line for each partition, up to a few.

    Args:
        asked: offsets by partition; below 0 are no places.
        logs: something with ``partition``, ``begin`` and ``end``.
    """
    outside = [
        each
        for each in logs
        if asked.get(each.partition, -1) >= 0 and not each.begin <= asked[each.partition] <= each.end
    ]
    for each in outside[:_NAMED]:
        at = asked[each.partition]
        where = f"after the end ({each.end})" if at > each.end else f"before the beginning ({each.begin})"
        note(f"partition {each.partition}: {at} is {where} of the log")
    if (more := len(outside) - _NAMED) > 0:
        note(f"{more} more partition{'s' * (more != 1)}, too")


__all__ = ["BEGIN", "END", "explain", "say_moved", "say_outside", "shown", "shown_lag", "within"]

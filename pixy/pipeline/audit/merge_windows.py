"""Windows over several runs: which are closed, which had to be stated again, which are only kept.

A window is closed when the watermark has passed its end. Late data changes closed windows: such a row
gets the next revision and is called restated. What the sources no longer hold (a journal's retention)
is not forgotten: the row of the former run is carried on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pixy.pipeline.audit.tables import COUNTS, LATENCIES, Key, Row

_COMPARED = (*COUNTS, *LATENCIES)


@dataclass(slots=True)
class Restated:
    """The rows of this run, and what became of those of the former one."""

    rows: dict[Key, Row] = field(default_factory=dict)
    changed: list[Key] = field(default_factory=list)
    """Closed windows that are different now, or were not there."""
    carried: list[Key] = field(default_factory=list)
    closed_before: int = 0
    """Windows that end at or before this are closed, milliseconds."""


def restate(
    now: dict[Key, Row],
    before: dict[Key, Row],
    *,
    window: int,
    closed_before: int,
    reach: int,
    closed_then: int = 0,
) -> Restated:
    """Merge this run's windows with the former run's.

    Args:
        before: rows of the former run, with their ``closed`` and ``revision``; empty if there was
            none.
        window: length of a window, milliseconds.
        closed_before: windows that end at or before this are closed (milliseconds): the newest data
            less the watermark.
        reach: the sources tell all since then (milliseconds); of older windows the former run
            knew more.
        closed_then: ``closed_before`` of the former run; 0 if there was none.
    """
    result = Restated(closed_before=max(closed_before, closed_then))
    for key in now.keys() | before.keys():
        old, new = before.get(key), now.get(key)
        if old is not None and (new is None or key[3] < reach):
            result.rows[key] = {**old, "carried": True, "restated": False}
            result.carried.append(key)
            continue
        assert new is not None
        closed = key[3] + window <= result.closed_before
        row = {**new, "closed": closed, "revision": 1, "restated": False, "carried": False}
        if old is not None:
            same = all(new.get(name) == old.get(name) for name in _COMPARED)
            row["revision"] = int(old["revision"]) + (not same)
            row["restated"] = bool(not same and old["closed"])
        elif key[3] + window <= closed_then:  # it was closed as an empty one
            row["revision"] = 2
            row["restated"] = True
        if row["restated"]:
            result.changed.append(key)
        result.rows[key] = row
    for keys in (result.changed, result.carried):
        keys.sort(key=_order)
    return result


def _order(key: Key) -> tuple[str, int, str, int]:
    return key[0], key[1], key[2] or "", key[3]


__all__ = ["Restated", "restate"]

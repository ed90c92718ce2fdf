"""Merge the windows of this run with those of the earlier run: closed, restated or carried.

A window is closed once the watermark has passed its end. Late data may still change it: the row then gets the
next revision and counts as restated. If the sources no longer hold a window (the journal's retention
has passed), the earlier run's row is carried over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pixy.pipeline.audit.tables import COUNTS, LATENCIES, Key, Row

_COMPARED = (*COUNTS, *LATENCIES)


@dataclass(slots=True)
class MergedWindows:
    """The merged rows.

    Attributes:
        rows: all windows of both runs.
        restated: keys of closed windows that changed or appeared, sorted.
        carried: keys of windows taken over from the earlier run, sorted.
        closed_before: windows that end at or before this are closed, milliseconds since 1970.
    """

    rows: dict[Key, Row] = field(default_factory=dict)
    restated: list[Key] = field(default_factory=list)
    carried: list[Key] = field(default_factory=list)
    closed_before: int = 0


def merge_windows(
    current: dict[Key, Row],
    previous: dict[Key, Row],
    *,
    window: int,
    closed_before: int,
    complete_since: int,
    previously_closed_before: int = 0,
) -> MergedWindows:
    """Merge two runs' windows. Times are milliseconds since 1970.

    Args:
        current: rows of this run.
        previous: rows of the earlier run with their ``closed`` and ``revision``; empty if there was none.
        window: length of a window, milliseconds.
        closed_before: windows that end at or before this are closed: the newest data less the watermark.
        complete_since: the sources are complete from here on; the earlier run knew more of older windows.
        previously_closed_before: ``closed_before`` of the earlier run; 0 if there was none.
    """
    result = MergedWindows(closed_before=max(closed_before, previously_closed_before))
    for key in current.keys() | previous.keys():
        old, new = previous.get(key), current.get(key)
        if old is not None and (new is None or key[3] < complete_since):
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
        elif key[3] + window <= previously_closed_before:  # the earlier run closed it as an empty window
            row["revision"] = 2
            row["restated"] = True
        if row["restated"]:
            result.restated.append(key)
        result.rows[key] = row
    for keys in (result.restated, result.carried):
        keys.sort(key=_order)
    return result


def _order(key: Key) -> tuple[str, int, str, int]:
    return key[0], key[1], key[2] or "", key[3]


__all__ = ["MergedWindows", "merge_windows"]

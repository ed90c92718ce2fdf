"""Windows of several runs are merged: closed, restated or carried."""

from __future__ import annotations

from typing import Any

from pixy.pipeline.audit.merge_windows import MergedWindows, merge_windows

KEY = ("t", 0, "g")


def rows(**counts: int) -> dict[Any, Any]:
    """Windows w0, w10 and so on, with the number of messages produced in each."""
    return {(*KEY, int(name[1:])): {"produced": n} for name, n in counts.items()}


def run(
    now: dict[Any, Any], before: MergedWindows | None = None, *, closed: int = 0, complete_since: int = 0
) -> MergedWindows:
    return merge_windows(
        now,
        before.rows if before else {},
        window=10,
        closed_before=closed,
        complete_since=complete_since,
        previously_closed_before=before.closed_before if before else 0,
    )


def shown(result: MergedWindows) -> dict[int, tuple[int, int, bool, bool, bool]]:
    return {
        key[3]: (row["produced"], row["revision"], row["closed"], row["restated"], row["carried"])
        for key, row in sorted(result.rows.items())
    }


def test_the_first_run_restates_nothing() -> None:
    result = run(rows(w0=5, w10=3, w20=1), closed=20)
    assert shown(result) == {
        0: (5, 1, True, False, False),
        10: (3, 1, True, False, False),
        20: (1, 1, False, False, False),
    }
    assert (result.restated, result.carried) == ([], [])


def test_an_open_window_changes_and_a_closed_one_is_restated() -> None:
    first = run(rows(w0=5, w20=1), closed=20)
    second = run(rows(w0=6, w10=1, w20=4, w30=1), first, closed=30)
    assert shown(second) == {
        0: (6, 2, True, True, False),
        10: (1, 2, True, True, False),  # the first run closed it as an empty window
        20: (4, 2, True, False, False),
        30: (1, 1, False, False, False),
    }
    assert [key[3] for key in second.restated] == [0, 10]
    third = run(rows(w0=6, w10=1, w20=4, w30=1), second, closed=30)
    assert third.restated == []
    assert [row[1] for row in shown(third).values()] == [2, 2, 2, 1], "revisions are kept"


def test_windows_that_the_sources_no_longer_hold_are_carried() -> None:
    first = run(rows(w0=5, w10=5, w20=5), closed=20)
    second = run(rows(w10=2, w20=5, w30=1), first, closed=30, complete_since=15)
    assert shown(second) == {
        0: (5, 1, True, False, True),
        10: (5, 1, True, False, True),
        20: (5, 1, True, False, False),
        30: (1, 1, False, False, False),
    }
    assert [key[3] for key in second.carried] == [0, 10]


def test_a_closed_window_stays_closed() -> None:
    first = run(rows(w0=5), closed=50)
    assert shown(run(rows(w0=5), first, closed=5))[0] == (5, 1, True, False, False)

"""The data of the report's charts: a topic's windows by series, which the page's script draws."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from pixy.pipeline.audit.tables import Key, Row
from pixy.pipeline.audit.tallies import NO_WINDOW

MAX_GROUPS: Final = 8
"""Groups of a topic that get charts: those with the most offers."""
MAX_WINDOWS: Final = 5_000
"""Windows of a chart; neighbours are joined where there are more, so that a page stays small."""

_TOPIC = (
    "produced",
    "archived",
    "archive_lost",
    "log_lost",
    "archive_duplicates",
    "archive_out_of_order",
    "archive_late",
)
_GROUP = (
    "offered",
    "acked",
    "retried",
    "dead_lettered",
    "lost",
    "unknown",
    "duplicates_unexplained",
    "out_of_order",
)
_LATENCIES = ("produce_offer", "offer_ack")
_ARCHIVE = "archive_delay"


def chart_topic(rows: list[tuple[Key, Row]], window: int) -> dict[str, Any]:
    """Return one topic's series: counts add up over partitions, delays are the largest of any partition.

    Args:
        rows: the topic's windows.
        window: their length, milliseconds.
    """
    timed = [(key, row) for key, row in rows if key[3] != NO_WINDOW]
    length = _joined(timed, window)
    starts = sorted({key[3] - key[3] % length for key, _ in timed})
    places = {start: place for place, start in enumerate(starts)}
    groups = Counter[str]()
    for key, row in timed:
        if key[2] is not None:
            groups[key[2]] += row.get("offered") or 0
    shown = sorted(name for name, _ in groups.most_common(MAX_GROUPS))

    def counts(names: Iterable[str], group: str | None) -> dict[str, list[int]]:
        series = {name: [0] * len(starts) for name in names}
        # Each group's row repeats the topic's figures.
        seen: set[tuple[int, int]] = set()
        for (_, partition, name, start), row in timed:
            if (group is not None and name != group) or (group is None and (partition, start) in seen):
                continue
            seen.add((partition, start))
            for column, values in series.items():
                values[places[start - start % length]] += row.get(column) or 0
        return {name: values for name, values in series.items() if any(values)}

    def delays(metric: str, group: str | None) -> dict[str, list[float | None]] | None:
        largest: dict[str, dict[int, float]] = defaultdict(dict)
        for (_, _, name, start), row in timed:
            if group is not None and name != group:
                continue
            for part in ("p50", "p99"):
                value = row.get(f"{metric}_{part}_ms")
                if value is not None:
                    place = places[start - start % length]
                    largest[part][place] = max(largest[part].get(place, 0.0), value)
        if not largest:
            return None
        return {part: [largest[part].get(place) for place in range(len(starts))] for part in ("p50", "p99")}

    return {
        "starts": [start / 1000 for start in starts],
        "length": length / 1000,
        "counts": counts(_TOPIC, None),
        "archive_delay": delays(_ARCHIVE, None),
        "groups": [
            {
                "group": name,
                "counts": counts(_GROUP, name),
                "delays": {
                    metric: found for metric in _LATENCIES if (found := delays(metric, name)) is not None
                },
            }
            for name in shown
        ],
        "groups_left_out": len(groups) - len(shown),
    }


def _joined(rows: list[tuple[Key, Row]], window: int) -> int:
    """Return the length of a bar: a window, or as many as it takes to have at most MAX_WINDOWS bars."""
    if not rows:
        return window
    span = max(key[3] for key, _ in rows) - min(key[3] for key, _ in rows)
    return window * max(1, -(-(span // window + 1) // MAX_WINDOWS))


__all__ = ["MAX_GROUPS", "MAX_WINDOWS", "chart_topic"]

"""The times in which faults were at work, with the time that it takes to get over each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tests.chaos.kit.kinds import KINDS

LEAD = 3.0
"""Seconds before a fault in which an acknowledgement may not be committed yet: the interval of commits, the
commit itself, and what a loaded machine takes for it."""


class Fault(NamedTuple):
    """A fault that took place; ``daemon`` is 0 if it concerns all."""

    kind: str
    daemon: int
    t0: float
    t1: float
    note: str

    @property
    def until(self) -> float:
        """The time at which the groups are over it."""
        return self.t1 + KINDS[self.kind].recovery


class Windows:
    """Answers whether a fault was at work at a time."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._merged: dict[str, list[tuple[float, float]]] = {}

    def any(
        self, since: float, until: float, topic: str, *, daemons: tuple[int, ...] = (), others: bool = False
    ) -> Fault | None:
        """Return a fault at work in this time.

        Args:
            since: seconds of the wall clock.
            until: likewise.
            topic: a fault of another topic does not count.
            daemons: a fault of another daemon does not count, unless this is empty.
            others: a fault of the topic itself does not count.
        """
        return self._find(since, until, topic, daemons, ungraceful=False, others=others)

    def ungraceful(self, since: float, until: float, topic: str, daemons: tuple[int, ...]) -> Fault | None:
        """Find a fault at work, of a kind that may make a daemon forget accepted acknowledgements.

        Args:
            since: wall-clock time, in seconds.
            until: likewise.
            topic: a fault of another topic does not count.
            daemons: a fault of another daemon does not count, unless this is empty.
        """
        return self._find(since, until, topic, daemons, ungraceful=True)

    def _find(
        self,
        since: float,
        until: float,
        topic: str,
        daemons: tuple[int, ...],
        *,
        ungraceful: bool,
        others: bool = False,
    ) -> Fault | None:
        for fault in self._faults:
            if fault.t0 - LEAD > until:
                break
            if fault.until < since or not _concerns(fault, topic):
                continue
            if others and KINDS[fault.kind].uses == topic:
                continue
            if daemons and fault.daemon and fault.daemon not in daemons:
                continue
            if not ungraceful or KINDS[fault.kind].ungraceful:
                return fault
        return None

    def troubled(self, since: float, until: float, topic: str, daemon: int) -> float:
        """Count the seconds of a time in which a fault was at work.

        Args:
            since: wall-clock time, in seconds.
            until: likewise.
            topic: faults of it, or of another topic, do not count.
            daemon: faults of another daemon do not count.
        """
        merged = _merge(
            (max(since, fault.t0), min(until, fault.until))
            for fault in self._faults
            if fault.t0 < until
            and since < fault.until
            and fault.daemon in (0, daemon)
            and KINDS[fault.kind].uses != topic
            and _concerns(fault, topic)
        )
        return sum(end - start for start, end in merged)

    def calm(self, since: float, until: float, topic: str) -> float:
        """Count the seconds of a time in which no fault was at work.

        Args:
            since: wall-clock time, in seconds.
            until: likewise.
            topic: faults of another topic do not count.
        """
        merged = self._merged.get(topic)
        if merged is None:
            merged = self._merged[topic] = _merge(
                (fault.t0, fault.until) for fault in self._faults if _concerns(fault, topic)
            )
        calm = until - since
        for start, end in merged[max(0, bisect_right(merged, (since, 0.0)) - 1) :]:
            if start >= until:
                break
            calm -= max(0.0, min(end, until) - max(start, since))
        return max(0.0, calm)


def _concerns(fault: Fault, topic: str) -> bool:
    uses = KINDS[fault.kind].uses
    return uses in ("", "broker", "daemon", "daemons", "storm", topic)


def _merge(spans: object) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):  # type: ignore[call-overload]
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


__all__ = ["Fault", "Windows"]

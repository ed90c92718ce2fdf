"""Whether what the tap says can have been so, given what the brokers answered before and after. No IO, no clock."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

SLACK: Final = 1.5
"""Seconds by which a response may pass the tap later than another one that a broker has sent after it."""
_KEPT: Final = 600
"""Answers of brokers that are kept of each number."""
ANOMALY_FOR: Final = 5.0
"""Seconds for which a group must be without fault before an anomaly that the tap shows is a false one."""


class Answer(NamedTuple):
    """What a broker has answered; the times are those before and after the call, in seconds since the epoch."""

    began: float
    ended: float
    value: int


@dataclass
class History:
    """The answers about a number that only grows: an end offset, or a committed offset that nobody sets back."""

    answers: deque[Answer] = field(default_factory=lambda: deque(maxlen=_KEPT))
    since: float = 0.0
    """When the number was last set from outside: claims from before are old, and say so by their age."""

    def reset(self, at: float) -> None:
        """Forget the answers, because the number has been set."""
        self.answers.clear()
        self.since = at

    def wrong(self, value: int, told: float) -> str:
        """Return why the number cannot have been ``value`` at the time ``told``; empty if it can."""
        if told <= self.since:
            return ""
        for each in self.answers:
            if value < each.value and each.ended < told - SLACK:
                return f"{value}, told at {told:.3f}; a broker said {each.value} at {each.ended:.3f}"
            if value > each.value and each.began > told:
                return f"{value}, told at {told:.3f}; a broker said {each.value} at {each.began:.3f}"
        return ""


class Truth:
    """What the brokers have said of committed offsets and ends."""

    def __init__(self) -> None:
        self.committed: defaultdict[tuple[str, int], History] = defaultdict(History)
        """By group and partition."""
        self.ends: defaultdict[int, History] = defaultdict(History)
        """By partition."""
        self.claims = 0
        """Claims of the tap that were compared."""
        self._faultless: dict[str, tuple[Any, float]] = {}

    def offsets(self, groups: list[dict[str, Any]]) -> list[str]:
        """Compare the offsets and ends in the tap's view of groups; return what is wrong."""
        found = []
        for group in groups:
            for each in group["offsets"]:
                where = f"{group['group']}, partition {each['partition']}"
                why = self.committed[group["group"], each["partition"]].wrong(
                    each["committed"], each["committed_at"]
                )
                if why:
                    found.append(f"committed offset of {where} ({each['committed_from']}): {why}")
                self.claims += 1
                if each["end"] is None:
                    continue
                self.claims += 1
                why = self.ends[each["partition"]].wrong(each["end"], each["end_at"])
                if why and each["uncertain"] is None:
                    found.append(f"end of partition {each['partition']} ({each['end_from']}): {why}")
        return found

    def anomalies(self, group: dict[str, Any], table: Any, began: float, now: float) -> list[str]:
        """Return the anomalies of a group that are false: the broker has shown the same whole assignment for a while.

        Args:
            group: the tap's view of it.
            table: the assignment, None if the group is not stable or a partition has no owner.
            began: when the broker was asked.
            now: the time now.
        """
        name = group["group"]
        known = self._faultless.get(name)
        if table is None or known is None or known[0] != table:
            self._faultless[name] = (table, now)
            return []
        if table is None or began - known[1] < ANOMALY_FOR:
            return []
        return [f"false anomaly of {name}: {each['kind']}: {each['detail']}" for each in group["anomalies"]]


__all__ = ["ANOMALY_FOR", "SLACK", "Answer", "History", "Truth"]

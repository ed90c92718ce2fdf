"""The timeline of rebalances: the trigger and duration of each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Trigger:
    """The cause of a rebalance: ``kind`` is a constant of this module, ``reason`` the client's own words (JoinGroup v8+)."""

    kind: str
    member: str = ""
    client_id: str = ""
    reason: str | None = None


JOIN = "new member"
LEAVE = "leave"
HEARTBEAT_EXPIRED = "heartbeat expiration"
"""A member of a classic group was silent for its session timeout. The coordinator logs "removing member ... on heartbeat expiration"."""
SESSION_EXPIRED = "session expired"
"""The same in a KIP-848 or Streams group. The coordinator logs "fenced from the group because its session expired"."""
SUBSCRIPTION = "subscription change"
METADATA = "metadata change"
FOLLOW_UP = "cooperative follow-up"
REJOIN = "rejoin"
UNSEEN = "unknown"
"""The cause did not pass through the tap."""


@dataclass(slots=True)
class Rebalance:
    """A rebalance. Times are in seconds since the epoch; in a KIP-848 group, generations are epochs."""

    number: int
    group: str
    started: float
    trigger: Trigger
    before: int
    after: int = -1
    finished: float | None = None
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    members: int = 0

    def seconds(self, now: float) -> float:
        """Return its duration in seconds, up to ``now`` if it is not finished."""
        return max(0.0, (now if self.finished is None else self.finished) - self.started)

    def to_json(self, now: float) -> dict[str, Any]:
        """Describe the rebalance as the views show it."""
        return {
            "number": self.number,
            "group": self.group,
            "started": round(self.started, 3),
            "finished": None if self.finished is None else round(self.finished, 3),
            "seconds": round(self.seconds(now), 3),
            "generation_before": self.before,
            "generation": self.after,
            "trigger": self.trigger.kind,
            "member": self.trigger.member,
            "client_id": self.trigger.client_id,
            "reason": self.trigger.reason,
            "joined": list(self.joined),
            "left": list(self.left),
            "members": self.members,
        }


class Timeline:
    """The latest rebalances of all groups, at most ``limit``."""

    def __init__(self, limit: int) -> None:
        self._entries: deque[Rebalance] = deque(maxlen=limit)
        self.total = 0

    @property
    def forgotten(self) -> int:
        """Number of rebalances dropped at the limit."""
        return self.total - len(self._entries)

    def begin(self, group: str, at: float, trigger: Trigger, generation: int) -> Rebalance:
        """Add a rebalance.

        Args:
            group: the group's name.
            at: when it begins, in seconds since the epoch.
            trigger: the cause.
            generation: the generation before it.
        """
        self.total += 1
        entry = Rebalance(self.total, group, at, trigger, generation)
        self._entries.append(entry)
        return entry

    def recent(self, group: str, since: float) -> list[Rebalance]:
        """List a group's rebalances that began after a time, oldest first.

        Args:
            group: the group.
            since: the time in seconds since the epoch.
        """
        found = []
        for entry in reversed(self._entries):
            if entry.started < since:
                break
            if entry.group == group:
                found.append(entry)
        return found[::-1]

    def cancel(self, entry: Rebalance) -> None:
        """Remove an entry that turned out to be no rebalance."""
        try:
            self._entries.remove(entry)
            self.total -= 1
        except ValueError:
            pass

    def to_json(self, now: float, group: str | None = None) -> list[dict[str, Any]]:
        """Describe the rebalances, oldest first.

        Args:
            now: the current time in seconds since the epoch.
            group: only this group's rebalances.
        """
        return [entry.to_json(now) for entry in self._entries if group is None or entry.group == group]

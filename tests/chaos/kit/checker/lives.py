"""The lives of a topic: each time it is made, it is another one, with partitions, messages and offsets of its own."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

NEVER = float("inf")


@dataclass
class PartitionLog:
    """The contents of a partition at the end. Records are named by their index in these lists."""

    low: int
    offsets: list[int]
    ids: list[str]
    times: list[float]

    def index(self, offset: int) -> int | None:
        """Return the index of the record at an offset; None if there is none."""
        at = bisect_left(self.offsets, offset)
        return at if at < len(self.offsets) and self.offsets[at] == offset else None

    def below(self, offset: int) -> int:
        """Count the records with smaller offsets."""
        return bisect_left(self.offsets, offset)

    @classmethod
    def of(cls, line: dict[str, Any]) -> PartitionLog:
        """Make one from a line of the records."""
        return cls(line["low"], line["offsets"], line["ids"], line["times"])


@dataclass
class Life:
    """A topic from one time at which it was made to the next.

    Attributes:
        number: 0, 1, ...
        since: when it had been made.
        until: when its deletion began; never for the last.
        seen: when what it holds was read; never for the last, which was read after everything. 0 if nobody read it.
        logs: by partition; those that were there when it was read.
    """

    number: int
    since: float = 0.0
    until: float = NEVER
    seen: float = NEVER
    logs: dict[int, PartitionLog] = field(default_factory=dict)

    def has(self, partition: int, offset: int, name: str) -> bool:
        """Return whether a message is there.

        Args:
            partition: its number.
            offset: of the message.
            name: its id, which tells it from a message of another life.
        """
        log = self.logs.get(partition)
        index = None if log is None else log.index(offset)
        return log is not None and index is not None and log.ids[index] == name


def lives_of(
    events: Iterable[dict[str, Any]], pictures: Iterable[dict[str, Any]], topics: Iterable[str]
) -> dict[str, list[Life]]:
    """Return the lives of each topic, without the logs of the last.

    Args:
        events: in the order of their times.
        pictures: what earlier lives held.
        topics: all names.
    """
    found = {name: [Life(0)] for name in topics}
    for each in events:
        if each["what"] == "topic deleted":
            found[each["topic"]][-1].until = each["t0"]
        elif each["what"] == "topic made again":
            lives = found[each["topic"]]
            lives[-1].until = min(lives[-1].until, each["t"])
            lives[-1].seen = 0.0
            lives.append(Life(len(lives), since=each["t"]))
    for each in pictures:
        for life in found[each["topic"]][:-1]:
            if life.since <= each["t"] <= life.until:
                life.seen = each["t"]
                life.logs[each["partition"]] = PartitionLog.of(each)
    return found


@dataclass(frozen=True)
class Layout:
    """The number of partitions that a topic had for certain, in a time in which nobody changed that.

    Attributes:
        since: when the number had been changed.
        until: when the next change began.
        partitions: how many.
    """

    since: float
    until: float
    partitions: int


def layouts_of(events: Iterable[dict[str, Any]], partitions: dict[str, int]) -> dict[str, list[Layout]]:
    """Return the numbers of partitions that each topic had.

    Args:
        events: in the order of their times.
        partitions: how many each topic had at first.
    """
    changes: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    begun: dict[str, float] = {}
    for each in events:
        if each["what"] == "topic deleted":
            begun[each["topic"]] = each["t0"]
        elif each["what"] in ("topic made again", "topic grown"):
            name = each["topic"]
            t0 = begun.pop(name, each.get("t0", each["t"]))
            changes[name].append((t0, each["t"], each.get("partitions", partitions[name])))
    found: dict[str, list[Layout]] = {}
    for name, count in partitions.items():
        since, layouts = 0.0, []
        for t0, t, after in changes[name]:
            layouts.append(Layout(since, t0, count))
            since, count = t, after
        found[name] = [*layouts, Layout(since, NEVER, count)]
    return found


__all__ = ["NEVER", "Layout", "Life", "PartitionLog", "layouts_of", "lives_of"]

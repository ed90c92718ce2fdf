"""The records of a run, ordered by group, partition and offset."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.kit.checker.windows import Fault, Windows
from tests.chaos.kit.plan import Plan
from tests.chaos.kit.record import read

NEVER = float("inf")


class Delivery(NamedTuple):
    """A message in a client's hands: asked for at ``t0``, there at ``t1``, from daemon ``d``."""

    t0: float
    t1: float
    d: int
    reader: str


@dataclass
class PartitionLog:
    """What a partition holds at the end. Records are named by their index in these lists."""

    low: int
    offsets: list[int]
    ids: list[str]
    times: list[float]

    def index(self, offset: int) -> int | None:
        """The index of the record at an offset; None if there is none."""
        at = bisect_left(self.offsets, offset)
        return at if at < len(self.offsets) and self.offsets[at] == offset else None

    def below(self, offset: int) -> int:
        """How many records have smaller offsets."""
        return bisect_left(self.offsets, offset)


class Consumed:
    """What one group did with one partition, by the index of the record in the log."""

    def __init__(self, log: PartitionLog) -> None:
        size = len(log.offsets)
        self.log = log
        self.deliveries: list[list[Delivery] | None] = [None] * size
        self.settled = array("d", [NEVER]) * size
        """When a client first asked to acknowledge the record; for consumer instances, when one had it."""
        self.accepted = array("d", [NEVER]) * size
        """When an acknowledgement was first accepted."""
        self.acked_by: dict[int, int] = {}
        """The daemon that accepted it."""

    def first(self, index: int) -> Delivery | None:
        """The first delivery of a record."""
        found = self.deliveries[index]
        return None if found is None else min(found, key=lambda each: each.t1)


class Stray(NamedTuple):
    """A delivery of something that the log does not hold."""

    partition: int
    offset: int
    name: str
    delivery: Delivery


class GroupView:
    """What one group did.

    Attributes:
        partitions: by number.
        strays: deliveries that the log does not have.
        unknown: requests for messages whose outcome their clients do not know: ``t0``, ``t1``, daemon.
        rebalances: when members or assignments changed, ascending.
    """

    def __init__(self, name: str, topic: str, mode: str, logs: dict[tuple[str, int], PartitionLog]) -> None:
        self.name, self.topic, self.mode = name, topic, mode
        self.partitions = {number: Consumed(log) for (of, number), log in logs.items() if of == topic}
        self.strays: list[Stray] = []
        self.unknown: list[tuple[float, float, int]] = []
        self.rebalances: list[float] = []
        self.resets: list[tuple[float, int, int, int]] = []
        """Offsets set from outside: time, partition, from, to."""

    def rebalanced(self, since: float, until: float) -> bool:
        """Whether members or assignments changed in this time."""
        at = bisect_left(self.rebalances, since)
        return at < len(self.rebalances) and self.rebalances[at] <= until


class Evidence:
    """All records of a run.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = next(read(folder, "plan"))
        self.logs = {
            (each["topic"], each["partition"]): PartitionLog(
                each["low"], each["offsets"], each["ids"], each["times"]
            )
            for each in read(folder, "log")
        }
        self.faults = sorted(
            (
                Fault(each["kind"], each["daemon"], each["t0"], each["t1"], each["note"])
                for each in read(folder, "faults")
                if not each["note"].startswith("missed")
            ),
            key=lambda fault: fault.t0,
        )
        self.windows = Windows(self.faults)
        self.events = list(read(folder, "events"))
        self.began = self.events[0]["t"] if self.events else 0.0
        self.ended = self.events[-1]["t"] if self.events else 0.0
        self.timeline = [(each["t"], _text(each)) for each in self.events if each["what"] != "fault begins"]
        self.topics: dict[str, dict[str, Any]] = {each["name"]: each for each in self.plan["topics"]}
        self.groups = {
            group["name"]: GroupView(group["name"], topic["name"], group["mode"], self.logs)
            for topic in self.topics.values()
            for group in topic["groups"]
        }
        self._load()

    @property
    def minutes(self) -> float:
        """The length of the run."""
        return float((self.ended - self.began) / 60)

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        known = {key: self.plan[key] for key in ("seed", "minutes", "membership", "rate", "plant")}
        return Plan(**known, faults=tuple(self.plan["faults"]), topics=()).command()

    def produced(self) -> Iterator[dict[str, Any]]:
        """What was acknowledged to producers."""
        return read(self.folder, "produced")

    def unproduced(self) -> Iterator[dict[str, Any]]:
        """What was not acknowledged to producers."""
        return read(self.folder, "unproduced")

    def commits(self) -> Iterator[dict[str, Any]]:
        """Every commit, in the order of each partition."""
        return read(self.folder, "commits")

    def compacted(self, topic: str) -> bool:
        """Whether a topic is compacted."""
        return self.topics[topic]["config"].get("cleanup.policy") == "compact"

    def times_of(self, what: str, topic: str) -> list[float]:
        """When an event happened to a topic."""
        return [each["t"] for each in self.events if each["what"] == what and each["topic"] == topic]

    def _load(self) -> None:
        for each in read(self.folder, "delivered"):
            self._delivered(self.groups[each["group"]], each)
        # An acknowledgement for a topic that was made again since concerns other messages.
        remade = {name: max(self.times_of("topic made again", name), default=0.0) for name in self.topics}
        upto: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
        for each in read(self.folder, "acks"):
            group = self.groups[each["group"]]
            consumed = group.partitions.get(each["partition"])
            if consumed is None or each["t1"] < remade[group.topic]:
                continue
            if group.mode == "instance":
                if each["result"] == "ok":
                    upto[group.name, each["partition"]].append((each["offset"], each["t1"]))
                continue
            index = consumed.log.index(each["offset"])
            if index is not None:
                consumed.settled[index] = min(consumed.settled[index], each["t0"])
                if each["result"] == "ok" and each["t1"] < consumed.accepted[index]:
                    consumed.accepted[index] = each["t1"]
                    consumed.acked_by[index] = each["d"]
        for (name, partition), commits in upto.items():
            _accept(self.groups[name].partitions[partition], commits)
        for each in read(self.folder, "polls"):
            if each["result"] == "unknown":
                self.groups[each["group"]].unknown.append((each["t0"], each["t1"], each["d"]))
        for each in read(self.folder, "groups"):
            if each["group"] in self.groups:
                self.groups[each["group"]].rebalances.append(each["t"])
        for each in self.events:
            if each["what"] == "offsets reset":
                self.groups[each["group"]].resets += [(each["t0"], *move) for move in each["moves"]]
        for group in self.groups.values():
            group.rebalances.sort()
            group.unknown.sort()

    @staticmethod
    def _delivered(group: GroupView, each: dict[str, Any]) -> None:
        delivery = Delivery(each["t0"], each["t1"], each["d"], each["reader"])
        for partition, offset, name in each["records"]:
            consumed = group.partitions.get(partition)
            index = None if consumed is None else consumed.log.index(offset)
            if consumed is None or index is None or consumed.log.ids[index] != name:
                group.strays.append(Stray(partition, offset, name, delivery))
                continue
            found = consumed.deliveries[index]
            if found is None:
                consumed.deliveries[index] = [delivery]
            else:
                found.append(delivery)
            if group.mode == "auto":
                consumed.settled[index] = min(consumed.settled[index], delivery.t0)
                consumed.accepted[index] = min(consumed.accepted[index], delivery.t1)
            elif group.mode == "instance":
                consumed.settled[index] = min(consumed.settled[index], delivery.t1)


def _accept(consumed: Consumed, commits: list[tuple[int, float]]) -> None:
    """A commit of an instance accepts all records up to its offset."""
    for offset, t1 in commits:
        index = consumed.log.below(offset + 1) - 1
        if index >= 0:
            consumed.accepted[index] = min(consumed.accepted[index], t1)
    earliest = NEVER
    for index in range(len(consumed.accepted) - 1, -1, -1):
        earliest = consumed.accepted[index] = min(earliest, consumed.accepted[index])


def _text(event: dict[str, Any]) -> str:
    rest = ", ".join(f"{key} {value}" for key, value in event.items() if key not in ("t", "what", "t0"))
    return f"{event['what']}: {rest[:160]}"


__all__ = ["NEVER", "Consumed", "Delivery", "Evidence", "GroupView", "PartitionLog"]

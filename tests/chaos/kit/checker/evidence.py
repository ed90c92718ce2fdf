"""The records of a run, ordered by group, partition and offset."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.kit.checker.lives import NEVER, Life, PartitionLog, layouts_of, lives_of
from tests.chaos.kit.checker.windows import Fault, Windows
from tests.chaos.kit.plan import Plan
from tests.chaos.kit.record import read

_INSTANCES = ("instance made", "instance given up")


class Delivery(NamedTuple):
    """A message in a client's hands: asked for at ``t0``, there at ``t1``, from daemon ``d``."""

    t0: float
    t1: float
    d: int
    reader: str


class Consumed:
    """The history of one group with one partition, by the index of the record in the log."""

    def __init__(self, log: PartitionLog) -> None:
        size = len(log.offsets)
        self.log = log
        self.deliveries: list[list[Delivery] | None] = [None] * size
        self.settled = array("d", [NEVER]) * size
        """The time at which a client first asked to acknowledge the record; for consumer instances, when one had it."""
        self.accepted = array("d", [NEVER]) * size
        """The time at which an acknowledgement was first accepted."""
        self.acked_by: dict[int, int] = {}
        """The daemon that accepted it."""

    def first(self, index: int) -> Delivery | None:
        """Return the first delivery of a record."""
        found = self.deliveries[index]
        return None if found is None else min(found, key=lambda each: each.t1)


class Stray(NamedTuple):
    """A delivery of something that the log does not hold."""

    partition: int
    offset: int
    name: str
    delivery: Delivery


class GroupView:
    """The history of one group in one life of its topic.

    Attributes:
        life: of the topic.
        partitions: by number.
        strays: deliveries that no log has; these and what follows are common to all lives.
        unknown: requests for messages whose outcome their clients do not know: ``t0``, ``t1``, daemon.
        rebalances: when members, assignments or instances changed, ascending.
        resets: offsets set from outside: time, partition, from, to.
    """

    def __init__(self, name: str, topic: str, mode: str, life: Life, last: GroupView | None = None) -> None:
        self.name, self.topic, self.mode, self.life = name, topic, mode, life
        self.partitions = {number: Consumed(log) for number, log in life.logs.items()}
        self.strays: list[Stray] = [] if last is None else last.strays
        self.unknown: list[tuple[float, float, int]] = [] if last is None else last.unknown
        self.rebalances: list[float] = [] if last is None else last.rebalances
        self.resets: list[tuple[float, int, int, int]] = [] if last is None else last.resets

    def rebalanced(self, since: float, until: float) -> bool:
        """Return whether members or assignments changed in this time.

        Args:
            since: wall-clock time, in seconds.
            until: likewise; both inclusive.
        """
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
            (each["topic"], each["partition"]): PartitionLog.of(each) for each in read(folder, "log")
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
        self.deaths = [
            (each["t"], each["d"]) for each in self.events if each["what"] == "daemon ended" and each["code"]
        ]
        """Times and numbers of daemons that ended otherwise than by a stop."""
        self.began = self.events[0]["t"] if self.events else 0.0
        self.ended = self.events[-1]["t"] if self.events else 0.0
        self.timeline = [(each["t"], _text(each)) for each in self.events if each["what"] != "fault begins"]
        self.topics: dict[str, dict[str, Any]] = {each["name"]: each for each in self.plan["topics"]}
        self.lives = lives_of(self.events, read(folder, "lives"), self.topics)
        for (topic, partition), log in self.logs.items():
            self.lives[topic][-1].logs[partition] = log
        self.layouts = layouts_of(
            self.events, {name: topic["partitions"] for name, topic in self.topics.items()}
        )
        self.groups: dict[str, GroupView] = {}
        """In the last life of their topics."""
        self._views: dict[str, list[GroupView]] = {}
        for name, topic in self.topics.items():
            for group in topic["groups"]:
                self._add_group(group, name)
        self._load()

    def _add_group(self, group: dict[str, Any], topic: str) -> None:
        name, mode = group["name"], group["mode"]
        *earlier, life = self.lives[topic]
        last = self.groups[name] = GroupView(name, topic, mode, life)
        self._views[name] = [*(GroupView(name, topic, mode, each, last) for each in earlier), last]

    @property
    def views(self) -> list[GroupView]:
        """All groups in all lives of their topics."""
        return [view for views in self._views.values() for view in views]

    def view_at(self, group: str, t: float) -> GroupView:
        """Return a group in the life that its topic had at a time, or the one before if it had none."""
        return next(view for view in reversed(self._views[group]) if t >= view.life.since)

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
        """Read the messages that were acknowledged to producers."""
        return read(self.folder, "produced")

    def accepted(self) -> Iterator[dict[str, Any]]:
        """Read the messages that asynchronous requests have handed to daemons."""
        return read(self.folder, "accepted")

    def unproduced(self) -> Iterator[dict[str, Any]]:
        """Read the messages that were not acknowledged to producers."""
        return read(self.folder, "unproduced")

    def commits(self) -> Iterator[dict[str, Any]]:
        """Return every commit, in the order of each partition."""
        return read(self.folder, "commits")

    def compacted(self, topic: str) -> bool:
        """Return whether a topic is compacted."""
        return self.topics[topic]["config"].get("cleanup.policy") == "compact"

    def times_of(self, what: str, topic: str) -> list[float]:
        """Return the times at which an event happened to a topic.

        Args:
            what: the event, by its name in the records.
            topic: its name.
        """
        return [each["t"] for each in self.events if each["what"] == what and each["topic"] == topic]

    def _load(self) -> None:
        for each in read(self.folder, "delivered"):
            self._delivered(self._views[each["group"]], each)
        self._load_acks()
        for each in read(self.folder, "polls"):
            if each["result"] == "unknown":
                self.groups[each["group"]].unknown.append((each["t0"], each["t1"], each["d"]))
        for each in read(self.folder, "groups"):
            if each["group"] in self.groups:
                self.groups[each["group"]].rebalances.append(each["t"])
        for each in self.events:
            if each["what"] == "offsets reset":
                self.groups[each["group"]].resets += [(each["t0"], *move) for move in each["moves"]]
            elif each["what"] in _INSTANCES:  # where partitions are chosen, no rebalance tells of it
                self.groups[each["group"]].rebalances.append(each["t"])
        for group in self.groups.values():
            group.rebalances.sort()
            group.unknown.sort()

    def _load_acks(self) -> None:
        upto: dict[tuple[str, int, int], list[tuple[int, float]]] = defaultdict(list)
        for each in read(self.folder, "acks"):
            # An acknowledgement for a topic that was made again since concerns other messages. One that went out with a
            # long poll may be answered in the topic's next life.
            group, earlier = (self.view_at(each["group"], each[t]) for t in ("t1", "t0"))
            if group.mode != "instance":
                for view in {group.life.number: group, earlier.life.number: earlier}.values():
                    _settle(view, each)
            consumed = group.partitions.get(each["partition"])
            if consumed is None:
                continue
            if group.mode == "instance":
                if each["result"] == "ok":
                    place = (group.name, group.life.number, each["partition"])
                    upto[place].append((each["offset"], each["t1"]))
                continue
            index = consumed.log.index(each["offset"])
            if index is not None and each["result"] == "ok" and each["t1"] < consumed.accepted[index]:
                consumed.accepted[index] = each["t1"]
                consumed.acked_by[index] = each["d"]
        for (name, life, partition), commits in upto.items():
            _accept(self._views[name][life].partitions[partition], commits)

    @staticmethod
    def _delivered(views: list[GroupView], each: dict[str, Any]) -> None:
        delivery = Delivery(each["t0"], each["t1"], each["d"], each["reader"])
        group = views[-1]
        for partition, offset, name in each["records"]:
            life = next((view for view in reversed(views) if view.life.has(partition, offset, name)), None)
            if life is None:
                group.strays.append(Stray(partition, offset, name, delivery))
                continue
            consumed = life.partitions[partition]
            index = consumed.log.below(offset)
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


def _settle(group: GroupView, ack: dict[str, Any]) -> None:
    """Note that a client has asked to acknowledge a message."""
    consumed = group.partitions.get(ack["partition"])
    index = None if consumed is None else consumed.log.index(ack["offset"])
    if consumed is not None and index is not None:
        consumed.settled[index] = min(consumed.settled[index], ack["t0"])


def _accept(consumed: Consumed, commits: list[tuple[int, float]]) -> None:
    """Note a commit of an instance, which accepts all records up to its offset."""
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

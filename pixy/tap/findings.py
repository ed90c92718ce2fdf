"""Findings: what is wrong with a group or a client of any software, with its evidence and advice.

A finding has the shape that the daemon's findings have, so that one page can show both. Rules are pure: they look at the
state that the observer keeps and at the time they are given. A finding keeps the time at which its rule held first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pixy.tap import anomalies
from pixy.tap.groups import Commit, Group, Partition
from pixy.tap.latency import api_name
from pixy.tap.lru import LruDict
from pixy.tap.registry import Registry
from pixy.tap.topics import Topics
from pixy.tap.traffic import EXPECTED, Traffic, error_name

_FALLBACK: Final = (18, 35)
"""ApiVersions refused in its version: clients ask again in an earlier one (KIP-511)."""
RECENT: Final = 60.0
"""Seconds for which an error or a throttled response stays a finding."""
STALLED: Final = 60.0
"""Seconds without a commit, while records wait, after which a partition is stalled; also the age of a commit from which on a
later one may have gone elsewhere, unless its owner sends its requests through the tap."""
LONG_REBALANCE: Final = 60.0
MANY_REBALANCES: Final = 5
MANY_WITHIN: Final = 300.0
THROTTLED: Final = 1.0
"""Seconds of throttle time that make a finding."""
REDELIVERED: Final = 0.2
"""Share of redelivered records in a share group that makes a finding, from :data:`_ENOUGH` records on."""
_ENOUGH: Final = 100
_SHOWN: Final = 10
_KEPT: Final = 1_000

_ADVICE: Final = {
    anomalies.UNOWNED: "Read the group's last rebalance and the leader's assignor: nobody reads these partitions.",
    anomalies.DOUBLE: "Restart the older member: it missed a rebalance, and its commits will be refused.",
    anomalies.MIXED: "Give all members the same partition.assignment.strategy.",
    anomalies.SPLIT: "Look at the members behind: they have not joined the latest generation.",
}
_DOWN: Final = frozenset({anomalies.UNOWNED, anomalies.DOUBLE})


class _Stalled(NamedTuple):
    """A partition whose records wait while nothing is committed."""

    partition: int
    records: int
    since: float
    commit_age: float
    """Seconds since the commit was told."""
    certain: bool
    """Whether a later commit would have passed the tap, or the coordinator has told this one just now."""


@dataclass(slots=True)
class _Unreached:
    """A broker that the tap has found no connection to."""

    first: float
    last: float = 0.0
    count: int = 0
    reason: str = ""


@dataclass(slots=True)
class Finding:
    """A cause of trouble.

    Attributes:
        rule: its name, such as ``stalled-partition``.
        severity: ``error`` if records do not flow, otherwise ``warning``.
        cause: one sentence.
        todo: one sentence that begins with a verb.
        since: the time at which it began, in seconds since the epoch.
        where: what it is about: ``group``, ``topic``, ``client``, ``api``.
        evidence: the figures behind it.
    """

    rule: str
    severity: str
    cause: str
    todo: str
    since: float
    where: dict[str, Any]
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Identify the finding: a later one of the same rule about the same thing is the same finding."""
        return self.rule, *sorted((name, str(value)) for name, value in self.where.items())

    def document(self, at: float) -> dict[str, Any]:
        """Return it as JSON has it.

        Args:
            at: the current time in seconds since the epoch.
        """
        return {
            "rule": self.rule,
            "severity": self.severity,
            "cause": self.cause,
            "todo": self.todo,
            "since": round(self.since, 3),
            "age": round(max(0.0, at - self.since), 3),
            "where": dict(self.where),
            "evidence": dict(self.evidence),
        }


class Findings:
    """The findings that hold now.

    Args:
        registry: the groups.
        traffic: errors and throttle times.
    """

    def __init__(self, registry: Registry, traffic: Traffic) -> None:
        self._registry, self._traffic = registry, traffic
        self._open: LruDict[tuple[Any, ...], Finding] = LruDict(_KEPT)
        self._waiting: LruDict[tuple[str, Partition], tuple[Commit, float]] = LruDict(
            registry.config.bounds.partitions
        )
        """By group and partition: the last commit, and since when records have waited behind it."""
        self._unreached: LruDict[str, _Unreached] = LruDict(_KEPT)

    def unreached(self, broker: str, reason: str, at: float) -> None:
        """Note that a client was turned away, because the tap has found no connection to a broker.

        Args:
            broker: its address.
            reason: why, in words.
            at: when, in seconds since the epoch.
        """
        known = self._unreached.get(broker)
        if known is None or at - known.last > RECENT:
            known = self._unreached[broker] = _Unreached(at)
        known.last, known.count, known.reason = at, known.count + 1, reason

    def tick(self, at: float, emit: Callable[..., None]) -> None:
        """Evaluate the rules, and emit ``finding`` and ``finding.over`` for what has begun and ended.

        Args:
            at: the current time in seconds since the epoch.
            emit: reports events.
        """
        found = {each.key: each for each in self._found(at)}
        for key in [each for each in self._open if each not in found]:
            over = self._open.pop(key)
            if over is not None:
                emit("finding.over", at, rule=over.rule, where=over.where)
        for key, each in found.items():
            known = self._open.get(key)
            if known is None:
                self._open[key] = each
                emit("finding", at, **each.document(at))
            else:
                each.since = min(known.since, each.since)
                self._open[key] = each

    def to_json(self, now: float) -> list[dict[str, Any]]:
        """Describe the findings, errors first, then the oldest first.

        Args:
            now: the current time in seconds since the epoch.
        """
        return [
            each.document(now)
            for each in sorted(self._open.values(), key=lambda each: (each.severity != "error", each.since))
        ]

    def counts(self) -> dict[tuple[str, str], int]:
        """Count the findings by rule and severity."""
        counted: dict[tuple[str, str], int] = {}
        for each in self._open.values():
            counted[each.rule, each.severity] = counted.get((each.rule, each.severity), 0) + 1
        return counted

    # -- rules -------------------------------------------------------------------------------------

    def _found(self, at: float) -> Iterator[Finding]:
        for group in self._registry.groups.values():
            yield from _of_anomalies(group, at)
            yield from self._waiting_records(group, at)
            yield from self._rebalancing(group, at)
            yield from _redelivering(group, at)
        yield from self._failing(at)
        yield from self._throttled(at)
        for broker, found in self._unreached.items():
            if at - found.last <= RECENT:
                yield Finding(
                    "broker-unreachable",
                    "error",
                    f"Clients are turned away: {found.reason}.",
                    "See whether the broker runs, and whether --broker names it.",
                    found.first,
                    {"broker": broker},
                    {"count": found.count, "last": round(found.last, 3)},
                )

    def _waiting_records(self, group: Group, at: float) -> Iterator[Finding]:
        """Find partitions whose records wait while nothing is committed."""
        topics = self._registry.topics
        stalled: dict[str, list[_Stalled]] = {}
        here: frozenset[Partition] | None = None
        for (topic, partition), commit in group.committed.items():
            key = (group.id, (topic, partition))
            end = topics.end(topic, partition)
            if end is None or end <= commit.offset:
                self._waiting.pop(key)
                continue
            known = self._waiting.get(key)
            if known is None or known[0].offset != commit.offset:
                known = self._waiting[key] = (commit, at)
            if at - known[1] < STALLED:
                continue
            here = _owned_here(group, topics, at) if here is None else here
            age = max(0.0, at - commit.at)
            certain = age < STALLED or (topics.resolve(topic), partition) in here
            stalled.setdefault(topics.show(topic), []).append(
                _Stalled(partition, end - commit.offset, known[1], age, certain)
            )
        for name, found in sorted(stalled.items()):
            yield _of_waiting(group, name, [each for each in found if each.certain] or found, at)

    def _rebalancing(self, group: Group, at: float) -> Iterator[Finding]:
        where = {"group": group.id}
        current = group.rebalance
        if current is not None and current.seconds(at) > LONG_REBALANCE:
            waits = [each.id for each in group.alive() if each.id not in group.expected and each.seen_here]
            yield Finding(
                "long-rebalance",
                "error",
                f"{group.id} has been rebalancing for more than {LONG_REBALANCE:.0f} s.",
                "Look at the members that have not joined: they are inside a long poll loop or hang.",
                current.started,
                where,
                {"trigger": current.trigger.kind, "waits_for": waits[:_SHOWN]},
            )
        recent = self._registry.timeline.recent(group.id, at - MANY_WITHIN)
        if len(recent) >= MANY_REBALANCES:
            triggers: dict[str, int] = {}
            for each in recent:
                triggers[each.trigger.kind] = triggers.get(each.trigger.kind, 0) + 1
            yield Finding(
                "rebalances-often",
                "warning",
                f"{group.id} has rebalanced {len(recent)} times in {MANY_WITHIN / 60:.0f} minutes.",
                "Raise max.poll.interval.ms or session.timeout.ms, or use static members (group.instance.id).",
                recent[0].started,
                where,
                {"triggers": triggers},
            )

    def _failing(self, at: float) -> Iterator[Finding]:
        for (key, code, topic, client_id), found in self._traffic.failures.items():
            if code in EXPECTED or (key, code) == _FALLBACK or at - found.last > RECENT:
                continue
            where = {"api": api_name(key), "client": client_id, "error": error_name(code)}
            about = f" of {self._registry.topics.show(topic)}" if topic else ""
            if topic:
                where["topic"] = self._registry.topics.show(topic)
            yield Finding(
                "failing-requests",
                "warning",
                f"{api_name(key)} requests{about} of {client_id or 'a client without an id'} fail: {error_name(code)}.",
                "Look the error up in Kafka's protocol guide, and at this client's log.",
                found.first,
                where,
                {"count": found.count, "last": round(found.last, 3)},
            )

    def _throttled(self, at: float) -> Iterator[Finding]:
        for (key, client_id), found in self._traffic.throttled.items():
            if found.seconds >= THROTTLED and at - found.last <= RECENT:
                yield Finding(
                    "throttled",
                    "warning",
                    f"The broker throttles {api_name(key)} of {client_id or 'a client without an id'}.",
                    "Raise the client's quota, or make it ask for less.",
                    found.last,
                    {"api": api_name(key), "client": client_id},
                    {"responses": found.count, "seconds": round(found.seconds, 3)},
                )


def _owned_here(group: Group, topics: Topics, at: float) -> frozenset[Partition]:
    """Return the partitions whose owners send heartbeats through the tap: to the coordinator, which also gets their commits."""
    return frozenset(
        (topics.resolve(topic), number)
        for (topic, number), member in group.owners()
        if member.connection is not None and at - member.last_seen <= member.patience()
    )


def _of_waiting(group: Group, topic: str, found: list[_Stalled], at: float) -> Finding:
    """Make the finding about partitions whose records wait: all certain, or none."""
    since, age = min(each.since for each in found), max(each.commit_age for each in found)
    certain, members = found[0].certain, bool(len(group.members))
    old = f"the last commit seen is {age:.0f} s old, and later ones may have gone elsewhere"
    if members:
        rule = "stalled-partition"
        cause = f"{group.id} has members, but commits nothing on {len(found)} partitions of {topic}"
        todo = "Look at the members that own them: they do not process, or do not commit."
    else:
        rule = "no-consumer"
        cause = f"Records of {topic} wait for {group.id}, which has no member"
        todo = "Start a consumer, or delete the group if nobody needs it any more."
    if not certain:
        cause, todo = (
            f"{cause} here: {old}",
            "Ask the brokers (--verify), or lead the group's members through the tap.",
        )
    return Finding(
        rule,
        "error" if certain else "warning",
        f"{cause}.",
        todo,
        since,
        {"group": group.id, "topic": topic},
        {
            "partitions": sorted(each.partition for each in found)[:_SHOWN],
            "records": sum(each.records for each in found),
            "seconds": round(at - since, 1),
            "commit_age": round(age, 1),
            "certain": certain,
        },
    )


def _of_anomalies(group: Group, at: float) -> Iterator[Finding]:
    for kind, detail in sorted(group.anomalies):
        if kind in _ADVICE:
            yield Finding(
                kind.replace(" ", "-"),
                "error" if kind in _DOWN else "warning",
                f"{group.id}: {kind}: {detail}.",
                _ADVICE[kind],
                at,
                {"group": group.id},
            )


def _redelivering(group: Group, at: float) -> Iterator[Finding]:
    members = group.members.values()
    acquired = sum(each.acquired for each in members)
    again = sum(each.redelivered for each in members)
    if group.kind == "share" and acquired >= _ENOUGH and again > REDELIVERED * acquired:
        yield Finding(
            "redelivered-often",
            "warning",
            f"{group.id} receives {again} of {acquired} records again.",
            "Acknowledge within group.share.record.lock.duration.ms, and look at why records are released.",
            at,
            {"group": group.id},
            {"acquired": acquired, "redelivered": again},
        )


__all__ = ["Finding", "Findings"]

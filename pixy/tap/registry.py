"""All groups, with what every kind of group has in common: coming, going, rebalances, anomalies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pixy.tap import rebalances
from pixy.tap.anomalies import anomalies
from pixy.tap.config import TapConfig
from pixy.tap.groups import Group, Member, State
from pixy.tap.lru import LruDict
from pixy.tap.rebalances import Rebalance, Timeline, Trigger
from pixy.tap.topics import Topics

Emit = Callable[..., None]
"""(event name, time, fields...)"""

_NEARLY = 0.9  # of the session timeout: the coordinator's clock began before ours


@dataclass(slots=True)
class Peer:
    """A connection, as far as groups care."""

    number: int
    client: str = ""
    broker: str = ""
    client_id: str = ""
    software: tuple[str, str] = ("unknown", "")

    @property
    def software_text(self) -> str:
        """Name and version."""
        return " ".join(each for each in self.software if each)


class Registry:
    """The groups of a cluster."""

    def __init__(self, config: TapConfig, topics: Topics, emit: Emit) -> None:
        self.config = config
        self.topics = topics
        self.emit = emit
        self.groups: LruDict[str, Group] = LruDict(config.bounds.groups)
        self.timeline = Timeline(config.bounds.timeline)
        self.finished: Counter[str] = Counter()
        """Rebalances that have come to their end, by trigger."""
        self.rebalance_seconds = 0.0

    def group(self, group_id: str) -> Group:
        """The group of that name; a new one if it is not known."""
        return self.groups.get_or_create(group_id, lambda: Group(group_id, self.config.bounds))

    def member(self, group: Group, member_id: str) -> Member:
        """The member of that name; a new one if it is not known."""
        return group.members.get_or_create(member_id, lambda: Member(member_id))

    def touch(self, member: Member, peer: Peer, at: float) -> None:
        """A request of a member came on this connection."""
        member.seen_here = True
        member.connection, member.lost_at, member.last_seen = peer.number, None, at
        member.host = peer.client
        member.software = peer.software_text
        member.client_id = peer.client_id or member.client_id

    def begin(self, group: Group, at: float, trigger: Trigger) -> Rebalance:
        """A rebalance begins, unless one is under way."""
        if group.rebalance is None:
            group.rebalance = self.timeline.begin(group.id, at, trigger, group.generation)
            group.state = State.PREPARING if group.kind == "classic" else State.RECONCILING
            self.emit(
                "rebalance.started",
                at,
                group=group.id,
                generation=group.generation,
                trigger=trigger.kind,
                member=trigger.member,
                client_id=trigger.client_id,
                reason=trigger.reason,
            )
        return group.rebalance

    def finish(self, group: Group, at: float) -> None:
        """All members know what they have."""
        group.state = State.STABLE if len(group.members) else State.EMPTY
        for member in group.alive():
            self.announce(group, member, at)
        entry = group.rebalance or group.last_rebalance
        if entry is None or (group.rebalance is None and entry.after != group.generation):
            return
        entry.finished, entry.after, entry.members = at, group.generation, len(group.members)
        if group.rebalance is not None:
            group.last_rebalance, group.rebalance = entry, None
            self.finished[entry.trigger.kind] += 1
            self.rebalance_seconds += entry.seconds(at)
            self.emit(
                "rebalance.finished",
                at,
                **{
                    name: value
                    for name, value in entry.to_json(at).items()
                    if name not in {"started", "finished"}
                },
            )

    def joined(self, group: Group, member: Member, at: float) -> None:
        """A member is new."""
        member.joined_at = at
        if group.rebalance is not None and len(group.rebalance.joined) < group.bounds.members:
            group.rebalance.joined.append(member.id)
        if member.seen_here:
            self.announce(group, member, at)

    def announce(self, group: Group, member: Member, at: float) -> None:
        """Say that a member is new, once: as soon as it was seen, or when the rebalance is over without."""
        if member.announced:
            return
        member.announced = True
        self.emit(
            "member.joined",
            at,
            group=group.id,
            member=member.id,
            client_id=member.client_id,
            instance_id=member.instance_id,
            host=member.host,
            software=member.software,
        )

    def gone(
        self, group: Group, member_id: str, how: str, at: float, reason: str | None = None
    ) -> Member | None:
        """A member is no more."""
        member = group.remove(member_id, how, at, reason)
        if member is None:
            return None
        if group.rebalance is not None:
            group.rebalance.left.append(member_id)
            if group.rebalance.trigger.kind in {rebalances.UNSEEN, rebalances.REJOIN} and how not in {
                "left",
                "replaced",
            }:
                group.rebalance.trigger = Trigger(rebalances.TIMEOUT, member_id, member.client_id)
        self.emit(
            "member.gone",
            at,
            group=group.id,
            member=member_id,
            client_id=member.client_id,
            how=how,
            reason=reason,
        )
        if not len(group.members):
            group.state = State.EMPTY
            group.expected.clear()
            if group.rebalance is not None:
                self.finish(group, at)
        return member

    def cause(self, group: Group, at: float) -> Trigger:
        """Why members have to join again, if nobody was seen to come or go."""
        for gone in reversed(group.gone):
            if gone.how == "timed out" and at - gone.at <= 2 * gone.member.patience():
                return Trigger(rebalances.TIMEOUT, gone.member.id, gone.member.client_id)
            break
        for member in group.alive():
            if member.seen_here and at - member.last_seen >= _NEARLY * member.patience():
                return Trigger(rebalances.TIMEOUT, member.id, member.client_id)
        return Trigger(rebalances.UNSEEN)

    def disconnected(self, connection: int, at: float) -> None:
        """A connection is over: its members have not left, but will be missed."""
        for group in self.groups.values():
            for member in group.members.values():
                if member.connection == connection:
                    member.connection, member.lost_at = None, at
                    self.emit(
                        "member.disconnected",
                        at,
                        group=group.id,
                        member=member.id,
                        client_id=member.client_id,
                    )

    def tick(self, at: float) -> None:
        """Time has passed: who has not been heard of for too long is gone; anomalies come and go."""
        for group in self.groups.values():
            for member in group.alive():
                if member.seen_here and at - member.last_seen > member.patience():
                    self.gone(group, member.id, "timed out", at)
            found = (
                frozenset(anomalies(group, self.topics)) if group.state is State.STABLE else group.anomalies
            )
            if not len(group.members):
                found = frozenset()
            if found != group.anomalies:
                for kind, text in sorted(found - group.anomalies):
                    self.emit("anomaly", at, group=group.id, kind=kind, detail=text)
                for kind, text in sorted(group.anomalies - found):
                    self.emit("anomaly.over", at, group=group.id, kind=kind, detail=text)
                group.anomalies = found

    def forgotten(self) -> dict[str, int]:
        """What was forgotten, by kind."""
        return {
            "groups": self.groups.forgotten,
            "members": sum(group.members.forgotten for group in self.groups.values()),
            "commits": sum(group.committed.forgotten for group in self.groups.values()),
            "rebalances": self.timeline.forgotten,
        }


def describe(group: Group, topics: Topics, now: float) -> dict[str, Any]:
    """A group as the views show it."""
    offsets = [
        _offset(topics, topic, partition, offset, at)
        for (topic, partition), (offset, at) in group.committed.items()
    ]
    lags = [each["lag"] for each in offsets if each["lag"] is not None]
    return {
        "group": group.id,
        "kind": group.kind,
        "state": group.state.value,
        "generation": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "path": group.path.value,
        "leader": group.leader,
        "members": [_member(member, topics, now) for member in group.alive()],
        "gone": [
            {
                "member": each.member.id,
                "client_id": each.member.client_id,
                "how": each.how,
                "at": round(each.at, 3),
                "reason": each.reason,
            }
            for each in group.gone
        ],
        "rebalance": None if group.rebalance is None else group.rebalance.to_json(now),
        "lag": sum(lags) if lags else None,
        "offsets": sorted(offsets, key=lambda each: (each["topic"], each["partition"])),
        "anomalies": [{"kind": kind, "detail": text} for kind, text in sorted(group.anomalies)],
    }


def _member(member: Member, topics: Topics, now: float) -> dict[str, Any]:
    owned: dict[str, list[int]] | None = None
    if member.partitions is not None:
        owned = {}
        for topic, partition in member.partitions:
            owned.setdefault(topics.show(topic), []).append(partition)
        owned = {topic: sorted(owned[topic]) for topic in sorted(owned)}
    return {
        "member": member.id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "software": member.software,
        "status": member.status,
        "generation": member.generation,
        "path": member.path.value,
        "subscription": sorted(member.subscription),
        "pattern": member.pattern,
        "assignors": list(member.assignors),
        "partitions": owned,
        "last_seen": round(max(0.0, now - member.last_seen), 3) if member.seen_here else None,
    }


def _offset(topics: Topics, topic: Any, partition: int, offset: int, at: float) -> dict[str, Any]:
    end = topics.end(topic, partition)
    return {
        "topic": topics.show(topic),
        "partition": partition,
        "committed": offset,
        "end": end,
        "lag": None if end is None else max(0, end - offset),
        "committed_at": round(at, 3),
    }

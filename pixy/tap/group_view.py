"""A group as the views show it: JSON with members, partitions, offsets, lag and anomalies."""

from __future__ import annotations

from typing import Any

from pixy.tap import ends
from pixy.tap.groups import Commit, Group, Member
from pixy.tap.topics import Topics


def describe(group: Group, topics: Topics, now: float) -> dict[str, Any]:
    """Describe a group as the views show it.

    Args:
        group: the group.
        topics: names and end offsets.
        now: the current time in seconds since the epoch.
    """
    offsets = offsets_of(group, topics, now)
    known = [each for each in offsets if each["lag"] is not None]
    return {
        "group": group.id,
        "kind": group.kind,
        "type": group.type,
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
        "lag": sum(each["lag"] for each in known) if known else None,
        "lag_age": max((each["lag_age"] for each in known), default=None),
        "lag_end_age": max((each["end_age"] for each in known), default=None),
        "lag_commit_age": max((each["committed_age"] for each in known), default=None),
        "lag_unknown": len(offsets) - len(known),
        "lag_uncertain": sorted({each["uncertain"] for each in offsets if each["uncertain"]}),
        "verified_at": None if group.verified is None else round(group.verified, 3),
        "coordinator": None
        if group.broker_state is None
        else {"state": group.broker_state[0], "at": round(group.broker_state[1], 3)},
        "offsets": offsets,
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
        **_share(member),
        "last_seen": round(max(0.0, now - member.last_seen), 3) if member.seen_here else None,
    }


def _share(member: Member) -> dict[str, Any]:
    """Describe what is particular to members of share groups and of Streams groups."""
    found: dict[str, Any] = {}
    if member.acquired or member.acknowledged:
        found = {
            "acquired": member.acquired,
            "redelivered": member.redelivered,
            "acknowledged": dict(sorted(member.acknowledged.items())),
        }
    if member.standby is not None:
        tasks: dict[str, list[int]] = {}
        for subtopology, partition in sorted(member.standby, key=str):
            tasks.setdefault(str(subtopology), []).append(partition)
        found["standby"] = tasks
    return found


def offsets_of(group: Group, topics: Topics, now: float) -> list[dict[str, Any]]:
    """Describe a group's committed offsets with ends, lags and ages, by topic and partition.

    Args:
        group: the group.
        topics: names and end offsets.
        now: the current time in seconds since the epoch.
    """
    latest: dict[tuple[str, int], tuple[Any, Commit]] = {}
    for (topic, partition), commit in group.committed.items():
        # A commit by id, whose topic had no name then, and one by name may be of the same partition.
        key = (topics.show(topic), partition)
        if key not in latest or latest[key][1].at <= commit.at:
            latest[key] = (topics.resolve(topic), commit)
    return [
        _offset(topics, name, partition, topic, commit, now)
        for (name, partition), (topic, commit) in sorted(latest.items())
    ]


def _offset(
    topics: Topics, name: str, partition: int, topic: Any, commit: Commit, now: float
) -> dict[str, Any]:
    end = topics.ends.get(topic, partition)
    uncertain = None
    if end is not None and end.unanswered is not None:
        uncertain = "written since the end was known, and no response told the end"
    elif end is not None and end.source == ends.STABLE:
        uncertain = "the end of committed transactions, not of the log"
    elif end is not None and commit.offset > end.offset:
        uncertain = "committed beyond the known end"
    return {
        "topic": name,
        "partition": partition,
        "committed": commit.offset,
        "committed_at": round(commit.at, 3),
        "committed_age": round(max(0.0, now - commit.at), 3),
        "committed_from": commit.source,
        **ends.describe(end),
        "end_age": None if end is None else round(max(0.0, now - end.at), 3),
        "lag": None if end is None else max(0, end.offset - commit.offset),
        "lag_age": None if end is None else round(max(0.0, now - min(end.at, commit.at)), 3),
        "uncertain": uncertain,
    }

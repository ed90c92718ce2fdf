"""A group as the views show it: JSON with members, partitions, offsets, lag and anomalies."""

from __future__ import annotations

from typing import Any

from pixy.tap.groups import Group, Member
from pixy.tap.topics import Topics


def describe(group: Group, topics: Topics, now: float) -> dict[str, Any]:
    """Describe a group as the views show it.

    Args:
        group: the group.
        topics: names and end offsets.
        now: the current time in seconds since the epoch.
    """
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

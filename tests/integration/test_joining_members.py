"""A member that stops while it joins, on a real Kafka: the group forgets it at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pixy.kafka import settings
from pixy.kafka.admin import KafkaAdmin
from pixy.membership import Assigned, Revoked
from pixy.membership.kafka.session import KafkaSession
from tests.kafka.cluster import Cluster
from tests.kafka.relay import Relay, relayed
from tests.support import eventually, make_config

JOIN, SYNC, HEARTBEAT = 11, 14, 68
"""The keys of JoinGroup, SyncGroup and ConsumerGroupHeartbeat."""
LATE = 0.4
SLOW_SESSIONS = {
    "group.consumer.session.timeout.ms": 60_000,
    "group.consumer.max.session.timeout.ms": 60_000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
}
CASES: tuple[tuple[str, int, int, dict[str, float]], ...] = (
    ("classic", JOIN, 1, {"answers": LATE}),  # the one with the member's id
    ("classic", JOIN, 2, {"answers": LATE}),
    ("classic", JOIN, 2, {"requests": 0.1}),
    ("classic", SYNC, 1, {"answers": LATE}),
    ("consumer", HEARTBEAT, 1, {"answers": LATE}),
    ("consumer", HEARTBEAT, 1, {"requests": 0.1}),
)
"""Protocol, the API's key, which of its requests is under way when the member stops, and what of it comes late."""


def session(peers: list[str], group: str, protocol: str, events: list[Any]) -> KafkaSession:
    """Join without end for whoever waits for a member that is gone: sessions expire after a minute."""
    proxy = make_config(peers, group_protocol=protocol, session_timeout=60.0, heartbeat_interval=0.5).proxies[
        "default"
    ]

    def happened(event: Any) -> None:
        events.append(event)
        if isinstance(event, Revoked):
            made.release(event, ())

    made = KafkaSession(proxy, group, happened)
    made.subscribe({group: 4})
    return made


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
async def test_a_member_that_leaves_while_it_joins_is_not_left_behind(how: str) -> None:
    """librdkafka (2.16) tells the coordinator nothing: until the session expires, nobody else gets its partitions."""
    async with relayed(SLOW_SESSIONS) as (kafka, relay):
        left: list[object] = []
        for number, case in enumerate(CASES):
            group = f"joining{number}"
            kafka.create_topic(group, 4)
            found = await stop_while_joining(kafka, relay, group, how, *case)
            if found:
                left.append((*case, found))
        assert not left


async def stop_while_joining(
    kafka: Cluster,
    relay: Relay,
    group: str,
    how: str,
    protocol: str,
    key: int,
    nth: int,
    late: dict[str, float],
) -> list[object]:
    """Return what the group shows of the member that has stopped; nothing is right."""
    stays: list[Any] = []
    other = session(kafka.bootstrap(), group, protocol, stays)
    await eventually(lambda: count(stays), lambda partitions: partitions == 4, within=60)
    for what, seconds in late.items():
        getattr(relay, what)[key].extend([0.0] * (nth - 1) + [seconds])
    seen = relay.seen.count(key) + nth

    async def asked() -> int:
        return relay.seen.count(key)

    stopping = session([relay.address], group, protocol, [])
    await eventually(asked, lambda requests: requests >= seen, within=60)
    if how == "close":
        await stopping.close((), 20)
    else:
        stopping.subscribe({})
    await asyncio.sleep(2 * LATE)
    described = await members(kafka, group)
    relay.answers.clear()
    relay.requests.clear()
    again: list[Any] = []
    following = session(kafka.bootstrap(), group, protocol, again)
    found: list[object] = [] if described <= 1 else [described]
    try:
        await eventually(lambda: count(again), bool, within=20)
    except AssertionError:
        found.append("the next member waits")
    await following.close((), 20)
    await other.close((), 20)
    await stopping.close((), 20)
    return found


async def count(events: list[Any]) -> int:
    return sum(len(each.partitions) for each in events if isinstance(each, Assigned))


async def members(kafka: Cluster, group: str) -> int:
    """Return how many members the group has once it is not rebalancing, or after some seconds."""
    admin = KafkaAdmin(settings.admin(make_config(kafka.bootstrap()).proxies["default"]), 10.0, 4)
    try:
        for _ in range(20):
            found = await admin.describe_group(group)
            if len(found.members) <= 1:
                break
            await asyncio.sleep(0.1)
        return len(found.members)
    finally:
        admin.close()

"""A coordinator's answer that comes after the client has given the request up."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from pixy.config.model import Proxy
from pixy.kafka import settings
from pixy.kafka.brokers import Brokers
from pixy.kafka.group_members import GroupMembers
from pixy.membership import Assigned, Revoked, SessionFailed
from pixy.membership.kafka.session import KafkaSession
from tests.kafka.cluster import Cluster
from tests.kafka.relay import Relay, relayed
from tests.support import eventually, make_config

TOPIC, GROUP = "moved", "g"
HEARTBEAT = 68
"""The key of ConsumerGroupHeartbeat."""
LATE = 4.0
"""Seconds; the client gives a request up after 1 s, and says so within another."""


SELDOM = {"group.consumer.heartbeat.interval.ms": 3000, "group.consumer.min.heartbeat.interval.ms": 3000}


class Member:
    """A session on its own."""

    def __init__(self, peers: list[str]) -> None:
        proxy: Proxy = make_config(peers, group_protocol="consumer").proxies["default"]
        proxy.net.read_timeout = proxy.net.write_timeout = 1.0
        self.events: list[object] = []
        self.session = KafkaSession(proxy, GROUP, self.events.append)
        self.session.subscribe({TOPIC: 4})

    @property
    def revoked(self) -> Revoked | None:
        return next((each for each in self.events if isinstance(each, Revoked)), None)

    async def assigned(self) -> int:
        return sum(len(each.partitions) for each in self.events if isinstance(each, Assigned))

    async def failures(self) -> list[str]:
        return [str(each.error) for each in self.events if isinstance(each, SessionFailed)]


@pytest.mark.timeout(300)
async def test_an_assignment_whose_answer_was_lost_is_noticed() -> None:
    """librdkafka (2.16) never hears of it again, and the other member waits for its partitions."""
    async with relayed(SELDOM) as (kafka, relay):
        kafka.create_topic(TOPIC, 4)
        first = Member([relay.address])
        await eventually(first.assigned, lambda count: count == 4, within=60)
        second = await joining_unheard(kafka, relay, first)
        failures = await eventually(first.failures, bool, within=60)
        assert "this member's assignment was lost" in failures[0]
        await first.session.close((), 10)
        await eventually(second.assigned, lambda count: count == 4, within=30)
        await second.session.close((), 10)


async def joining_unheard(kafka: Cluster, relay: Relay, first: Member) -> Member:
    """Let a second member join, and lose the answer in which the first one hears what to revoke."""
    members = GroupMembers(Brokers(settings.admin(make_config(kafka.bootstrap()).proxies["default"])))

    async def joined() -> int:
        return len((await asyncio.to_thread(members.described, [GROUP]))[GROUP].members)

    for _ in range(5):
        second = Member(kafka.bootstrap())
        await eventually(joined, lambda count: count == 2, within=30)
        before = first.session._client.unanswered_heartbeats
        relay.answers[HEARTBEAT] = deque([LATE])  # the first member's next heartbeat is 1.5 s away on average

        async def outcome(before: int = before) -> bool:
            return first.session._client.unanswered_heartbeats > before or first.revoked is not None

        await eventually(outcome, bool, within=30)
        if first.revoked is None:
            return second
        first.session.release(first.revoked, ())  # it had heard before
        await second.session.close((), 10)
        first.events.clear()
        await eventually(first.assigned, lambda count: count == 2, within=30)
        first.events.clear()
    raise AssertionError("the answer always came before it was to be late")

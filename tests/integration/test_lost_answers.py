"""A coordinator's answer that comes after the client has given the request up."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from pixy.config.model import Proxy
from pixy.kafka import settings
from pixy.kafka.brokers import Brokers
from pixy.kafka.group_members import GroupMembers
from pixy.membership import Assigned, Revoked, SessionFailed
from pixy.membership.kafka.session import KafkaSession
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config

TOPIC, GROUP = "moved", "g"
HEARTBEAT = 68
"""The key of ConsumerGroupHeartbeat."""
LATE = 4.0
"""Seconds; the client gives a request up after 1 s, and says so within another."""


class Answers:
    """A TCP proxy before a broker. The answer to one heartbeat can be made to come too late."""

    def __init__(self) -> None:
        self.port = self.target = 0
        self.delay_next = False
        """Whether the answer to the next heartbeat comes late; reset when it has been taken."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        late: set[int] = set()
        """Correlation ids."""

        def asked(frame: bytes) -> float:
            key, _version, number = struct.unpack_from(">hhi", frame)
            if key == HEARTBEAT and self.delay_next:
                self.delay_next = False
                late.add(number)
            return 0.0

        def answered(frame: bytes) -> float:
            return LATE if struct.unpack_from(">i", frame)[0] in late else 0.0

        for each in (self._pass(reader, back, asked), self._pass(there, writer, answered)):
            task = asyncio.create_task(each)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay: Callable[[bytes], float]
    ) -> None:
        try:
            while True:
                head = await source.readexactly(4)
                frame = await source.readexactly(int.from_bytes(head))
                await asyncio.sleep(delay(frame))
                sink.write(head + frame)
                await sink.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            sink.close()

    async def close(self) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()


@pytest.fixture
async def relayed() -> AsyncIterator[tuple[Cluster, Answers]]:
    """A broker with a second listener, behind the proxy."""
    answers = Answers()
    await answers.listen()
    seldom = {"group.consumer.heartbeat.interval.ms": 3000, "group.consumer.min.heartbeat.interval.ms": 3000}
    cluster = await asyncio.to_thread(
        Cluster, brief=True, properties=seldom, advertised={"RELAYED": {1: answers.port}}
    )
    answers.target = cluster.ports[1]["RELAYED"]
    yield cluster, answers
    await answers.close()
    await asyncio.to_thread(cluster.close)


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
async def test_an_assignment_whose_answer_was_lost_is_noticed(relayed: tuple[Cluster, Answers]) -> None:
    """librdkafka (2.16) never hears of it again, and the other member waits for its partitions."""
    kafka, answers = relayed
    kafka.create_topic(TOPIC, 4)
    first = Member([f"localhost:{answers.port}"])
    await eventually(first.assigned, lambda count: count == 4, within=60)
    second = await joining_unheard(kafka, answers, first)
    failures = await eventually(first.failures, bool, within=60)
    assert "this member's assignment was lost" in failures[0]
    await first.session.close((), 10)
    await eventually(second.assigned, lambda count: count == 4, within=30)
    await second.session.close((), 10)


async def joining_unheard(kafka: Cluster, answers: Answers, first: Member) -> Member:
    """Let a second member join, and lose the answer in which the first one hears what to revoke."""
    members = GroupMembers(Brokers(settings.admin(make_config(kafka.bootstrap()).proxies["default"])))

    async def joined() -> int:
        return len((await asyncio.to_thread(members.described, [GROUP]))[GROUP].members)

    for _ in range(5):
        second = Member(kafka.bootstrap())
        await eventually(joined, lambda count: count == 2, within=30)
        before = first.session._client.unanswered_heartbeats
        answers.delay_next = True  # the first member's next heartbeat is 1.5 s away on average

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

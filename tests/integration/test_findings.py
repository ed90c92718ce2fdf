"""Faults that are planted in a daemon, each named by the right finding; and a healthy load without any.

On the sandbox: the faults are the clients' and the daemon's own, not Kafka's. Thresholds of time are shortened, so that nobody waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from actors import Actor
from pixy.config import App
from pixy.engine.shares import caller
from pixy.errors import PixyError
from pixy.findings import consuming, daemon as daemon_rules
from pixy.kafka.sandbox import Sandbox
from tests.support import Daemon, eventually, make_config, serving

GROUPS = 6
"""``max_groups``: the fault that uses all of them needs few."""


class Stage:
    """A daemon with an admin listener, and clients with names of one of its clusters."""

    def __init__(self, daemon: Daemon, cluster: str = "") -> None:
        self.daemon = daemon
        self.cluster = daemon.engine.cluster(cluster)
        self._tasks: list[asyncio.Task[Any]] = []

    async def findings(self) -> list[dict[str, Any]]:
        url = f"http://{self.daemon.engine.addresses['admin']}/findings"
        async with self.daemon.http.get(url) as answer:
            return list((await answer.json())["findings"])

    async def finds(self, rule: str) -> dict[str, Any]:
        """Wait until a rule finds something, and return it."""
        found: list[dict[str, Any]] = await eventually(
            self.findings, lambda found: rule in {each["rule"] for each in found}, 20.0
        )
        return next(each for each in found if each["rule"] == rule)

    async def produce(self, topic: str, count: int) -> None:
        for number in range(count):
            await self.cluster.produce(topic, b"v%d" % number, b"one key, so one partition")

    def client(
        self, name: str, topic: str, group: str, *, takes: int = -1, acks: Callable[[int], bool]
    ) -> None:
        """Let a client take messages and acknowledge those whose offsets are chosen."""

        async def consume() -> None:
            caller.set(name)
            taken = 0
            while taken != takes:
                with contextlib.suppress(PixyError):
                    delivery = await self.cluster.consume(topic, group)
                    delivery.sent()
                    taken += 1
                    if acks(delivery.offset):
                        await self.cluster.ack(topic, group, delivery.partition, delivery.offset)

        self._tasks.append(asyncio.create_task(consume()))

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def staged(
    change: Callable[[App], None] = lambda _config: None, **consumer: Any
) -> AsyncIterator[Stage]:
    sandbox = Sandbox()
    config = make_config(sandbox.seed_peers, max_groups=GROUPS, drain_timeout=0.1, **consumer)
    config.admin_addr = "127.0.0.1:0"
    change(config)
    async with serving(config) as daemon:
        stage = Stage(daemon)
        try:
            yield stage
        finally:
            await stage.end()
    del sandbox


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the times for which trouble must last."""
    for name, seconds in (("HELD_LEAST", 0.5), ("STUCK", 1.0), ("FORGOTTEN", 0.5)):
        monkeypatch.setattr(consuming, name, seconds)
    monkeypatch.setattr(daemon_rules, "OLD", 0.5)


class Slow(Actor):
    """Does not keep up."""

    mailbox_capacity = 10

    async def on_receive(self, message: Any) -> None:
        await message.wait()


async def test_the_first_look_tells_that_kafka_is_gone() -> None:
    """The time without brokers counted from the first look, which found nothing wrong."""
    sandbox = Sandbox()
    config = make_config(sandbox.seed_peers, drain_timeout=0.1)
    config.admin_addr = "127.0.0.1:0"
    async with serving(config) as daemon:
        stage = Stage(daemon)
        [address] = sandbox.seed_peers
        del sandbox
        [found] = await stage.findings()
        assert found["rule"] == "kafka-unreachable" and found["severity"] == "error"
        cluster = found["where"]["cluster"]
        assert found["cause"] == f"no broker of cluster {cluster} answers ({address}: connection refused)"


async def test_the_root_page_links_what_there_is() -> None:
    """It was the text of a module."""
    async with staged() as stage:
        root = f"http://{stage.daemon.engine.addresses['admin']}/"
        async with stage.daemon.http.get(root) as answer:
            assert answer.content_type == "text/html"
            links = re.findall(r'<a href="([^"]+)">', await answer.text())
        assert {"console/", "findings", "metrics", "readyz", "debug/actors"} <= set(links)
        for link in set(links) - {"debug/profile", "debug/heap"}:  # which take seconds
            async with stage.daemon.http.get(root + link) as answer:
                assert answer.status == 200, (link, await answer.text())


@pytest.mark.usefixtures("short")
async def test_faults_of_clients_and_of_the_daemon_have_their_names() -> None:
    async with staged(ack_timeout=60.0, max_pending_messages=5) as stage:
        await asyncio.gather(*(stage.produce(topic, 40) for topic in ("held", "gap", "left")))
        stage.client("10.0.0.1", "held", "never", acks=lambda _offset: False)
        stage.client("10.0.0.2", "gap", "behind", acks=lambda offset: offset != 3)
        stage.client("10.0.0.3", "left", "forgets", takes=1, acks=lambda _offset: True)
        full = await stage.finds("never-acked")
        assert full["where"]["group"] == "never" and full["where"]["client"] == "10.0.0.1"
        assert full["evidence"]["limit_reached"] and full["severity"] == "error"
        behind = await stage.finds("behind-one-message")
        assert (behind["where"]["group"], behind["where"]["offset"]) == ("behind", 3)
        assert behind["where"]["client"] == "10.0.0.2" and behind["evidence"]["done_above"] >= 10
        left = await stage.finds("paused-and-forgotten")
        assert (left["where"]["group"], left["where"]["topic"]) == ("forgets", "left")

        time.sleep(1.0)
        assert (await stage.finds("blocked-loop"))["evidence"]["longest"] >= 0.25

        gate = asyncio.Event()
        slow = stage.daemon.engine.system.spawn(Slow, name="slow")
        for _ in range(10):
            slow.tell(gate)
        assert (await stage.finds("crowded-mailbox"))["where"] == {"actor": "/slow"}
        gate.set()

        for number in range(GROUPS - 3):
            stage.client("10.0.0.5", "held", f"more-{number}", acks=lambda _offset: True)
        quota = await stage.finds("quota-reached")
        assert quota["evidence"]["key"] == "consumer.max_groups"


async def test_a_poison_message_and_a_subscription_that_ends_with_one_have_their_names() -> None:
    async with staged(ack_timeout=0.4, subscription_timeout=1.5) as stage:
        await stage.produce("bad", 1)
        stage.client("10.0.0.1", "bad", "fails", takes=3, acks=lambda _offset: False)
        poison = await stage.finds("poison-message")
        assert poison["where"] | {"partition": 0} == {
            "cluster": "default", "group": "fails", "topic": "bad", "partition": 0, "client": "10.0.0.1", "offset": 0,
        }  # fmt: skip
        assert poison["evidence"]["attempts"] >= 3
        expired = await stage.finds("subscription-expired")
        assert (expired["where"]["group"], expired["evidence"]["pending"]) == ("fails", 1)


async def test_a_journal_that_drops_has_its_name() -> None:

    def journalled(config: App) -> None:
        conf = config.proxies["default"].journal
        conf.topic, conf.batch_events, conf.buffer_events = "journal", 10, 10

    async with staged(journalled) as stage:
        await stage.findings()  # losses count from the first look
        await asyncio.gather(*(stage.produce("t", 60) for _ in range(4)))
        assert (await stage.finds("journal-dropping"))["where"] == {"cluster": "default"}


async def test_a_healthy_load_has_no_finding() -> None:
    async with staged() as stage:
        await stage.produce("one", 50)
        for client in ("10.0.0.1", "10.0.0.2"):
            stage.client(client, "one", "works", acks=lambda _offset: True)

        async def acked() -> int:
            groups = stage.daemon.engine.counters["default"].groups
            return sum(each.acked for each in groups.of("works").topics.values())

        seen: list[dict[str, Any]] = []
        while await acked() < 50:
            seen += await stage.findings()
            await stage.produce("one", 1)
        seen += await stage.findings()
        # Other programs on the machine may have stopped the loop for a while; that would be no false alarm.
        assert [each for each in seen if each["rule"] != "blocked-loop"] == []

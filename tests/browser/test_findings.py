"""Faults planted in a daemon on a real Kafka, each named in the console's page by its rule, what it is about, and what to do; and none on a
healthy load. ``-s`` shows after how many seconds the page has named each.

Shortened are times for which trouble must last by design, in the configuration (``ack_timeout``, ``subscription_timeout``) or in the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer

from actors import Actor
from pixy.config import App
from pixy.config.model import Proxy
from pixy.console import kafka_facts
from pixy.findings import consuming
from tests.browser.test_console import page, quiet
from tests.integration.test_findings import Slow, Stage
from tests.kafka.cluster import Cluster
from tests.support import Daemon, make_config, serving

__all__ = ["page", "quiet"]

pytestmark = pytest.mark.slow

WITHIN = 60.0
"""Seconds until the test gives up; no measure of anything."""


@dataclass(frozen=True)
class Card:
    """What the page says of a fault: its rule's title, what it is about, what it says, and what it tells people to do."""

    title: str
    where: tuple[str, ...]
    cause: str
    todo: str


class Watcher:
    """A person before the page.

    Args:
        page: it.
        address: the console's.
    """

    def __init__(self, page: Any, address: str) -> None:
        self._page, self._address = page, address

    async def look(self) -> None:
        await self._page.goto(f"{self._address}#/findings")
        await self._page.get_by_role("heading", name="What is wrong").wait_for()

    def _cards(self, wanted: Card) -> Any:
        title = self._page.locator(".card-head b").get_by_text(wanted.title, exact=True)
        found = self._page.locator(".card.finding", has=title)
        for text in wanted.where:
            found = found.filter(has=self._page.locator(".where", has_text=text))
        return found

    async def sees(self, wanted: Card, since: float) -> None:
        """Wait until the page names a fault; ``since`` is when it was planted."""
        found = self._cards(wanted)
        for place, text in (("cause", wanted.cause), ("todo", wanted.todo)):
            found = found.filter(has=self._page.locator(f".{place}", has_text=text))
        # All at once: a group that Kafka refuses joins again and again, and is not refused meanwhile.
        try:
            await found.first.wait_for(timeout=1000 * WITHIN)
        except Exception as error:
            texts = await self._page.locator(".card.finding").all_inner_texts()
            raise AssertionError(f"the page does not show {wanted}, but {texts}") from error
        print(f"{time.monotonic() - since:5.1f} s: {wanted.title}")

    async def sees_no_more(self, wanted: Card) -> None:
        await self._cards(wanted).wait_for(state="detached", timeout=1000 * WITHIN)


class Blocker(Actor):
    """Holds the loop."""

    def on_receive(self, seconds: float) -> None:
        time.sleep(seconds)


class Member:
    """A consumer of somebody else's in a group: it joins, and then polls or does not."""

    def __init__(self, kafka: Cluster, group: str, topic: str, strategy: str = "cooperative-sticky") -> None:
        self._polling = threading.Event()
        self._polling.set()
        self._joined = threading.Event()
        self._ended = threading.Event()
        self._consumer = KafkaConsumer(
            {
                "bootstrap.servers": kafka.bootstrap()[0],
                "group.id": group,
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 300,
            }
        )
        self._consumer.subscribe([topic], on_assign=lambda *_: self._joined.set())

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._polling.is_set():
                self._consumer.poll(0.1)
            else:
                self._ended.wait(0.1)
        self._consumer.close()

    @contextlib.asynccontextmanager
    async def joined(self, *, polls: bool = True) -> AsyncIterator[None]:
        """Be a member for a block, which begins once it has partitions; without ``polls`` it takes part in no rebalance after that."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            assert await asyncio.to_thread(self._joined.wait, WITHIN), "it got no partition"
            if not polls:
                self._polling.clear()
            yield
        finally:
            self._ended.set()
            await asyncio.to_thread(thread.join)


async def come_and_go(kafka: Cluster, group: str, topic: str, until: asyncio.Task[None]) -> None:
    """Have a member join a group and leave it again and again."""
    while not until.done():
        async with Member(kafka, group, topic).joined():
            await asyncio.sleep(1.0)


def config(kafka: Cluster, journal: str) -> App:
    """A daemon with four configurations of one Kafka: patient, hasty, with room for few groups, and with a small journal."""
    made = make_config(
        kafka.bootstrap(), max_pending_messages=5, drain_timeout=0.1, rebalance_delay=0.0, session_timeout=6.0
    )
    made.admin_addr, made.admin_actions = "127.0.0.1:0", True
    patient = made.proxies["default"]

    def another(**consumer: Any) -> Proxy:
        return replace(patient, consumer=replace(patient.consumer, **consumer))

    made.proxies["hasty"] = another(ack_timeout=0.5, subscription_timeout=3.0)
    made.proxies["narrow"] = another(max_groups=2)
    made.proxies["noted"] = another()
    made.proxies["noted"].journal = replace(patient.journal, topic=journal, batch_events=10, buffer_events=10)
    return made


@contextlib.asynccontextmanager
async def staged(daemon: Daemon) -> AsyncIterator[dict[str, Stage]]:
    stages = {name: Stage(daemon, name) for name in daemon.engine.config.proxies}
    try:
        yield stages
    finally:
        for stage in stages.values():
            await stage.end()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the times for which trouble must last, where they are more than 5 s."""
    for name, seconds in (("STUCK", 1.0), ("FORGOTTEN", 2.0), ("UNOWNED", 2.0)):
        monkeypatch.setattr(consuming, name, seconds)
    monkeypatch.setattr(kafka_facts, "EVERY", 2.0)


FAULTS = {
    "never": Card("Never acknowledged", ("group never", "client 10.0.0.1"), "no more are offered", "acknowledge each message"),
    "poison": Card("Poison message", ("group fails", "bad", "offset 0"), "last to client 10.0.0.2", "ook at the message"),
    "expired": Card("Subscription expired", ("group fades", "bad"), "1 messages that were not", "ask more often"),
    "behind": Card("Behind one message", ("group behind", "client 10.0.0.3", "offset 3"), "stands at offset 3", "cknowledge it"),
    "left": Card("Paused and forgotten", ("group forgets", "left"), "nobody has asked", "tart its consumers again"),
    "paused": Card("Paused", ("group paused",), "is paused by 127.0.0.1", "esume it"),
    "missing": Card("Unknown topic", ("group lost", "-missing"), "which does not exist", "reate it"),
    "mixed": Card("Group failing", ("group mixed",), "cannot consume", "correct what the error names"),
    "stuck": Card("Partition without owner", ("group hangs", "stuck"), "no member of group hangs consumes", "hangs in a rebalance"),
    "storm": Card("Rebalance storm", ("group storm",), "has rebalanced", "members that come and go"),
    "quota": Card("Bound reached", ("cluster narrow",), "2 of 2 groups", "aise consumer.max_groups"),
    "journal": Card("Journal dropping", ("cluster noted",), "has lost", "raise journal.buffer_events"),
    "mailbox": Card("Crowded mailbox", ("actor /slow",), "10 of 10 messages wait", "ook at what it does"),
    "blocked": Card("Blocked loop", ("actor /blocker",), "stood still", "ee the log for the stack"),
    "gone": Card("Kafka unreachable", ("cluster default",), "no broker of cluster default answers", "tart the brokers"),
}  # fmt: skip
"""The first letter of what is to do is a capital in the page."""


@pytest.mark.usefixtures("short")
async def test_each_fault_has_its_name_in_the_page(kafka: Cluster, name: str, page: Any) -> None:
    topics = {
        each: f"{name}-{each}" for each in ("held", "bad", "gap", "left", "calm", "stuck", "storm", "journal")
    }
    for each in topics.values():
        kafka.create_topic(each, 2 if each.endswith(("stuck", "storm")) else 1)
    async with (
        serving(config(kafka, topics["journal"])) as daemon,
        staged(daemon) as stages,
        contextlib.AsyncExitStack() as members,
    ):
        patient, hasty, narrow, noted = stages.values()
        admin = f"http://{daemon.engine.addresses['admin']}"
        watcher = Watcher(page, f"{admin}/console/")
        await watcher.look()
        await patient.produce(topics["bad"], 1)
        await asyncio.gather(
            *(patient.produce(topics[each], 40) for each in ("held", "gap", "left", "calm", "storm"))
        )
        seen: list[asyncio.Task[None]] = []

        def planted(*names: str) -> None:
            seen.extend(asyncio.create_task(watcher.sees(FAULTS[each], time.monotonic())) for each in names)

        # Clients.
        patient.client("10.0.0.1", topics["held"], "never", acks=lambda _offset: False)
        hasty.client("10.0.0.2", topics["bad"], "fails", acks=lambda _offset: False)
        hasty.client("10.0.0.8", topics["bad"], "fades", takes=1, acks=lambda _offset: False)
        patient.client("10.0.0.3", topics["gap"], "behind", acks=lambda offset: offset != 3)
        patient.client("10.0.0.4", topics["left"], "forgets", takes=1, acks=lambda _offset: True)
        patient.client("10.0.0.5", f"{name}-missing", "lost", acks=lambda _offset: True)
        planted("never", "poison", "expired", "behind", "left", "missing")

        # Other members of groups.
        await members.enter_async_context(Member(kafka, "mixed", topics["calm"], "range").joined())
        await members.enter_async_context(Member(kafka, "hangs", topics["stuck"]).joined(polls=False))
        patient.client("10.0.0.6", topics["calm"], "mixed", acks=lambda _offset: True)
        patient.client("10.0.0.6", topics["stuck"], "hangs", acks=lambda _offset: True)
        patient.client("10.0.0.7", topics["storm"], "storm", acks=lambda _offset: True)
        planted("mixed", "stuck", "storm")
        storm = asyncio.create_task(come_and_go(kafka, "storm", topics["storm"], until=seen[-1]))

        # An operator, bounds, and the daemon itself.
        async with daemon.http.post(
            f"{admin}/actions/pause", params={"group": "paused", "confirm": "paused"}
        ) as answer:
            assert answer.status == 200, await answer.text()
        for number in range(2):
            narrow.client(f"10.0.1.{number}", topics["calm"], f"room-{number}", acks=lambda _offset: True)
        planted("paused", "quota", "journal")
        await asyncio.gather(*(noted.produce(topics["calm"], 60) for _ in range(4)))
        gate = asyncio.Event()
        slow = daemon.engine.system.spawn(Slow, name="slow")
        await asyncio.wait_for(slow.send(gate), WITHIN)
        for _ in range(10):  # it handles the first one for long
            await asyncio.sleep(0)
            await asyncio.wait_for(slow.send(gate), WITHIN)
        blocker = daemon.engine.system.spawn(Blocker, name="blocker")
        planted("mailbox", "blocked")
        while not seen[-1].done():  # of several blocks within ten seconds one is reported
            blocker.tell(0.8)
            await asyncio.wait(seen[-1:], timeout=4.0)
        await asyncio.gather(*seen, storm)
        gate.set()

        kafka.signal(1, signal.SIGSTOP)
        try:
            planted("gone")
            await seen[-1]
        finally:
            kafka.signal(1, signal.SIGCONT)
        await watcher.sees_no_more(FAULTS["gone"])


TOPICS, GROUPS, PARTITIONS = 2, 2, 4
HEALTHY = 40.0
"""Seconds of the healthy load."""


async def test_a_healthy_load_with_restarts_has_no_finding(kafka: Cluster, name: str, page: Any) -> None:
    topics = [kafka.create_topic(f"{name}-{number}", PARTITIONS) for number in range(TOPICS)]
    groups = [f"{name}-group-{number}" for number in range(GROUPS)]
    seen: list[dict[str, Any]] = []
    stopped = asyncio.Event()

    def settings() -> App:
        made = make_config(kafka.bootstrap())
        made.admin_addr = "127.0.0.1:0"
        return made

    def consume(stage: Stage, client: str) -> None:
        for topic in topics:
            for group in groups:
                stage.client(client, topic, group, acks=lambda _offset: True)

    async def produce(stage: Stage) -> None:
        for number in range(10**6):
            if stopped.is_set():
                return
            for topic in topics:
                await stage.cluster.produce(topic, b"v%d" % number, b"k%d" % (number % 50))
            await asyncio.sleep(0.05)

    async def another() -> None:
        """A daemon that is restarted, with its clients: each time it leaves all groups and joins them again."""
        while not stopped.is_set():
            async with serving(settings()) as daemon:
                stage = Stage(daemon)
                consume(stage, "10.0.0.9")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), HEALTHY / 3)
                seen.extend(await stage.findings())
                await stage.end()

    async with serving(settings()) as daemon:
        stage = Stage(daemon)
        await page.goto(f"http://{daemon.engine.addresses['admin']}/console/#/findings")
        consume(stage, "10.0.0.1")
        work = [asyncio.create_task(each) for each in (produce(stage), produce(stage), another())]
        until = time.monotonic() + HEALTHY
        while time.monotonic() < until:
            seen += await stage.findings()
            assert not any(each.done() for each in work), [each for each in work if each.done()]
            await asyncio.sleep(1.0)
        counted = daemon.engine.counters["default"].groups
        acked = {group: sum(each.acked for each in counted.of(group).topics.values()) for group in groups}
        rebalances = {group: len(counted.of(group).rebalances) for group in groups}
        print("\nacked here:", acked, "rebalances:", rebalances)
        assert min(acked.values()) > 0, "it was no load"
        stopped.set()
        await asyncio.gather(*work)
        await stage.end()
        text = await page.locator("body").inner_text()
    machine = {"short-of-processor", "broker-slow"}
    """What a machine that is busy with other programs does to everybody; no false alarm."""
    found = {(each["rule"], each["cause"]) for each in seen}
    print("of the machine:", [each for each in found if each[0] in machine])
    assert [each for each in found if each[0] not in machine] == []
    assert "What is wrong" in text

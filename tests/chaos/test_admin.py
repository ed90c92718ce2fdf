"""The daemon's requests about topics, offsets and groups, while a broker is frozen and restarted."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from pixy.errors import KafkaError
from pixy.kafka import settings
from pixy.kafka.admin import KafkaAdmin
from pixy.kafka.consumer import Commit
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config

PARTITIONS, RECORDS = 12, 5


class Asking:
    """Asks one thing again and again, and counts right answers and errors."""

    def __init__(self, ask: Callable[[], Awaitable[Any]], right: Any) -> None:
        self.ask, self.right = ask, right
        self.answers: Counter[str] = Counter()
        self.wrong: list[Any] = []

    async def run(self) -> None:
        """Ask until cancelled; an exception that is no KafkaError ends it."""
        while True:
            try:
                found = await self.ask()
            except KafkaError as error:
                self.answers[error.name] += 1
            else:
                self.answers["right"] += found == self.right
                if found != self.right:
                    self.wrong.append(found)
            await asyncio.sleep(0.01)

    def errors(self) -> int:
        """How many errors there were."""
        return self.answers.total() - self.answers["right"]


async def everywhere(asking: list[Asking], count: Callable[[Asking], int]) -> None:
    """Wait until a count has grown for everything that is asked."""
    before = [count(each) for each in asking]

    async def unchanged() -> list[Any]:
        return [
            (dict(each.answers), each.wrong[-1:])
            for each, sooner in zip(asking, before, strict=True)
            if count(each) <= sooner
        ]

    await eventually(unchanged, lambda found: not found, within=100)


def _right(asking: Asking) -> int:
    return asking.answers["right"]


@pytest.mark.timeout(400)
async def test_admin_requests_fail_while_the_broker_is_gone_and_are_right_afterwards(name: str) -> None:
    cluster = await asyncio.to_thread(lambda: Cluster(brief=True))
    admin = KafkaAdmin(settings.admin(make_config(cluster.bootstrap()).proxies["default"]), 2.0, 16)
    tasks: list[asyncio.Task[None]] = []
    try:
        await asyncio.to_thread(_fill, cluster, name)
        await eventually(lambda: _commits(admin, name))
        partitions = range(PARTITIONS)
        asking = [
            Asking(lambda: admin.bounds(name, partitions), dict.fromkeys(partitions, (0, RECORDS))),
            Asking(
                lambda: admin.find_offsets({(name, each): -1 for each in partitions}),
                {(name, each): RECORDS for each in partitions},
            ),
            Asking(lambda: admin.configs([name]), {name: {"retention.ms": "86400000"}}),
            Asking(admin.groups, [name]),
            Asking(lambda: admin.describe([name]), {name: ()}),
            Asking(admin.brokers, [1]),
        ]
        tasks = [asyncio.create_task(each.run()) for each in asking for _ in range(2)]
        await everywhere(asking, _right)
        for _ in range(2):
            cluster.signal(1, signal.SIGSTOP)
            await everywhere(asking, Asking.errors)
            cluster.signal(1, signal.SIGCONT)
            await everywhere(asking, _right)
            cluster.kill(1)
            await everywhere(asking, Asking.errors)
            cluster.start(1)
            await everywhere(asking, _right)
        fenced = [each.answers["FENCED_LEADER_EPOCH"] for each in asking]
        assert not any(fenced), f"what was known of an earlier leader was sent: {fenced}"
        # Once the broker has all of its groups again, every answer is right.
        for each in asking:
            each.wrong.clear()
            each.answers.clear()
        await everywhere(asking, lambda each: each.answers.total() // 20)
        assert [(dict(each.answers), each.wrong) for each in asking] == [
            ({"right": each.answers.total()}, []) for each in asking
        ]
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        admin.close()
        await asyncio.to_thread(cluster.close)


def _fill(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, PARTITIONS, **{"retention.ms": "86400000"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap()[0], "log_level": 0})
    for number in range(PARTITIONS * RECORDS):
        producer.produce(name, b"x", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


async def _commits(admin: KafkaAdmin, name: str) -> bool:
    """Commit, so that there is a group, once its coordinator is there."""
    try:
        await admin.set_offsets(name, [Commit(name, 0, 1, "")])
    except KafkaError:
        return False
    return True

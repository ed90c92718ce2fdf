"""Calls of Kafka's clients that block keep out of asyncio's own threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pixy.errors import KafkaError
from pixy.kafka.admin import KafkaAdmin
from pixy.kafka.brokers import Brokers
from pixy.kafka.threads import AT_ONCE, KafkaThreads, at_once


async def test_forty_requests_that_kafka_does_not_answer_leave_the_process_its_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()

    def topics(_brokers: Brokers, _names: object) -> Any:
        assert answer.wait(30)
        raise RuntimeError("no answer")

    monkeypatch.setattr(Brokers, "topics", topics)
    admin = KafkaAdmin({}, 15.0, 64)
    asking = [asyncio.create_task(_fails(admin)) for _ in range(40)]
    try:
        async with asyncio.timeout(20):
            await asyncio.gather(*(asyncio.to_thread(lambda: None) for _ in range(40)))
        assert not any(task.done() for task in asking)
    finally:
        answer.set()
    await asyncio.gather(*asking)


async def _fails(admin: KafkaAdmin) -> None:
    with pytest.raises((KafkaError, RuntimeError)):
        await admin.topics()


async def test_threads_are_bounded() -> None:
    threads = KafkaThreads("kafka-test", 3)
    names: set[str] = set()
    await asyncio.gather(
        *(threads.run(lambda: names.add(threading.current_thread().name)) for _ in range(50))
    )
    assert 1 <= len(names) <= 3 and all(name.startswith("kafka-test") for name in names)


def test_jobs_run_at_the_same_time_up_to_a_bound() -> None:
    together = threading.Barrier(AT_ONCE)
    jobs = [lambda: together.wait(30) and None] * (2 * AT_ONCE)  # ends only if as many wait at once
    names: set[str] = set()
    at_once([*jobs, *[lambda: names.add(threading.current_thread().name)] * 100])
    assert not together.broken
    assert not [each for each in threading.enumerate() if each.name == "kafka-at-once"]


def test_a_job_that_fails_holds_up_no_other() -> None:
    done: list[int] = []

    def fail() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        at_once([fail, lambda: done.append(1), fail, lambda: done.append(2)])
    assert sorted(done) == [1, 2]
    at_once([])

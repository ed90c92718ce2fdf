"""Calls of Kafka's clients that block keep out of asyncio's own threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pixy.errors import KafkaError
from pixy.kafka import admin as admin_module
from pixy.kafka.admin import KafkaAdmin
from pixy.kafka.threads import KafkaThreads


async def test_forty_requests_that_kafka_does_not_answer_leave_the_process_its_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()

    class Client:
        def __init__(self, _settings: object) -> None:
            pass

        def list_topics(self, *_topic: str, timeout: float) -> Any:
            assert answer.wait(30)
            raise RuntimeError("no answer")

    monkeypatch.setattr(admin_module, "AdminClient", Client)
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

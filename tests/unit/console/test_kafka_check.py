"""The check whether Kafka answers: shared, remembered for a while, and never waited for longer than asked."""

from __future__ import annotations

import asyncio
from typing import Any

from pixy.console.kafka_check import FRESH, KafkaCheck
from pixy.errors import KafkaError
from pixy.wire.connection import TransportError

REFUSED = "localhost:1: connection refused"


class Inspector:
    """Answers for Kafka; while ``silent`` is set it waits for that to end."""

    def __init__(self) -> None:
        self.asked = 0
        self.silent: asyncio.Event | None = None
        self.down = False

    async def brokers(self, _cluster: str) -> list[int]:
        self.asked += 1
        if self.silent is not None:
            await self.silent.wait()
        if self.down:
            raise KafkaError("no broker", -195, "_TRANSPORT") from TransportError(REFUSED)
        return [1]


def checking(inspector: Inspector, clock: list[float]) -> KafkaCheck:
    given: Any = inspector
    return KafkaCheck(given, lambda: clock[0])


async def test_an_outcome_counts_for_a_while_and_names_the_cause() -> None:
    inspector, clock = Inspector(), [0.0]
    check = checking(inspector, clock)
    assert check.known("main") is None
    assert [await check.problem("main"), await check.problem("main"), inspector.asked] == ["", "", 1]
    inspector.down = True
    clock[0] = FRESH
    assert (await check.problem("main"), check.known("main")) == (REFUSED, REFUSED)


async def test_who_does_not_wait_leaves_the_question_to_the_next() -> None:
    inspector = Inspector()
    inspector.silent, inspector.down = asyncio.Event(), True
    check = checking(inspector, [0.0])
    assert await check.problem("main", 0.0) is None
    inspector.silent.set()
    assert await check.problem("main") == REFUSED
    assert inspector.asked == 1


async def test_questions_end_with_it() -> None:
    inspector = Inspector()
    inspector.silent = asyncio.Event()
    check = checking(inspector, [0.0])
    await check.problem("main", 0.0)
    await check.close()
    assert len(asyncio.all_tasks()) == 1

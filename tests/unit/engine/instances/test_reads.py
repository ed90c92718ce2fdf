"""The reads of a consumer instance, in simulated time, on a model of Kafka.

Each test is named after a promise to the reader. Several promise the absence of another server's defect.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from actors.testing import Sim
from pixy.engine.instances.messages import CommitPositions, ReadRecords
from pixy.engine.instances.positions import Positions
from pixy.engine.instances.reads import Reads
from pixy.errors import FormatMismatch, TooManyRequests
from pixy.membership.instances import Lost
from tests.unit.engine.instances.instance_model import READ, Case, now, scenario
from tests.unit.engine.records import TOPIC


@scenario
async def test_a_read_returns_as_soon_as_there_is_a_record(sim: Sim) -> None:
    case = Case(sim, wait=60.0).start()
    await case.subscribe()
    read = asyncio.ensure_future(case.read())
    await asyncio.sleep(5)
    case.kafka.produce(0)
    begun = now()
    assert await read == [(0, 0)]
    assert now() - begun < 0.05


@scenario
async def test_so_does_one_that_finds_records_without_bytes(sim: Sim) -> None:
    """A null key with a null or empty value."""
    case = Case(sim, wait=20.0).start()
    await case.subscribe()
    case.kafka.produce(0, 3, size=0)
    begun = now()
    assert await case.read() == [(0, 0), (0, 1), (0, 2)]
    assert now() - begun < 0.1


@scenario
async def test_a_read_that_can_hold_no_more_records_waits_for_no_more_bytes(sim: Sim) -> None:
    case = Case(sim, wait=20.0, max_records=10, min_bytes=2000).start()
    await case.subscribe()
    case.kafka.produce(0, 100)
    begun = now()
    assert len(await case.read(ReadRecords(10**6, 10**5))) == 10
    assert now() - begun < 0.1


@scenario
async def test_an_empty_answer_comes_only_after_the_wait(sim: Sim) -> None:
    case = Case(sim, wait=3.0).start()
    await case.subscribe()
    assert await case.read() == []
    begun = now()
    assert await case.read() == []
    assert now() - begun == pytest.approx(3.0, abs=0.05)
    begun = now()
    assert await case.read(ReadRecords(1000, 100, wait=0.5)) == []
    assert now() - begun == pytest.approx(0.5, abs=0.05)


@scenario
async def test_a_read_without_a_wait_returns_the_records_that_are_ready(sim: Sim) -> None:
    case = Case(sim, wait=0.0).start()
    case.kafka.produce(0, 3)
    await case.subscribe()
    assert len(await case.read()) == 3


@scenario
async def test_the_first_read_waits_for_the_assignment(sim: Sim) -> None:
    case = Case(sim, wait=1.0).start()
    case.kafka.join_takes = 6.0
    case.kafka.produce(0, 3)
    await case.subscribe()
    assert len(await case.read()) == 3


@scenario
async def test_the_wait_of_the_first_read_begins_with_the_assignment(sim: Sim) -> None:
    case = Case(sim, wait=1.0).start()
    case.kafka.join_takes = 3.0
    await case.subscribe()
    begun = now()
    assert await case.read() == []
    assert now() - begun == pytest.approx(4.0, abs=0.1)


@scenario
async def test_the_wait_for_the_assignment_is_bounded(sim: Sim) -> None:
    case = Case(sim, wait=1.0).start()
    case.kafka.join_takes = 500.0
    await case.subscribe()
    begun = now()
    assert await case.read() == []
    assert now() - begun == pytest.approx(case.conf.join_timeout + 1.0, abs=0.1)


@scenario
async def test_a_read_ends_on_time_during_a_rebalance(sim: Sim) -> None:
    """The actor's timer ends the wait, not the call to Kafka."""
    case = Case(sim, wait=1.0).start()
    await case.subscribe()
    await case.read()
    session = case.kafka.sessions[0]
    session.post(Lost(((TOPIC, 0), (TOPIC, 1))))
    session.closed = True  # Kafka answers nothing more
    begun = now()
    assert await case.read() == []
    assert now() - begun == pytest.approx(1.0, abs=0.05)
    session.closed = False


@scenario
async def test_a_read_returns_at_least_one_record_whatever_its_size(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.produce(0, 1, size=5000)
    case.kafka.produce(0, 2, size=10)
    await case.subscribe()
    small = ReadRecords(max_bytes=15, most=100)
    assert [await case.read(small) for _ in range(3)] == [[(0, 0)], [(0, 1)], [(0, 2)]]


@scenario
async def test_no_record_is_lost_at_the_end_of_a_read_bounded_by_max_bytes(sim: Sim) -> None:
    case = Case(sim, partitions=3, wait=0.5).start()
    for at in range(300):
        case.kafka.produce(at % 3, 1, size=1 + at * 7 % 60)
    await case.subscribe()
    found: list[tuple[int, int]] = []
    while batch := await case.read(ReadRecords(max_bytes=100, most=100)):
        found += batch
    assert sorted(found) == [(p, o) for p in range(3) for o in range(100)]
    assert all(found.index((p, o)) < found.index((p, o + 1)) for p in range(3) for o in range(99))


@scenario
async def test_the_next_read_returns_the_records_of_a_reader_that_is_gone(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.produce(0, 5)
    await case.subscribe()
    assert len(await case.read(ReadRecords(30, 100), sent=False)) == 3
    assert await case.ask(CommitPositions()) == [] and case.kafka.committed == {}
    assert await case.read() == [(0, at) for at in range(5)]


@scenario
async def test_a_reader_that_is_gone_before_the_answer_loses_nothing(sim: Sim) -> None:
    case = Case(sim, wait=60.0).start()
    await case.subscribe()
    reply = case.ask(READ)
    reading = asyncio.ensure_future(reply.__await__() and _await(reply))
    await asyncio.sleep(1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    case.kafka.produce(0, 2)
    assert await case.read() == [(0, 0), (0, 1)]


async def _await(reply: Any) -> Any:
    return await reply


@scenario
async def test_concurrent_reads_are_served_one_after_another(sim: Sim) -> None:
    case = Case(sim, wait=5.0, partitions=1).start()
    await case.subscribe()
    reads = [asyncio.ensure_future(case.read(ReadRecords(20, 100))) for _ in range(4)]
    await asyncio.sleep(0.5)
    case.kafka.produce(0, 8)
    assert sorted(record for read in await asyncio.gather(*reads) for record in read) == [
        (0, at) for at in range(8)
    ]


@scenario
async def test_reads_above_the_limit_are_refused_with_its_name(sim: Sim) -> None:
    case = Case(sim, wait=5.0)
    case.conf.max_waiting_requests = 3
    case.start()
    await case.subscribe()
    reads = [case.ask(READ) for _ in range(3)]
    with pytest.raises(TooManyRequests, match=r"instances\.max_waiting_requests"):
        await case.ask(READ)
    for read in reads:
        (await read).sent()


@scenario
async def test_fetch_min_bytes_waits_for_more_but_not_beyond_the_wait(sim: Sim) -> None:
    case = Case(sim, wait=2.0, min_bytes=50).start()
    await case.subscribe()
    await case.read()
    case.kafka.produce(0, 2)
    read = asyncio.ensure_future(case.read())
    await asyncio.sleep(1)
    assert not read.done()
    case.kafka.produce(0, 3)
    assert len(await read) == 5
    case.kafka.produce(1, 1)
    begun = now()
    assert await case.read() == [(1, 0)]
    assert now() - begun == pytest.approx(2.0, abs=0.05)


@scenario
async def test_max_poll_records_limits_a_read(sim: Sim) -> None:
    case = Case(sim, max_records=4).start()
    case.kafka.produce(0, 9)
    await case.subscribe()
    assert [len(await case.read()) for _ in range(3)] == [4, 4, 1]


@scenario
async def test_another_format_is_refused_and_consumes_nothing(sim: Sim) -> None:
    case = Case(sim, format="json").start()
    case.kafka.produce(0)
    await case.subscribe()
    with pytest.raises(FormatMismatch):
        await case.ask(ReadRecords(1000, 100, format="binary"))
    assert await case.read(ReadRecords(1000, 100, format="json")) == [(0, 0)]


def test_keeping_many_partitions_copies_the_positions_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each of them was half a second of the loop for ten thousand."""
    positions, starts = Positions(), {(TOPIC, number): 5 for number in range(100)}
    positions.assign(starts)
    copies: list[dict[Any, int]] = []

    def offsets(_self: Positions) -> dict[Any, int]:
        copies.append(dict(starts))
        return copies[-1]

    monkeypatch.setattr(Positions, "offsets", property(offsets))
    context: Any = SimpleNamespace(positions=positions)
    Reads(context).keep(starts)
    assert len(copies) == 1

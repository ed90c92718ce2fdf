"""A producer's fatal errors: another one takes its messages over, and none is lost or changes its place."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pixy.config.model import Kafka, Proxy
from pixy.kafka import delivery_thread, new_producers, producer, settings
from pixy.kafka.returned_messages import MOST_RETURNS
from pixy.kafka.sandbox import Sandbox
from tests.unit.kafka.fatal_errors import OUT_OF_ORDER, make_fatal, refuse_produce
from tests.unit.kafka.scripted_producer import Bench, Item, Library, bulk_of


async def test_a_fatal_error_replaces_the_producer_and_all_messages_are_sent_again_in_order(
    library: type[Library],
) -> None:
    """What failed comes first; then what librdkafka had queued again, which comes back last; then its queue."""
    bench = Bench()
    bench.send(b"a")
    bench.send(b"z", partition=1)
    bench.send(b"b", b"c", b"d", b"e")
    [old] = library.made
    old.steps.extend(
        (
            old.turn_fatal,
            lambda: old.give_back(OUT_OF_ORDER, b"a"),
            lambda: old.give_back(KafkaError._PURGE_QUEUE, b"d", b"e"),
        )
    )
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    new = library.made[1]
    new.steps.append(new.land)
    await bench.until(lambda: len(bench.reports) == 6)
    assert sorted(bench.heard()) == [(value, None) for value in (b"a", b"b", b"c", b"d", b"e", b"z")]
    assert [value for value in new.values if value != b"z"] == [b"a", b"b", b"c", b"d", b"e"]
    assert bench.failed == [] and await bench.client.close(1.0) == 0


async def test_a_fatal_error_that_the_loop_hears_of_first_costs_no_order(library: type[Library]) -> None:
    """The thread is asked for another producer before it has polled the error and what came back with it."""
    bench = Bench()
    bench.send(b"a", b"b", b"c", b"d", b"e")
    [old] = library.made
    poll = old.poll
    old.poll = lambda timeout: poll(timeout) if bench.client._thread._returned.held else 0
    old.steps.extend(
        (
            old.turn_fatal,
            lambda: old.give_back(OUT_OF_ORDER, b"a"),
            lambda: old.give_back(KafkaError._PURGE_QUEUE, b"d", b"e"),
        )
    )
    old.dead = True
    assert bench.client.send("t", [Item(b"f")], [0]) == (0, [])
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    new = library.made[1]
    assert new.values == [b"a", b"b", b"c", b"d", b"e"]
    new.steps.append(new.land)
    await bench.until(lambda: len(bench.reports) == 5)
    assert await bench.client.close(1.0) == 0


@pytest.mark.parametrize("together", [False, True])
async def test_what_comes_back_late_on_an_overloaded_machine_costs_no_order(
    library: type[Library], together: bool
) -> None:
    """The thread waits in vain for what was purged, and purges again; then it all comes at once, what was queued first."""
    bench = Bench()
    if together:
        assert bench.client.send_bulk("t", bulk_of(bench, b"a", b"b", b"c"), [0, 0, 0])
        bench.send(b"d", b"e")
    else:
        bench.send(b"a", b"b")
        bench.send(b"c", b"d", b"e")
    [old] = library.made
    purges = []

    def purge(in_queue: bool = True, in_flight: bool = True) -> None:
        purges.append(in_flight)
        if len(purges) == 3:
            for values in ((b"d", b"e"), (b"c",), (b"b", b"a")):
                old.steps.append(partial(old.give_back, KafkaError._PURGE_QUEUE, *values))

    old.purge = purge
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    new = library.made[1]
    assert new.values == [b"a", b"b", b"c", b"d", b"e"] and purges == [False] * 3
    new.steps.append(new.land)
    await bench.until(lambda: len(bench.reports) == (3 if together else 5))
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


@pytest.mark.parametrize("together", [False, True])
async def test_a_message_that_makes_producer_after_producer_fail_fails(
    library: type[Library], monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    """And those that follow it are written."""
    monkeypatch.setattr(new_producers, "_FIRST_PAUSE", 0.0)
    bench = Bench()
    bulk = bulk_of(bench, b"a", b"b")
    if together:
        assert bench.client.send_bulk("t", bulk, [0, 0])
    else:
        bench.send(b"a", b"b")
    for number in range(1 + MOST_RETURNS):
        await bench.until(lambda number=number: len(library.made) == number + 1)
        await bench.until(lambda: not bench.client._replacing)
        now = library.made[number]
        assert now.values == [b"a", b"b"]
        now.steps.extend((now.turn_fatal, partial(now.give_back, OUT_OF_ORDER, b"a")))
    await bench.until(lambda: len(library.made) == 2 + MOST_RETURNS and not bench.client._replacing)
    new = library.made[-1]
    assert new.values == [b"b"]
    new.steps.append(new.land)
    await bench.until(lambda: len(bench.reports) == (1 if together else 2))
    if together:
        assert bulk.results[0].code() == OUT_OF_ORDER and bulk.results[1] == (0, 0)
    else:
        assert bench.heard() == [(b"a", OUT_OF_ORDER), (b"b", None)]
    assert bench.client._thread.errors == 1
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


@pytest.mark.parametrize("together", [False, True])
async def test_no_message_is_accepted_between_a_fatal_error_and_what_is_sent_again(
    library: type[Library], together: bool
) -> None:
    bench = Bench()
    bench.send(b"a")
    [old] = library.made
    old.dead = True  # librdkafka knows, the thread does not yet
    bulk = bulk_of(bench, b"b", plain=False)
    if together:
        assert not bench.client.send_bulk("t", bulk, [0])
    assert bench.client.send("t", [Item(b"b")], [0]) == (0, [])
    assert not bench.client.send_bulk("t", bulk, [0])
    old.steps.append(old.turn_fatal)
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    assert bench.client.send_bulk("t", bulk, [0])
    assert library.made[1].values == [b"a", b"b"]
    library.made[1].steps.append(library.made[1].land)
    await bench.until(lambda: len(bench.reports) == 2)
    assert bulk.results == [(0, 1)]
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_a_held_message_which_the_producer_refuses_because_of_its_fatal_error_waits_for_another_one(
    library: type[Library],
) -> None:
    bench = Bench()
    [old] = library.made
    bench.client.gate("t", (0,))
    bench.send(b"a", b"b")
    assert old.values == [b"a"]
    old.dead = True
    old.steps.extend((old.land, old.turn_fatal))
    await bench.until(lambda: len(library.made) == 2 and library.made[1].values)
    library.made[1].steps.append(library.made[1].land)
    await bench.until(lambda: bench.heard() == [(b"a", None), (b"b", None)])
    assert await bench.client.close(1.0) == 0


@pytest.mark.parametrize("together", [False, True])
async def test_what_is_refused_in_the_middle_of_a_batch_is_sent_again_behind_what_was_taken(
    library: type[Library], together: bool
) -> None:
    bench = Bench()
    library.deadly = {b"c"}
    values, partitions = [b"a", b"x", b"b", b"y", b"c", b"d", b"z"], [0, 1, 0, 1, 0, 0, 1]
    bulk = bulk_of(bench, *values)
    if together:
        assert bench.client.send_bulk("t", bulk, partitions)
    else:
        assert bench.client.send("t", [Item(value) for value in values], partitions) == (7, [])
    library.deadly = set()
    [old] = library.made
    old.steps.append(old.turn_fatal)
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    new = library.made[1]
    new.steps.append(new.land)
    await bench.until(lambda: len(bench.reports) == (1 if together else 7))
    assert [value for value in new.values if value in b"abcd"] == [b"a", b"b", b"c", b"d"]
    assert [value for value in new.values if value in b"xyz"] == [b"x", b"y", b"z"]
    assert all(error is None for _, error, *_ in bench.reports)
    assert bulk.results == [None] * 7 or all(isinstance(result, tuple) for result in bulk.results)
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_producers_that_fail_one_after_the_other_keep_the_order(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_producers, "_FIRST_PAUSE", 0.01)
    bench = Bench()
    bench.send(b"a", b"b", b"c")
    for number in range(3):
        await bench.until(
            lambda number=number: len(library.made) == number + 1 and not bench.client._replacing
        )
        now = library.made[number]
        now.steps.extend((now.turn_fatal, lambda now=now: now.give_back(OUT_OF_ORDER, b"a")))
        await bench.until(lambda number=number: len(library.made) == number + 2)
    await bench.until(lambda: not bench.client._replacing)
    new = library.made[-1]
    new.steps.append(new.land)
    await bench.until(lambda: bench.heard() == [(b"a", None), (b"b", None), (b"c", None)])
    assert new.values == [b"a", b"b", b"c"]
    assert await bench.client.close(1.0) == 0


async def test_a_fatal_error_during_a_stop_costs_no_message(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a", b"b")
    closing = asyncio.ensure_future(bench.client.close(30.0))
    await bench.until(lambda: bench.client._thread._stopping)
    library.made[0].steps.append(library.made[0].turn_fatal)
    await bench.until(lambda: len(library.made) == 2)
    await bench.until(lambda: library.made[1].values)
    library.made[1].steps.append(library.made[1].land)
    assert await closing == 0
    assert bench.heard() == [(b"a", None), (b"b", None)]


async def test_a_stop_ends_the_pause_after_fatal_errors_also_while_messages_are_held(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_producers, "_FIRST_PAUSE", 60.0)
    bench = Bench()
    bench.client.gate("t", (0,))
    bench.send(b"a", b"b")
    for number in range(2):
        await bench.until(lambda number=number: len(library.made) == number + 1)
        await bench.until(lambda: not bench.client._replacing)
        now = library.made[number]
        now.steps.append(now.turn_fatal)
    await bench.until(lambda: bench.client._thread._fatal_errors._count == 2)
    closing = asyncio.ensure_future(bench.client.close(20.0))
    await bench.until(lambda: len(library.made) == 3)
    new = library.made[2]
    await bench.until(lambda: len(bench.reports) == 2 or (len(new) and new.steps.append(new.land)))
    assert await closing == 0
    assert bench.heard() == [(b"a", None), (b"b", None)]


class Clock:
    """In place of the module ``time``."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_fatal_errors_in_a_row_do_not_use_up_producers_during_a_stop(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In virtual time, which only pauses take."""
    clock = Clock()
    for module in (delivery_thread, producer):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(delivery_thread, "_HURRIED_PAUSE", 0.5)
    bench = Bench()
    begin = library.__init__

    def deadly(self: Library, conf: dict[str, Any]) -> None:
        begin(self, conf)
        self.steps.append(self.turn_fatal if len(library.made) < 30 else self.land)

    bench.send(b"a")
    monkeypatch.setattr(library, "__init__", deadly)
    library.made[0].steps.append(library.made[0].turn_fatal)
    assert await bench.client.close(3.0) == 1, "no producer could write it"
    assert clock.now == pytest.approx(3.0) and len(library.made) == 8, (
        "two at once, then one each half second"
    )


@pytest.mark.slow
async def test_a_fatal_error_of_librdkafka_costs_no_message_and_no_order() -> None:
    """confluent-kafka raises a fatal error in ``poll``: it does not call ``error_cb``."""
    sandbox = Sandbox()
    bench = Bench(settings.producer(Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers)), "random"))
    values = [b"%d" % number for number in range(100)]
    bench.client.gate("t", (0, 1, 2, 3))
    for number, value in enumerate(values):
        if number % 30 == 20:
            thread, was = bench.client._thread, bench.client._thread.producer
            make_fatal(was)
            thread._fatal_errors._count = 0  # without its pause
        items = [Item(value)]
        await bench.until(lambda items=items: bench.client.send("t", items, [0]) == (1, []))
        if number % 30 == 25:
            await bench.until(lambda thread=thread, was=was: thread.producer is not was)
    await bench.until(lambda: len(bench.reports) == 100)
    assert all(error is None for _, error, *_ in bench.reports) and bench.failed == []
    offsets = {item.value: offset for item, _, _, offset in bench.reports}
    assert [value for value, _ in sorted(offsets.items(), key=lambda each: each[1])] == values
    assert await bench.client.close(1.0) == 0


@pytest.mark.slow
async def test_a_request_that_kafka_refuses_for_its_sequence_number_is_written_by_another_producer() -> None:
    sandbox = Sandbox()
    bench = Bench(settings.producer(Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers)), "random"))
    bench.send(b"first")
    await bench.until(lambda: bench.reports)
    old = bench.client._thread.producer
    refuse_produce(sandbox._owner, OUT_OF_ORDER)
    values = [b"%d" % number for number in range(50)]
    bench.send(*values)
    await bench.until(lambda: len(bench.reports) == 51)
    assert all(error is None for _, error, *_ in bench.reports) and bench.failed == []
    assert bench.client._thread.producer is not old
    offsets = {item.value: offset for item, _, _, offset in bench.reports}
    assert sorted(offsets.values()) == list(range(51))
    assert await bench.client.close(1.0) == 0

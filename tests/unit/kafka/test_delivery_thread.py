"""The thread that serves a producer's callbacks: nothing ends it in silence, and every message gets a result."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pixy.config.model import Kafka, Proxy
from pixy.kafka import delivery_thread, producer, retired_producers, settings
from pixy.kafka.producer import ProducerClient
from pixy.kafka.producer_messages import Bulk
from pixy.kafka.returned_messages import MOST_RETURNS
from pixy.kafka.sandbox import Sandbox
from pixy.kafka.topics import Topics
from tests.support import eventually
from tests.unit.engine.produce.test_topic_producer import Rec
from tests.unit.kafka.fatal_errors import OUT_OF_ORDER, make_fatal, refuse_produce, refuse_producer_ids
from tests.unit.kafka.test_producer import conf as unserved


class Item:
    """A single message; its delivery report carries it."""

    key, headers, size = None, None, 1

    def __init__(self, value: bytes, partition: int | None = None) -> None:
        self.value, self.partition = value, partition
        self.timestamp = 0

    def __repr__(self) -> str:
        return self.value.decode()


class Reported:
    """A message of a delivery report."""

    def __init__(self, partition: int, offset: int | None) -> None:
        self.topic, self.partition, self.offset = (lambda: "t"), (lambda: partition), (lambda: offset)


class Library:
    """In place of librdkafka's producer: it keeps what it is given, and each poll does the next step of a script.

    Attributes:
        made: all producers, as long as they exist in the test's script.
        count: how many partitions the topic has.
    """

    made: list[Any]
    refusals: int
    stubborn: bool
    destroyed_by: list[str]
    deadly: set[bytes]
    count = 100
    room = 10**6

    def __init__(self, _settings: dict[str, Any]) -> None:
        cls = type(self)
        if cls.refusals:
            cls.refusals -= 1
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed"))
        self.queue: deque[tuple[bytes, int, Any]] = deque()
        self.dead = False
        self.steps: deque[Callable[[], None]] = deque()
        self.values: list[bytes] = []
        cls.made.append(self)

    def __len__(self) -> int:
        return len(self.queue)

    def __del__(self) -> None:
        type(self).destroyed_by.append(threading.current_thread().name)

    def produce(
        self, _topic: str, value: bytes, _key: Any, partition: int, *, on_delivery: Any, **_: Any
    ) -> None:
        if self.dead:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        if partition >= self.count:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if len(self.queue) >= self.room:
            raise BufferError
        self.queue.append((value, partition, on_delivery))
        self.values.append(value)

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        taken = 0
        for message in messages:
            if self.dead or message["value"] in self.deadly:
                self.dead = True
                message["_error"] = KafkaError(KafkaError._FATAL)
                continue
            if partition >= self.count:
                message["_error"] = KafkaError(KafkaError._UNKNOWN_PARTITION)
                continue
            self.produce(topic, message["value"], None, partition, on_delivery=message["callback"])
            taken += 1
        return taken

    def poll(self, _timeout: float) -> int:
        try:
            step = self.steps.popleft()
        except IndexError:
            time.sleep(0.0005)  # as little as a machine can wait, so that the thread does not spin
            return 0
        step()
        return 1

    def flush(self, timeout: float) -> int:
        while self.steps:
            self.poll(timeout)
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        if in_queue and not self.stubborn:
            self.steps.append(lambda: self.fail(KafkaError._PURGE_QUEUE))

    def fail(self, code: int) -> None:
        """Give back all messages with an error."""
        while self.queue:
            _, partition, report = self.queue.popleft()
            report(KafkaError(code), Reported(partition, None))

    def give_back(self, code: int, *values: bytes) -> None:
        """Give back these messages with an error."""
        for each in [each for each in self.queue if each[0] in values]:
            self.queue.remove(each)
            each[2](KafkaError(code), Reported(each[1], None))

    def turn_fatal(self, error: KafkaError | None = None) -> None:
        """Have a fatal error: the poll that calls this raises it."""
        self.dead = True
        raise KafkaException(error or KafkaError(OUT_OF_ORDER, "on purpose", fatal=True))

    def land(self, *, confirmed: bool = True) -> None:
        """Deliver all messages; without an offset if no broker confirms them."""
        offset = 0
        while self.queue:
            _, partition, report = self.queue.popleft()
            report(None, Reported(max(partition, 0), offset if confirmed else None))
            offset += 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Library]]:
    """The class that makes the producers of this test."""

    class Fresh(Library):
        made, refusals, stubborn, destroyed_by, deadly = [], 0, False, [], set()

    monkeypatch.setattr(delivery_thread, "Producer", Fresh)
    monkeypatch.setattr(delivery_thread, "_MAKE_EVERY", 0.01)
    monkeypatch.setattr(delivery_thread, "_HURRIED_PAUSE", 0.01)
    yield Fresh
    Fresh.made.clear()


class Bench:
    """A client, and what its callers hear."""

    def __init__(self, conf: dict[str, Any] | None = None) -> None:
        self.reports: list[Any] = []
        self.failed: list[Exception] = []
        self.client = ProducerClient(conf or unserved(), self.reports.extend, self.failed.append)

    def send(self, *values: bytes, partition: int = 0) -> None:
        items = [Item(value) for value in values]
        assert self.client.send("t", items, [partition] * len(items)) == (len(items), [])

    def heard(self) -> list[tuple[bytes, int | None]]:
        """The values whose results have come, each with the code of its error."""
        errors = [each.args[0] if isinstance(each, KafkaException) else each for _, each, *_ in self.reports]
        values = [item.value for item, *_ in self.reports]
        return [(value, error and error.code()) for value, error in zip(values, errors, strict=True)]

    async def until(self, check: Callable[[], Any]) -> None:
        async def now() -> Any:
            return check()

        await eventually(now)


def raise_(error: Exception) -> None:
    raise error


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


async def test_a_message_that_no_broker_confirms_has_no_offset(library: type[Library]) -> None:
    """With ``required_acks: no_response``. The callers of both APIs get -1, and not an error or 0."""
    bench = Bench({**unserved(), "acks": 0, "enable.idempotence": False})
    bulk = Bulk([Rec(), Rec()], 2, True, bench.client.bulk_landed, bench.client.send_again)
    bench.send(b"a", partition=1)
    assert bench.client.send_bulk("t", bulk, [0, 0])
    [made] = library.made
    made.steps.append(lambda: made.land(confirmed=False))
    await bench.until(lambda: len(bench.reports) == 2)
    assert sorted(report[2:] for report in bench.reports) == [(-1, -1), (1, -1)], (
        "that of the bulk, and the message's"
    )
    assert bulk.results == [(0, -1), (0, -1)]
    assert await bench.client.close(1.0) == 0


async def test_one_message_goes_ahead_to_each_partition_and_new_ones_wait_behind_those_sent_again(
    library: type[Library],
) -> None:
    """No leader knows the new producer; see pixy.kafka.partition_gates."""
    bench = Bench()
    [old] = library.made
    bench.client.gate("t", (0, 1))
    for partition in (0, 1):
        bench.send(b"first", partition=partition)
    old.steps.append(old.land)
    await bench.until(lambda: len(bench.reports) == 2)
    bench.send(b"a", b"b", b"c")
    old.steps.append(old.turn_fatal)
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    new = library.made[1]
    bench.send(b"d")
    bench.send(b"z", partition=1)
    assert new.values == [b"a", b"z"]
    new.steps.append(new.land)
    await bench.until(lambda: len(bench.reports) == 7 or (len(new) and new.steps.append(new.land)))
    assert new.values == [b"a", b"z", b"b", b"c", b"d"]
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


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
    monkeypatch.setattr(delivery_thread, "_FIRST_PAUSE", 0.0)
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
async def test_a_message_that_finds_no_partition_time_after_time_fails(
    library: type[Library], together: bool
) -> None:
    bench = Bench()
    bulk = bulk_of(bench, b"a")
    if together:
        assert bench.client.send_bulk("t", bulk, [3])
    else:
        bench.send(b"a", partition=3)
    [producer] = library.made
    for _ in range(1 + MOST_RETURNS):
        await bench.until(lambda: producer.queue)
        _, _, report = producer.queue.popleft()
        gone = KafkaError(KafkaError._DESTROY)
        producer.steps.append(lambda report=report, gone=gone: report(gone, Reported(3, None)))
    await bench.until(lambda: bench.reports)
    lost = KafkaError._UNKNOWN_PARTITION
    assert (bulk.results[0].code() == lost) if together else (bench.heard() == [(b"a", lost)])
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_a_record_whose_asked_for_partition_goes_while_it_waits_is_refused_as_if_it_had_come_later(
    library: type[Library],
) -> None:
    """librdkafka speaks of its own object: "Broker handle destroyed for termination"."""
    bench = Bench()
    bulk = Bulk([Item(b"a", 3)], 1, True, bench.client.bulk_landed, bench.client.send_again)
    assert bench.client.send_bulk("t", bulk, [3])
    [producer] = library.made
    producer.steps.append(lambda: producer.give_back(KafkaError._DESTROY, b"a"))
    await bench.until(lambda: bench.reports)
    assert bulk.results[0].code() == KafkaError._UNKNOWN_PARTITION
    assert bench.client._thread.errors == 1, "what fails is a reason to look the topic up"
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


def bulk_of(bench: Bench, *values: bytes, plain: bool = True) -> Bulk:
    records: Any = [Item(value) for value in values]
    return Bulk(records, len(values), plain, bench.client.bulk_landed, bench.client.send_again)


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
    monkeypatch.setattr(delivery_thread, "_FIRST_PAUSE", 0.01)
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


async def test_callers_hear_at_once_of_an_error_that_a_person_must_mend(library: type[Library]) -> None:
    """Kafka grants no producer id to a user without the right: not even to the next producer."""
    bench = Bench()
    refused = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    bench.send(b"a")
    library.made[0].steps.append(lambda: library.made[0].turn_fatal(KafkaError(refused, "no", fatal=True)))
    await bench.until(lambda: bench.heard() == [(b"a", refused)])
    sent, [(item, error)] = bench.client.send("t", [Item(b"b")], [0])
    assert sent == 1 and item.value == b"b" and error.code == refused
    bulk = bulk_of(bench, b"c", b"d")
    assert bench.client.send_bulk("t", bulk, [0, 0])
    await bench.until(lambda: len(bench.reports) == 2)
    assert bench.reports[1][0] is bulk and [each.code() for each in bulk.results] == [refused] * 2
    assert len(library.made) == 1, "the next attempt is after half a minute"
    assert bench.failed == [] and await bench.client.close(1.0) == 0
    assert bench.client._outstanding == 0


async def test_held_messages_hear_at_once_of_an_error_that_a_person_must_mend_behind_one_that_passes(
    library: type[Library],
) -> None:
    bench = Bench()
    refused = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    bench.client.gate("t", (0,))
    bench.send(b"a")
    library.made[0].steps.append(library.made[0].turn_fatal)
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    bench.send(b"x")
    new = library.made[1]
    assert new.values == [b"a"], "x is held"
    new.steps.append(lambda: new.turn_fatal(KafkaError(refused, "no", fatal=True)))
    await bench.until(lambda: bench.heard() == [(b"a", refused), (b"x", refused)])
    assert len(library.made) == 2, "the next attempt is after half a minute"
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_a_stop_ends_the_pause_after_fatal_errors_also_while_messages_are_held(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_thread, "_FIRST_PAUSE", 60.0)
    bench = Bench()
    bench.client.gate("t", (0,))
    bench.send(b"a", b"b")
    for number in range(2):
        await bench.until(lambda number=number: len(library.made) == number + 1)
        await bench.until(lambda: not bench.client._replacing)
        now = library.made[number]
        now.steps.append(now.turn_fatal)
    await bench.until(lambda: bench.client._thread._fatal_errors == 2)
    closing = asyncio.ensure_future(bench.client.close(20.0))
    await bench.until(lambda: len(library.made) == 3)
    new = library.made[2]
    await bench.until(lambda: len(bench.reports) == 2 or (len(new) and new.steps.append(new.land)))
    assert await closing == 0
    assert bench.heard() == [(b"a", None), (b"b", None)]


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


class Clock:
    """In place of the module ``time``."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_callers_hear_of_messages_whose_time_is_over_when_there_is_a_new_producer(
    library: type[Library],
) -> None:
    """No other message need land for that."""
    bench = Bench()
    bench.client._thread._returned._patience = 0.001
    bench.send(b"a", b"b")
    library.refusals = 2
    library.made[0].steps.append(library.made[0].turn_fatal)
    await bench.until(lambda: len(bench.reports) == 2)
    assert bench.heard() == [(b"a", KafkaError._MSG_TIMED_OUT), (b"b", KafkaError._MSG_TIMED_OUT)]
    assert await bench.client.close(1.0) == 0


async def test_a_message_that_expires_behind_one_sent_ahead_is_reported_without_another_one(
    library: type[Library],
) -> None:
    bench = Bench()
    bench.client.gate("t", (0,))
    returned = bench.client._thread._returned
    bench.send(b"a")
    [old] = library.made
    old.steps.append(old.land)
    await bench.until(lambda: bench.reports)
    bench.send(b"b", b"c")
    library.room = 0
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    [lane] = returned._lanes.values()
    lane.rest = deque(each._replace(deadline=0.0) for each in lane.rest)
    await bench.until(lambda: len(bench.reports) == 3)
    assert bench.heard()[1:] == [(b"b", KafkaError._MSG_TIMED_OUT), (b"c", KafkaError._MSG_TIMED_OUT)]
    library.room = 10
    bench.send(b"d")
    await bench.until(lambda: library.made[1].values == [b"d"])
    library.made[1].steps.append(library.made[1].land)
    assert await bench.client.close(1.0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True])
async def test_messages_without_a_key_avoid_partitions_that_the_topic_no_longer_has(
    library: type[Library], together: bool
) -> None:
    """A new producer's gates are those that the topic had."""
    bench = Bench()
    bench.client.gate("t", (0, 1, 2, 3))
    for partition in range(4):
        bench.send(b"first", partition=partition)
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: len(bench.reports) == 4)
    library.count = 2
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    new = library.made[1]
    sent = 0
    while bench.client._gated._topics or sent < 20:
        if together:
            assert bench.client.send_bulk("t", bulk_of(bench, b"m", b"n", plain=bool(sent % 2)), [-1, -1])
        else:
            bench.send(b"m", b"n", partition=-1)
        sent += 1
        assert sent < 1000, "the gates of what does not exist are never opened"
        results = 4 + sent * (1 if together else 2)
        await bench.until(
            lambda results=results: len(bench.reports) == results or (len(new) and new.steps.append(new.land))
        )
    assert all(error is None for _, error, *_ in bench.reports)
    if together:
        assert all(isinstance(result, tuple) for bulk, *_ in bench.reports[4:] for result in bulk.results)
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


@pytest.mark.parametrize("together", [False, True])
async def test_a_batch_avoids_a_partition_that_the_topic_lost_unless_its_caller_asked_for_it(
    library: type[Library], together: bool
) -> None:
    """Round robin chooses partitions here."""
    bench = Bench()
    library.count = 2
    items = [Item(b"a"), Item(b"b", 3), Item(b"c")]
    lost = KafkaError._UNKNOWN_PARTITION
    bulk = bulk_of(bench, b"")
    if together:
        bulk = Bulk(items, 3, True, bench.client.bulk_landed, bench.client.send_again)
        assert bench.client.send_bulk("t", bulk, [3, 3, 3])
    else:
        sent, [(item, error)] = bench.client.send("t", items, [3, 3, 3])
        assert sent == 3 and item is items[1] and error.code == 3, "unknown topic or partition"
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: len(bench.reports) == (1 if together else 2))
    assert library.made[0].values == [b"a", b"c"]
    if together:
        assert bulk.results[0] == (0, 0) and bulk.results[1].code() == lost and bulk.results[2] == (0, 1)
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_what_is_taken_back_goes_elsewhere_if_its_partition_is_gone_and_nobody_asked_for_it(
    library: type[Library],
) -> None:
    """A partition that librdkafka had chosen, by a key for example."""
    bench = Bench()
    assert bench.client.send("t", [Item(b"a"), Item(b"b", 3)], [3, 3]) == (2, [])
    library.count = 1
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and library.made[1].values)
    library.made[1].steps.append(library.made[1].land)
    await bench.until(lambda: len(bench.reports) == 2)
    assert sorted(bench.heard(), key=lambda each: each[0]) == [
        (b"a", None),
        (b"b", KafkaError._UNKNOWN_PARTITION),
    ]
    assert await bench.client.close(1.0) == 0


async def test_a_partition_that_turns_out_to_be_gone_when_the_topic_is_known_costs_no_message(
    library: type[Library],
) -> None:
    """A new producer takes any partition until it has the topic's metadata."""
    bench = Bench()
    bench.client.gate("t", (3,))
    bench.send(b"a", b"b", partition=-1)
    [producer] = library.made
    assert producer.values == [b"a"]
    library.count = 1
    producer.steps.append(lambda: producer.give_back(KafkaError._UNKNOWN_PARTITION, b"a"))
    await bench.until(lambda: producer.values == [b"a", b"a", b"b"])
    producer.steps.append(producer.land)
    await bench.until(lambda: len(bench.reports) == 2)
    assert [error for _, error in bench.heard()] == [None, None] and bench.client._gated._topics == {}
    assert await bench.client.close(1.0) == 0


async def test_the_late_result_of_a_replaced_producer_does_not_count_for_the_gate(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_thread, "_IN_FLIGHT", 0.0)
    library.stubborn = True
    bench = Bench()
    bench.client.gate("t", (0,))
    bench.send(b"a", b"b", b"c")
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and library.made[1].values)
    old, new = library.made
    assert old.values == [b"a"] and new.values == [b"b"]
    old.steps.append(lambda: old.fail(KafkaError._MSG_TIMED_OUT))
    await bench.until(lambda: bench.heard() == [(b"a", KafkaError._MSG_TIMED_OUT)])
    assert new.values == [b"b"], "one message alone is on its way"
    library.stubborn = False
    await bench.until(lambda: len(bench.reports) == 3 or (len(new) and new.steps.append(new.land)))
    assert new.values == [b"b", b"c"]
    assert await bench.client.close(1.0) == 0


async def test_a_topic_that_is_let_go_during_a_replacement_keeps_what_waits_before_new_messages(
    library: type[Library],
) -> None:
    """Its producer may fail just then, and look it up again."""
    bench = Bench()
    bench.client.gate("t", (0,))
    bench.send(b"first")
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: bench.reports)
    bench.send(b"a", b"b")
    bench.client._replace()
    bench.client.ungate("t")
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    bench.client.ungate("t")
    bench.client.gate("t", (0,))
    bench.send(b"c")
    new = library.made[1]
    assert new.values == [b"a"]
    await bench.until(lambda: len(bench.reports) == 4 or (len(new) and new.steps.append(new.land)))
    assert new.values == [b"a", b"b", b"c"]
    assert await bench.client.close(1.0) == 0


async def test_records_that_were_sent_in_part_and_are_given_up_are_reported_once_the_part_has_landed(
    library: type[Library],
) -> None:
    bench = Bench()
    library.room = 1
    bulk = bulk_of(bench, b"a", b"b", plain=False)
    assert not bench.client.send_bulk("t", bulk, [0, 0])
    bench.client.give_up(bulk)
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: bench.reports)
    assert bulk.results[0] == (0, 0) and bulk.results[1].code() == KafkaError._PURGE_QUEUE
    assert bench.client._outstanding == 0
    assert await bench.client.close(1.0) == 0


async def test_a_producer_that_kafka_grants_its_rights_again_writes(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_thread, "_LONGEST_PAUSE", 0.01)
    bench = Bench()
    refused = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no", fatal=True)
    library.made[0].steps.append(lambda: library.made[0].turn_fatal(refused))
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    bench.send(b"a")
    library.made[1].steps.append(library.made[1].land)
    await bench.until(lambda: bench.heard() == [(b"a", None)])
    assert await bench.client.close(1.0) == 0


@pytest.mark.slow
async def test_callers_hear_of_a_missing_right_until_kafka_grants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_thread, "_LONGEST_PAUSE", 0.05)
    sandbox = Sandbox()
    refused = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    refuse_producer_ids(sandbox._owner, refused, refused)
    bench = Bench(settings.producer(Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers)), "random"))
    bench.send(b"a")
    await bench.until(lambda: bench.heard() == [(b"a", refused)])

    async def written() -> bool:
        item = Item(b"b")
        sent, told = bench.client.send("t", [item], [0])
        if sent and not told:
            await bench.until(lambda: any(report[0] is item for report in bench.reports))
        return bool(bench.heard()[1:]) and bench.heard()[-1] == (b"b", None)

    await eventually(written)
    assert bench.failed == [] and await bench.client.close(1.0) == 0


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
            thread._fatal_errors = 0  # without its pause
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


async def test_an_error_of_the_thread_itself_is_reported_with_all_messages(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a", b"b")
    library.made[0].steps.append(lambda: raise_(RuntimeError("a defect")))
    await bench.until(lambda: bench.failed)
    assert "a defect" in str(bench.failed[0])
    code = KafkaError._PURGE_QUEUE
    assert bench.heard() == [(b"a", code), (b"b", code)], "before the client fails"
    assert await bench.client.close(1.0) == 2, "the stop is not clean"


async def test_messages_wait_for_a_new_producer_that_cannot_be_made_at_first(
    library: type[Library], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.send(b"a", b"b")
    library.refusals = 3
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    assert library.made[1].values == [b"a", b"b"]
    assert [line for line in caplog.messages if "ssl.ca.location" in line] == [
        "no new producer, which is tried again every second: kafka: ssl.ca.location failed"
    ]
    library.made[1].steps.append(library.made[1].land)
    await bench.until(lambda: bench.heard() == [(b"a", None), (b"b", None)])
    assert await bench.client.close(1.0) == 0


async def test_a_stop_does_not_wait_for_a_producer_that_cannot_be_made(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a")
    library.refusals = 10**9
    bench.client._replace()
    await bench.until(lambda: library.refusals < 10**9 - 2)
    assert await bench.client.close(0.05) == 1
    assert bench.heard() == [(b"a", KafkaError._PURGE_QUEUE)]


async def test_a_message_that_has_no_partition_yet_moves_to_the_new_producer() -> None:
    """librdkafka keeps it without a partition until it knows the topic, which may take 30 s."""
    bench = Bench()
    bench.send(b"a", partition=-1)
    for _ in range(2):
        bench.client._replace()
        await bench.until(lambda: not bench.client._replacing)
    assert await bench.client.close(0.05) == 1
    assert bench.heard() == [(b"a", KafkaError._PURGE_QUEUE)]


async def test_a_replaced_producer_is_not_destroyed_by_the_thread_that_serves_callbacks(
    library: type[Library],
) -> None:
    """To destroy it waits for librdkafka's threads, and they for name servers."""
    bench = Bench()
    library.made.clear()  # only the client refers to it now
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    gc.collect()
    await bench.until(lambda: library.destroyed_by)
    assert library.destroyed_by == ["kafka-producer-end"]
    await bench.client.close(1.0)


async def test_what_a_replaced_producer_gives_back_late_is_sent_again(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_thread, "_IN_FLIGHT", 0.0)
    library.stubborn = True
    bench = Bench()
    bench.send(b"a")
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    old, new = library.made
    assert new.values == [] and len(old) == 1
    old.steps.append(lambda: old.fail(KafkaError._PURGE_INFLIGHT))
    await bench.until(lambda: new.values == [b"a"])
    new.steps.append(new.land)
    await bench.until(lambda: bench.heard() == [(b"a", None)])
    assert bench.client._outstanding == 0
    assert await bench.client.close(1.0) == 0


async def test_the_number_of_replaced_producers_that_give_nothing_back_is_bounded(
    library: type[Library], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery_thread, "_IN_FLIGHT", 0.0)
    library.stubborn = True
    bench = Bench()
    for number in range(retired_producers.MOST + 1):
        bench.send(b"%d" % number)
        bench.client._replace()
        await bench.until(lambda: not bench.client._replacing)
    assert [line for line in caplog.messages if "given up" in line] == [
        f"1 messages are given up, and nobody hears of them: they are with the oldest of {retired_producers.MOST + 1} replaced producers, which give nothing back"
    ]
    assert len(bench.client._thread._retired) == retired_producers.MOST
    assert await bench.client.close(0.01) == retired_producers.MOST + 1


async def test_after_a_replacement_messages_without_a_key_go_to_partitions_that_have_a_leader(
    library: type[Library],
) -> None:
    """The topic is looked up at once: what was known of it may be old."""
    leaders = {0: 1, 1: 1, 2: 1}
    bench = Bench()

    def topics(names: list[str]) -> Topics:
        partitions = [
            {"PartitionIndex": at, "LeaderId": leader, "ErrorCode": 0, "ReplicaNodes": [1], "IsrNodes": [1]}
            for at, leader in leaders.items()
        ]
        return Topics({"Brokers": [], "Topics": [{"Name": "t", "ErrorCode": 0, "Partitions": partitions}]})

    bench.client._watch.brokers.topics = topics
    bench.client.gate("t", (0, 1, 2))
    bench.send(b"first", partition=-1)
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: bench.reports)
    leaders.update({1: -1, 2: -1})
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    await bench.until(lambda: bench.client._gated._topics["t"].layout.writable == (0,))
    bench.send(*[b"m"] * 10, partition=-1)
    new = library.made[1]
    await bench.until(lambda: len(bench.reports) == 11 or (len(new) and new.steps.append(new.land)))
    assert {partition for _, _, partition, _ in bench.reports[1:]} == {0}
    assert await bench.client.close(1.0) == 0


async def test_what_a_replaced_producer_never_gives_back_is_counted_at_the_end(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_thread, "_IN_FLIGHT", 0.0)
    library.stubborn = True
    bench = Bench()
    bench.send(b"a")
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    assert await bench.client.close(0.01) == 1

"""The thread that serves a producer's callbacks: nothing ends it in silence, and every message gets a result."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pixy.errors import KafkaError as OurError
from pixy.kafka import delivery_thread
from pixy.kafka.producer import ProducerClient
from tests.support import eventually
from tests.unit.kafka.fatal_errors import OUT_OF_ORDER, make_fatal
from tests.unit.kafka.test_producer import conf


class Item:
    """A single message; its delivery report carries it."""

    key, headers, size = None, None, 1

    def __init__(self, value: bytes) -> None:
        self.value = value
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
    """

    made: list[Any]
    refusals: int
    stubborn: bool
    destroyed_by: list[str]

    def __init__(self, _settings: dict[str, Any]) -> None:
        cls = type(self)
        if cls.refusals:
            cls.refusals -= 1
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed"))
        self.queue: deque[tuple[bytes, int, Any]] = deque()
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
        self.queue.append((value, partition, on_delivery))
        self.values.append(value)

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        for message in messages:
            self.produce(topic, message["value"], None, partition, on_delivery=message["callback"])
        return len(messages)

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

    def land(self) -> None:
        """Deliver all messages."""
        offset = 0
        while self.queue:
            _, partition, report = self.queue.popleft()
            report(None, Reported(partition, offset))
            offset += 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Library]]:
    """The class that makes the producers of this test."""

    class Fresh(Library):
        made, refusals, stubborn, destroyed_by = [], 0, False, []

    monkeypatch.setattr(delivery_thread, "Producer", Fresh)
    monkeypatch.setattr(delivery_thread, "_MAKE_EVERY", 0.01)
    yield Fresh
    Fresh.made.clear()


class Bench:
    """A client, and what its callers hear."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.failed: list[Exception] = []
        self.client = ProducerClient(conf(), self.reports.extend, self.failed.append)

    def send(self, *values: bytes, partition: int = 0) -> None:
        items = [Item(value) for value in values]
        assert self.client.send("t", items, [partition] * len(items)) == (len(items), [])

    def heard(self) -> list[tuple[bytes, int | None]]:
        """The values whose results have come, each with the code of its error."""
        return [(item.value, error and error.code()) for item, error, *_ in self.reports]

    async def until(self, check: Callable[[], Any]) -> None:
        async def now() -> Any:
            return check()

        await eventually(now)


def fatal() -> KafkaException:
    return KafkaException(KafkaError(OUT_OF_ORDER, "on purpose", fatal=True))


def raise_(error: Exception) -> None:
    raise error


async def test_a_fatal_error_which_poll_raises_is_reported(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a")
    library.made[0].steps.append(lambda: raise_(fatal()))
    await bench.until(lambda: bench.failed)
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: bench.heard() == [(b"a", None)])
    assert await bench.client.close(1.0) == 0


async def test_a_fatal_error_of_librdkafka_is_reported_and_so_is_what_it_purges() -> None:
    """confluent-kafka raises a fatal error in ``poll``: it does not call ``error_cb``."""
    bench = Bench()
    bench.send(b"a", b"b", partition=-1)
    make_fatal(bench.client._thread.producer)
    await bench.until(lambda: bench.failed)
    [error] = bench.failed
    assert isinstance(error, OurError) and error.code == OUT_OF_ORDER
    await bench.until(lambda: len(bench.reports) == 2)
    assert await bench.client.close(0.05) == 0


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

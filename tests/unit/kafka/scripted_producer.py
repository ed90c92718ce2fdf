"""A stand-in for librdkafka's producer, whose polls follow a test's script, and a client on it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from pixy.kafka.producer import ProducerClient
from pixy.kafka.producer_messages import Bulk
from tests.support import eventually
from tests.unit.kafka.fatal_errors import OUT_OF_ORDER
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

    def __init__(self, settings: dict[str, Any]) -> None:
        cls = type(self)
        self.settings = settings
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


def bulk_of(bench: Bench, *values: bytes, plain: bool = True) -> Bulk:
    records: Any = [Item(value) for value in values]
    return Bulk(records, len(values), plain)


__all__ = ["Bench", "Item", "Library", "Reported", "bulk_of"]

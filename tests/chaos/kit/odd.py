"""A plain producer of odd records: tombstones, empty and large values, odd headers, transactions.

Every record has its id in the header ``id``. What an aborted transaction wrote has an id that begins with
``aborted``: no client may ever get it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from typing import Any

from confluent_kafka import KafkaException, Producer

from tests.chaos.kit.clients import Clients, Pace
from tests.chaos.kit.plan import Topic

PER_SECOND = 4.0
LARGE = 950_000
"""Bytes of a large value: below ``max_message_bytes`` of the daemon with its key and headers."""
_TRANSACTION_TIMEOUT = 20


def shape(rng: random.Random, name: str) -> dict[str, Any]:
    """Draw the key, value and headers of a record.

    Args:
        rng: decides.
        name: the record's id.
    """
    headers: list[tuple[str, bytes | None]] = [("id", name.encode())]
    key: bytes | None = b"%d" % rng.randrange(50)
    value: bytes | None = b"odd"
    match rng.randrange(12):
        case 0:
            value = None
        case 1:
            value = b""
        case 2:
            key, value = None, None
        case 3:
            key = b""
        case 4:
            value = b"\xff\x00\xfe" * 100
        case 5:
            key = b"\xff\xfe\x00"
        case 6:
            value = rng.randbytes(1000) * (LARGE // 1000) if rng.random() < 0.3 else b"x" * 50_000
        case 7:
            headers += [("", b""), ("", None)]
        case 8:
            headers += [("twice", b"1"), ("twice", b"2"), ("null", None), ("bytes", b"\xff\x00")]
        case 9:
            headers += [(f"many{number}", b"v") for number in range(100)]
        case 10:
            headers += [("long" * 2000, b"v" * 5000), ("\u00fc\u4e2d\U0001f600", b"unicode")]
    return {"key": key, "value": value, "headers": headers}


def settings(bootstrap: str) -> dict[str, Any]:
    """Return the settings of a plain producer."""
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "linger.ms": 0,
        "message.max.bytes": 2_000_000,
        "enable.idempotence": True,
        "message.timeout.ms": 30_000,
    }


class OddProducer:
    """Produces to one topic, past the links, outside and inside of transactions."""

    def __init__(self, clients: Clients, topic: Topic, bootstrap: str) -> None:
        self._clients = clients
        self._topic = topic.name
        self._rng = clients.rng("odd")
        self._numbers = itertools.count()
        self._settings = settings(bootstrap)

    async def run(self) -> None:
        """Produce until told to stop."""
        plain, pace = Producer(self._settings), Pace(PER_SECOND)
        while self._clients.producing:
            await pace.wait()
            whim = self._rng.random()
            if whim < 0.04:
                await asyncio.to_thread(self._transaction, whim < 0.02)
            else:
                name = f"odd.{next(self._numbers)}"
                try:
                    await asyncio.to_thread(self._send, plain, name)
                except KafkaException as error:
                    # After some faults librdkafka's idempotent producer gives up for good.
                    self._clients.records.event("plain producer made anew", why=str(error))
                    plain = Producer(self._settings)
        await asyncio.to_thread(plain.flush, 30)

    def _send(self, producer: Producer, name: str) -> None:
        t0 = time.time()

        def reported(error: Any, message: Any) -> None:
            records = self._clients.records
            # Without an offset nothing proves that the log has it: librdkafka says so of messages that are in no log
            # (docs/delivery.md). The daemons send these again; nobody does it here.
            if error is None and message.offset() is not None:
                at = [[message.partition(), message.offset()]]
                records.write("produced", t0=t0, t1=time.time(), topic=self._topic, d=0, ids=[name], at=at)
            else:
                records.write(
                    "unproduced",
                    t0=t0,
                    t1=time.time(),
                    topic=self._topic,
                    ids=[name],
                    error=str(error or "no offset"),
                )

        producer.produce(self._topic, **shape(self._rng, name), on_delivery=reported)
        producer.poll(0)

    def _transaction(self, abort: bool) -> None:
        """Write some records in a transaction; commit or abort it."""
        number = next(self._numbers)
        word = "aborted" if abort else "committed"
        names = [f"{word}.{number}.{at}" for at in range(5)]
        try:
            producer = begin(self._settings, self._topic, [shape(self._rng, name) for name in names])
            if abort:
                producer.abort_transaction(_TRANSACTION_TIMEOUT)
            else:
                producer.commit_transaction(_TRANSACTION_TIMEOUT)
        except (KafkaException, BufferError) as error:
            word = f"failed: {error}"  # its outcome is whatever the log says
        self._clients.records.event("transaction", topic=self._topic, number=number, outcome=word)


def begin(settings: dict[str, Any], topic: str, records: list[dict[str, Any]]) -> Producer:
    """Begin a transaction, and write records in it.

    Args:
        settings: of a producer.
        topic: gets the records.
        records: what :func:`shape` has drawn.

    Raises:
        KafkaException: a broker refuses it, or does not answer in time.
    """
    transactional = {"transactional.id": f"chaos-{uuid.uuid4()}", "transaction.timeout.ms": 15_000}
    producer = Producer({**settings, "message.timeout.ms": 15_000, **transactional})
    producer.init_transactions(_TRANSACTION_TIMEOUT)
    producer.begin_transaction()
    for record in records:
        producer.produce(topic, **record)
    producer.flush(_TRANSACTION_TIMEOUT)
    return producer


__all__ = ["OddProducer", "begin", "settings", "shape"]

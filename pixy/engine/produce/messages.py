"""Messages of a :class:`~pixy.engine.produce.topic_producer.TopicProducer`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from actors import Request
from pixy.engine.produce.pending_records import ProducerLife, Record, Written
from pixy.kafka.producer_messages import Report
from pixy.wire.types import RecordHeaders


@dataclass(frozen=True, slots=True)
class Produce(Request[tuple[int, int]]):
    """Write a message. The reply is (partition, offset), or the reason why it could not be written.

    ``client`` wants it: a principal, or an address without ``auth``; empty if it is the program itself.
    """

    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()
    client: str = ""


@dataclass(frozen=True, slots=True)
class ProduceMany(Request[list[Written]]):
    """Write records in their order. The reply, once all are settled, has a :data:`Written` for each: a record
    fails alone.

    Attributes:
        records: what is written.
        sizes: of the records (:func:`pixy.engine.produce.pending_records.sizes_of`); None: the producer adds them up, at once.
        client: who wants it, as in :class:`Produce`.
    """

    records: Sequence[Record]
    sizes: Sequence[int] | None = None
    client: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryReports:
    """Delivery reports of messages of one life of the producer."""

    life: ProducerLife
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class DrainProducer(Request[int]):
    """Accept no more messages, and hand all gathered ones to the client.

    The reply is the number of messages given up because that took too long: their topic was still looked up, or the client had no
    room.

    Attributes:
        within: seconds that it may take, at most ``producer.shutdown_timeout``.
    """

    within: float = math.inf

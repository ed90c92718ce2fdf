"""The methods of the gRPC API for many messages at once: ``ProduceMany`` and ``Fetch``, and the fields of a record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from pixy.api.limits import MOST_HEADERS, MOST_HEADERS_TOGETHER, MOST_RECORDS, STEP
from pixy.api.parts import RecordParts, check_records
from pixy.api.propagation import add_context
from pixy.config.model import Rest
from pixy.engine.consume.long_polls import Message
from pixy.engine.guarded import AnyCluster
from pixy.engine.message_spans import MessageSpans
from pixy.errors import InvalidParameter, PixyError
from pixy.kafka.fetcher import Read
from pixy.kafka.record_headers import UNREADABLE, checked_headers, headers_of
from pixy.proto import kafkapixy_pb2 as pb
from pixy.trace_context import Context
from pixy.wire.types import RecordHeaders

_MESSAGES: Final = 500
_BYTES: Final = 1_048_576
_OBJECT: Final = 128
"""Bytes of memory that a record or a header takes while it waits for Kafka, beside those that were sent."""
_NO_TIMESTAMP: Final = 0
"""The type of a timestamp that a message lacks, in librdkafka's terms."""


async def record_headers(cluster: AnyCluster, message: Message) -> list[tuple[str, bytes]]:
    """Return a message's headers; a null value becomes an empty one, and U+FFFD a name's bytes that are not UTF-8.

    Args:
        cluster: reads the headers again that the library cannot decode.
        message: as it was fetched.
    """
    headers = headers_of(message)
    if headers is UNREADABLE:
        await cluster.read_headers([message])
        headers = headers_of(message)
    return [(name, value or b"") for name, value in headers]


def timestamp_of(message: Message) -> int:
    """Return a message's timestamp in milliseconds since 1970; 0 if it has none."""
    kind, timestamp = message.timestamp()
    return 0 if kind == _NO_TIMESTAMP else int(timestamp)


@dataclass(slots=True)
class _Record:
    """A record as the engine takes it."""

    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    partition: int | None
    timestamp: int | None


class LongCall(Protocol):
    """The part of a call that a method with many messages may use."""

    def hold(self, size: int) -> None:
        """Count bytes of memory that the call holds until it ends. Raises OverBudget."""

    async def give_way(self) -> None:
        """Let other requests have their turn."""

    def trace_context(self) -> Context:
        """See :class:`pixy.api.handlers.Call`."""


class BatchHandlers:
    """The methods, bound to one engine.

    Args:
        cluster: returns the client of a cluster. Raises UnknownCluster.
        bounds: of reads, the same as in the REST API.
        spans: makes spans; None: none.
        propagates: whether records carry the trace context of their request.
    """

    def __init__(
        self,
        cluster: Callable[[str], AnyCluster],
        bounds: Rest,
        spans: MessageSpans | None = None,
        *,
        propagates: bool = False,
    ) -> None:
        self._cluster = cluster
        self._spans = spans or MessageSpans()
        self._propagates = propagates
        self._bounds = bounds

    async def produce_many(self, rq: Any, call: LongCall) -> pb.ProdManyRs:
        """See ``ProduceMany`` in the proto. ``rq`` is a RecordParts: a record becomes objects once its caller may write it."""
        cluster = self._cluster(rq.cluster)
        check_records(rq)
        context = call.trace_context() if self._propagates or self._spans.on else ()

        async def build() -> Sequence[_Record]:
            records = await _records(rq.records, call)
            if context and self._propagates:
                add_context(cluster.proxy, records, context)
            return records

        with self._spans.send(rq.cluster, rq.topic, context, max(1, len(rq.records))) as span:
            context = span.carried(context)
            written = await cluster.produce_built(rq.topic, build)
        answer = pb.ProdManyRs()
        for at, outcome in enumerate(written, 1):
            if isinstance(outcome, PixyError):
                answer.results.add(partition=-1, offset=-1, error=str(outcome))
            else:
                answer.results.add(partition=outcome[0], offset=outcome[1])
            if at % STEP == 0:
                await call.give_way()
        return answer

    async def fetch(self, rq: pb.FetchRq, call: LongCall) -> pb.FetchRs:
        """See ``Fetch`` in the proto."""
        cluster = self._cluster(rq.cluster)
        for name, value in (("partition", rq.partition), ("offset", rq.offset), ("wait_ms", rq.wait_ms)):
            if value < 0:
                raise InvalidParameter(f"bad {name}: {value} is negative")
        if not 0 <= rq.max_messages <= MOST_RECORDS:
            raise InvalidParameter(f"bad max_messages: {rq.max_messages} is not between 0 and {MOST_RECORDS}")
        if rq.max_bytes < 0:
            raise InvalidParameter(f"bad max_bytes: {rq.max_bytes} is negative")
        read = Read(
            topic=rq.topic,
            partition=rq.partition,
            offset=rq.offset,
            timestamp=None,
            most=rq.max_messages or _MESSAGES,
            max_bytes=min(rq.max_bytes or _BYTES, self._bounds.max_response_bytes),
            timeout=min(rq.wait_ms / 1000, self._bounds.max_fetch_timeout),
        )
        answer, step = pb.FetchRs(), 0
        for message in await cluster.fetch(read):
            key, value = message.key(), message.value()
            record = answer.records.add(
                key=key,
                key_undefined=key is None,
                value=value,
                tombstone=value is None,
                partition=message.partition(),
                offset=message.offset(),
                timestamp=timestamp_of(message),
            )
            for name, content in await record_headers(cluster, message):
                record.headers.add(key=name, value=content)
            step += 1 + len(record.headers)
            if step >= STEP:
                step = 0
                await call.give_way()
        return answer

    def methods(self) -> dict[str, tuple[type, Callable[[Any, Any], Awaitable[Any]]]]:
        """Map method names to request classes and handlers."""
        return {
            "ProduceMany": (RecordParts, self.produce_many),
            "Fetch": (pb.FetchRq, self.fetch),
        }


async def _records(parts: Sequence[bytes], call: LongCall) -> list[_Record]:
    """Build the records of a request, step by step.

    Args:
        parts: a record each.
        call: gives way to others, and counts what is built.

    Raises:
        InvalidParameter: a record is malformed, or there are too many headers.
        OverBudget: there is no room for them.
    """
    records: list[_Record] = []
    step = headers = 0
    for at, part in enumerate(parts):
        try:
            record = pb.Record.FromString(part)
        except DecodeError:
            raise InvalidParameter("malformed request: not a ProdManyRq") from None
        count = len(record.headers)
        if count:
            if count > MOST_HEADERS:
                raise InvalidParameter(f"too many headers in record {at}, a message may have {MOST_HEADERS}")
            headers += count
            if headers > MOST_HEADERS_TOGETHER:
                raise InvalidParameter(f"too many headers, a request may have {MOST_HEADERS_TOGETHER}")
        records.append(_record(at, record))
        step += 1 + count
        if step >= STEP:
            call.hold(_OBJECT * step)
            step = 0
            await call.give_way()
    call.hold(_OBJECT * step)
    return records


def _record(at: int, record: pb.Record) -> _Record:
    if record.HasField("partition") and record.partition < 0:
        raise InvalidParameter(f"bad partition of record {at}: {record.partition} is negative")
    if record.timestamp < 0:
        raise InvalidParameter(f"bad timestamp of record {at}: {record.timestamp} is negative")
    return _Record(
        None if record.key_undefined else record.key,
        None if record.tombstone else record.value,
        checked_headers((header.key, header.value) for header in record.headers) if record.headers else (),
        record.partition if record.HasField("partition") else None,
        record.timestamp or None,
    )


__all__ = ["BatchHandlers", "LongCall", "record_headers", "timestamp_of"]

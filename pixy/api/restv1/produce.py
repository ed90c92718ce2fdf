"""The endpoints that produce: a request's records go to the topic's producer in one message.

A correct binary request is decoded, base64 included, in one call into C; a long one in several, with turns for others between. A
request with an error is decoded again record by record, to report the bad records and to write the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar, cast

import msgspec
from aiohttp import web
from msgspec import Meta, Raw, Struct

from pixy.api.limits import STEP
from pixy.api.propagation import add_context, of_request
from pixy.api.restv1 import bodies, embedded, errors, long_documents
from pixy.api.restv1.call import Call
from pixy.api.restv1.divided import PIECE, Undivided, divided
from pixy.api.restv1.errors import ApiError, entry_code
from pixy.api.restv1.long_values import check_utf8
from pixy.api.restv1.routes import Route, Routes
from pixy.engine.produce import pending_records as engine
from pixy.engine.produce.pending_records import Written
from pixy.errors import InvalidParameter, KafkaError, PixyError, UnknownPartition, UnknownTopic
from pixy.kafka.producer_messages import NO_OFFSET
from pixy.kafka.record_headers import checked_headers

T = TypeVar("T")

_WHOLE = 1 << 20
"""Bytes of a document that is parsed at once if it cannot be divided: some 8 ms at most."""
_MEMBERS_PER_RECORD = 10
_BYTES_PER_STEP = 512
"""As many bytes of keys and values take as long as a header."""

_PartitionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Timestamp = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Header(Struct, gc=False, forbid_unknown_fields=True):
    key: str
    value: bytes | None = None


class _Record(Struct, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Unknown fields are refused: a misspelt ``value`` would write a tombstone."""

    partition: _PartitionNumber | None = None
    timestamp: _Timestamp | None = None
    headers: list[_Header] | None = None


class Record(_Record, gc=False, forbid_unknown_fields=True):
    """A record in the engine's form, once :func:`decode` has replaced its headers by pairs. Key and value
    are base64 in the document.
    """

    key: bytes | None = None
    value: bytes | None = None


class _LooseRecord(_Record, gc=False, forbid_unknown_fields=True):
    key: Raw = Raw(b"null")
    value: Raw = Raw(b"null")


class _Request(Struct):
    records: list[Record] | None = None


class _LooseRequest(Struct):
    records: list[_LooseRecord] | None = None


class _Entry(Struct, gc=False):
    """The result of one record."""

    partition: int | None = None
    offset: int | None = None
    error_code: int | None = None
    error: str | None = None


class _Answer(Struct, gc=False):
    offsets: list[_Entry]
    key_schema_id: None = None
    value_schema_id: None = None


_strict = msgspec.json.Decoder(_Request)
_loose = msgspec.json.Decoder(_LooseRequest)
_parse_valid = msgspec.json.Decoder(list[Record]).decode
_parse_list = msgspec.json.Decoder(list[_LooseRecord]).decode
_encode = msgspec.json.Encoder().encode


async def decode(body: bytes, call: Call) -> list[Record | ApiError]:
    """Decode the records of a request, in their order; an ApiError stands for each bad record.

    Args:
        body: of the request.
        call: the request, for its formats.

    Raises:
        ApiError: 400, not JSON; 413, too many records; 422, a field is of another type, or there are no records; or
            every record is bad.
    """
    decoded = await _decode_valid(body, call) if call.negotiated.request_format == "binary" else None
    return await _decode_each(body, call) if decoded is None else decoded


async def _decode_valid(body: bytes, call: Call) -> list[Record | ApiError] | None:
    """Decode records in the binary format, base64 included; None: something is wrong with one."""
    try:
        if len(body) <= PIECE:
            records = _strict.decode(body).records
            _check_count(records, call)
            await _pair_headers(records or [], call)
            return records  # type: ignore[return-value]  # nobody writes to this list
        return await _decode_pieces(body, call, _parse_valid, _pair_headers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidParameter):
        return None


def _check_count(records: Sequence[object] | None, call: Call) -> None:
    if not records:
        raise ApiError(errors.INVALID, "records may not be empty")
    if len(records) > call.config.max_request_records:
        raise bodies.too_many(call.config)


async def _pair_headers(records: list[Record], call: Call) -> list[Record]:
    step = 0
    for record in records:
        if record.headers:
            step += len(record.headers)
            record.headers = _pairs(record.headers)
            if step >= STEP:
                step = 0
                await call.give_way()
    return records


def _pairs(headers: list[_Header] | None) -> Any:
    return checked_headers((header.key, header.value) for header in headers) if headers else None


async def _decode_each(body: bytes, call: Call) -> list[Record | ApiError]:
    decoded = None
    if len(body) > PIECE:
        parse = _parse_json if call.negotiated.request_format == "json" else _parse_list
        decoded = await _decode_pieces(body, call, parse, _decode_some)
    if decoded is None:
        decoded = await _decode_whole(body, call)
    if all(isinstance(each, ApiError) for each in decoded):
        raise decoded[0]  # type: ignore[misc]
    return decoded


async def _decode_pieces(
    body: bytes,
    call: Call,
    parse: Callable[[bytes], list[T]],
    convert: Callable[[list[T], Call], Awaitable[Sequence[Record | ApiError]]],
) -> list[Record | ApiError] | None:
    """Decode a long body piece by piece; None: it has to be parsed as a whole.

    Args:
        body: of the request.
        call: the request.
        parse: parses a list of records.
        convert: decodes them.
    """
    decoded: list[Record | ApiError] = []
    await call.begin_turn()
    try:
        for records in divided(body, parse):
            if len(decoded) + len(records) > call.config.max_request_records:
                raise bodies.too_many(call.config)
            decoded += await convert(records, call)
            await call.begin_turn()
    except Undivided:
        return None
    _check_count(decoded, call)
    return decoded


async def _decode_whole(body: bytes, call: Call) -> list[Record | ApiError]:
    if len(body) > PIECE:
        await call.begin_turn()
    records = await _read_long(body, call) if len(body) > _WHOLE else _read_whole(body, call)
    _check_count(records, call)
    if len(body) > PIECE:
        await call.begin_turn()
    return await _decode_some(records or [], call)


def _read_whole(body: bytes, call: Call) -> list[_LooseRecord] | None:
    if call.negotiated.request_format == "json":
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise bodies.refusal(error) from None
    return bodies.parse(b"{}" if bodies.is_empty(body) else body, _loose).records


async def _read_long(body: bytes, call: Call) -> list[_LooseRecord] | None:
    most = _MEMBERS_PER_RECORD * call.config.max_request_records
    try:
        if call.negotiated.request_format == "json":
            await check_utf8(body, call.give_way)
        return await long_documents.read(body, _parse_list, most, call.give_way)
    except bodies.WRONG as error:
        raise bodies.refusal(error) from None
    except long_documents.TooMany:
        raise bodies.too_many(call.config) from None


def _parse_json(piece: bytes) -> list[_LooseRecord]:
    piece.decode()  # the parser does not check strings that it returns as Raw
    return _parse_list(piece)


async def _decode_some(records: list[_LooseRecord], call: Call) -> list[Record | ApiError]:
    """Decode records, step by step."""
    decoded: list[Record | ApiError] = []
    form, v2 = call.negotiated.request_format, call.negotiated.request_api == "v2"
    long = embedded.LONG
    step = 0
    for loose in records:
        key, value = loose.key, loose.value
        try:
            decoded.append(
                Record(
                    key=await _decode_long(key, "key", call)
                    if len(key) > long
                    else embedded.decode_value(key, "key", form, v2=v2),
                    value=await _decode_long(value, "value", call)
                    if len(value) > long
                    else embedded.decode_value(value, "value", form, v2=v2),
                    partition=loose.partition,
                    timestamp=loose.timestamp,
                    headers=_pairs(loose.headers),
                )
            )
        except ApiError as error:
            decoded.append(error)
        except InvalidParameter as error:
            decoded.append(ApiError(errors.INVALID, str(error)))
        step += 1 + len(loose.headers or ()) + (len(key) + len(value)) // _BYTES_PER_STEP
        if step >= STEP:
            step = 0
            await call.give_way()
    return decoded


async def _decode_long(raw: Raw, what: str, call: Call) -> bytes:
    if call.negotiated.request_format == "json":
        return await embedded.compact_long(raw, call.give_way)
    return await embedded.decode_long(raw, what, call.give_way, v2=call.negotiated.request_api == "v2")


async def produce(call: Call) -> web.StreamResponse:
    """Write the records of a request to a topic, or to one of its partitions."""
    partition = call.partition if "partition" in call.params else None
    decoded = await decode(await call.body(), call)
    records = [each for each in decoded if type(each) is Record]
    if partition is not None:
        _set_partition(records, partition)
    topic, context = call.params["topic"], of_request(call.request.headers)
    with call.engine.spans.send(call.cluster_name, topic, context, len(records)) as span:
        context = span.carried(context)
        if context and call.engine.config.tracing.propagate:
            add_context(call.cluster.proxy, records, context)
        if len(records) > STEP:
            await call.give_way()
        written = await call.cluster.produce_many(topic, cast("list[engine.Record]", records))
    if len(records) < len(decoded):
        results = iter(written)
        written = [each if isinstance(each, ApiError) else next(results) for each in decoded]
    return await _answer(call, written)


def _set_partition(records: list[Record], partition: int) -> None:
    for at, record in enumerate(records):
        if record.partition is None:
            record.partition = partition
        elif record.partition != partition:
            raise ApiError(
                errors.INVALID,
                f"records[{at}].partition: {record.partition} is not the path's partition {partition}",
            )


async def _answer(call: Call, written: Sequence[Written]) -> web.StreamResponse:
    failed = [each for each in written if isinstance(each, PixyError)]
    if not failed:
        entries = [_entry(*each) for each in written]  # type: ignore[misc]
        return await call.answer(_encode(_Answer(entries)))
    if len(failed) == len(written):
        whole = _failure_of_all(failed)
        if whole is not None:
            raise whole
    entries = [
        _Entry(error_code=_code(call, each), error=_text(each))
        if isinstance(each, PixyError)
        else _entry(*each)
        for each in written
    ]
    kinds = [errors.kind_of(error) for error in failed]
    status = next((kind.status for kind in kinds if kind.status in (401, 403)), 200)
    return await call.answer(_encode(_Answer(entries)), status)


def _entry(partition: int, offset: int) -> _Entry:
    return _Entry(partition, None if offset == NO_OFFSET else offset)


def _failure_of_all(failed: Sequence[PixyError]) -> PixyError | None:
    """Return the error of the whole request, if no record was written and all failed alike, because of the request
    or the proxy rather than Kafka.
    """
    first = failed[0]
    kind = errors.kind_of(first)
    same = all(errors.kind_of(error).code == kind.code for error in failed)
    if same and (isinstance(first, UnknownTopic) or not isinstance(first, KafkaError)):
        return first
    return first if same and kind.status == errors.TOO_LARGE.status else None


def _code(call: Call, error: PixyError) -> int:
    code = entry_code(error)
    return call.config.kafka_error_code if code == errors.KAFKA_ERROR.code else code


def _text(error: PixyError) -> str:
    return errors.PARTITION_NOT_FOUND.text if isinstance(error, UnknownPartition) else str(error)


def add_routes(routes: Routes) -> None:
    """Add the routes of this module."""
    routes.add(Route("POST", "/topics/{topic}", produce, reads_body=True))
    routes.add(Route("POST", "/topics/{topic}/partitions/{partition}", produce, reads_body=True))

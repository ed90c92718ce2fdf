"""Fuzz targets: any bytes make :mod:`pixy.wire` raise only its typed errors, with an offset inside the bytes.
The tap forwards any bytes unchanged.

A target takes bytes. Hypothesis drives the targets in the unit tests, atheris (coverage-guided) in
``python -m tests.fuzz``.
"""

from __future__ import annotations

from collections.abc import Callable

from pixy.wire import (
    batch,
    committed_offsets,
    compression,
    consumer_protocol,
    control,
    frames,
    message_set,
    messages as protocol,
    record,
    record_set,
)
from pixy.wire.batch import Builder
from pixy.wire.exceptions import DecodeError, UnsupportedVersionError
from tests.unit.tap.stage import Stage, forward

MAX_SIZE = 1 << 20


def _check(error: DecodeError, size: int) -> None:
    assert 0 <= error.offset <= size, f"{error!r} of {size} bytes"
    assert error.reason and "\n" not in str(error)


def record_sets(data: bytes) -> None:
    """Scan and read a record set, with and without checksums."""
    for check in (True, False):
        try:
            for header in batch.scan(data, check_crc=check):
                assert header.position + header.size <= len(data)
            for each in record_set.iter_records(data, control=True, check_crc=check, max_size=MAX_SIZE):
                assert isinstance(each.headers, tuple)
        except DecodeError as error:
            _check(error, len(data))


def batches(data: bytes) -> None:
    """Decode one batch, ignoring its checksum; a decoded batch survives a round trip."""
    try:
        found = batch.unmarshal(data, check_crc=False)
        records = found.records(max_size=MAX_SIZE)
    except DecodeError as error:
        _check(error, len(data))
        return
    again = batch.unmarshal(found.marshal())
    assert again == found and again.records(max_size=MAX_SIZE) == records


def records(data: bytes) -> None:
    """Decode records without a batch, their number in the first byte; decoded records survive a round trip."""
    if not data:
        return
    try:
        found = record.decode(data[1:], data[0])
    except DecodeError as error:
        _check(error, len(data) - 1)
        return
    assert record.decode(record.encode(found), len(found)) == found


def packed(data: bytes) -> None:
    """Decompress bytes with the codec in the first byte."""
    if not data:
        return
    codec = data[0] % 5
    made = Builder().add(None, b"").build()
    made.attributes, made.payload, made.records_count = codec, data[1:], 1
    try:
        assert len(compression.get(codec).decompress(data[1:], MAX_SIZE)) <= MAX_SIZE
    except DecodeError as error:
        _check(error, len(data) - 1)
    try:
        made.records(max_size=MAX_SIZE)
    except DecodeError as error:
        _check(error, len(data) - 1 + 61)


def messages(data: bytes) -> None:
    """Read message sets of the old formats."""
    try:
        list(message_set.iter_records(data, check_crc=False, max_size=MAX_SIZE))
    except DecodeError as error:
        _check(error, len(data))


def frames_(data: bytes) -> None:
    """Decode a frame as a request, and as the response to any known request."""
    for decode in (frames.decode_request_header, frames.decode_request, _response):
        try:
            decode(data)
        except UnsupportedVersionError:
            pass
        except DecodeError as error:
            _check(error, len(data))


def _response(data: bytes) -> None:
    # A response names neither API nor version: derive them from the first bytes.
    key, version = (data[0], data[1]) if len(data) > 1 else (0, 0)
    known = protocol.versions(protocol.response_name(key))
    frames.decode_response(data[2:], key, known[version % len(known)])


def subscriptions(data: bytes) -> None:
    """Decode subscriptions and assignments of consumers."""
    for decode in (consumer_protocol.decode_subscription, consumer_protocol.decode_assignment):
        try:
            decode(data)
        except DecodeError as error:
            _check(error, len(data))


def internals(data: bytes) -> None:
    """Decode control records and committed offsets."""
    for function in (committed_offsets.decode_key, committed_offsets.decode_value, _control):
        try:
            function(data)
        except UnsupportedVersionError:
            pass
        except DecodeError as error:
            _check(error, len(data))


def _control(data: bytes) -> None:
    control.parse(record.Record(0, 0, data[:4], data[4:]))


def tap(data: bytes) -> None:
    """Forward both directions of a connection: step in the first byte, then pieces, each after direction and length."""
    stage = Stage(in_flight=8, capture=256)
    conversation = stage.client().conversation
    step, at = 1 + data[0] % 40 if data else 1, 1
    while at < len(data):
        stream = conversation.to_broker if data[at] & 0x80 else conversation.to_client
        piece = data[at + 1 : at + 1 + (data[at] & 0x7F)]
        assert forward(stream, piece, step) == piece
        at += 1 + len(piece)
    assert not conversation.counts["defects"] and not stage.observer.counts["defects"]
    stage.observer.snapshot(stage.now)


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__.rstrip("_"): function
    for function in (
        record_sets,
        batches,
        records,
        packed,
        messages,
        frames_,
        subscriptions,
        internals,
        tap,
    )
}

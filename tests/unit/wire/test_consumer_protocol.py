"""Subscriptions and assignments: all versions, short bodies, future versions."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from pixy.wire import consumer_protocol as protocol
from pixy.wire.exceptions import DecodeError, TruncatedError

OWNED = [{"Topic": "a", "Partitions": [0, 1]}]
FULL = {"Topics": ["a", "b"], "UserData": b"data", "OwnedPartitions": OWNED, "GenerationId": 7, "RackId": "r"}
FIELDS = [2, 3, 4, 5]  # number of fields by version
REST = {"OwnedPartitions": [], "GenerationId": -1, "RackId": None}


@pytest.mark.parametrize("version", range(4))
def test_subscription(version: int) -> None:
    body = dict(list(FULL.items())[: FIELDS[version]])
    data = protocol.encode_subscription(version, body)
    assert data[:2] == bytes([0, version])
    assert protocol.decode_subscription(data) == (version, body)
    assert protocol.decode_subscription(memoryview(data)).body == body


@pytest.mark.parametrize("version", range(4))
def test_assignment(version: int) -> None:
    for body in (
        {"AssignedPartitions": OWNED, "UserData": None},
        {"AssignedPartitions": [], "UserData": b""},
    ):
        assert protocol.decode_assignment(protocol.encode_assignment(version, body)) == (version, body)


@pytest.mark.parametrize(("version", "fields"), [(v, f) for v in range(4) for f in range(1, FIELDS[v] + 1)])
def test_fields_missing_at_the_end_get_defaults(version: int, fields: int) -> None:
    """Some clients write version 1 without OwnedPartitions (segmentio/kafka-go #1156)."""
    whole = protocol.encode_subscription(3, FULL)
    ends = [2]
    for count in range(1, 6):
        body = {name: FULL[name] for name in list(FULL)[:count]}
        kept = max(0, 3 - (5 - count)) if count >= 2 else 0
        ends.append(len(protocol.encode_subscription(kept, body)) if count >= 2 else 2 + 4 + 3 + 3)
    data = bytes([0, version]) + whole[2 : ends[fields]]
    wanted = {
        name: FULL[name] if i < fields else {"UserData": None, **REST}[name]
        for i, name in enumerate(list(FULL)[: FIELDS[version]])
    }
    assert protocol.decode_subscription(data).body == wanted


def test_a_future_version() -> None:
    data = b"\0\x09" + protocol.encode_subscription(3, FULL)[2:] + b"what comes later"
    assert protocol.decode_subscription(data) == (9, FULL)
    data = b"\0\x04" + protocol.encode_assignment(3, {"AssignedPartitions": OWNED})[2:] + b"?"
    assert protocol.decode_assignment(data).body["AssignedPartitions"] == OWNED


def test_an_empty_assignment() -> None:
    assert protocol.decode_assignment(b"") == (-1, {"AssignedPartitions": [], "UserData": None})


@pytest.mark.parametrize(
    ("data", "kind", "offset"),
    [
        (b"", TruncatedError, 0),
        (b"\0", TruncatedError, 1),
        (b"\xff\xff", DecodeError, 0),
        (b"\0\1\0\0\0\1\0", TruncatedError, 6),
        (b"\0\1\0\0\0\1\0\1", TruncatedError, 8),
        (b"\0\0\x7f\xff\xff\xff", TruncatedError, 6),
    ],
)
def test_malformed_bytes(data: bytes, kind: type[DecodeError], offset: int) -> None:
    with pytest.raises(kind) as caught:
        protocol.decode_subscription(data)
    assert caught.value.offset == offset, caught.value


def test_kafka_python_reads_our_subscription() -> None:
    for version in range(4):
        body = dict(list(FULL.items())[: FIELDS[version]])
        theirs = ConsumerProtocolSubscription.decode(protocol.encode_subscription(version, body))
        assert theirs.topics == ["a", "b"] and theirs.version == version
        assert theirs.generation_id == (7 if version >= 2 else -1)

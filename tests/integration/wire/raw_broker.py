"""Exchange record sets with a broker by hand-built requests, so that a test depends only on the batches."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

from pixy.wire import errors
from tests.kafka.cluster import Cluster

_PRODUCE, _FETCH = 0, 1


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _call(kafka: Cluster, key: int, version: int, body: bytes) -> bytes:
    host, _, port = kafka.bootstrap()[0].rpartition(":")
    frame = struct.pack(">hhi", key, version, 1) + _string("raw") + body
    with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rwb") as stream:
        stream.write(struct.pack(">i", len(frame)) + frame)
        stream.flush()
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    assert answer[:4] == struct.pack(">i", 1)
    return answer[4:]


def produce(kafka: Cluster, topic: str, records: bytes) -> int:
    """Write a record set to partition 0 with acks=all (Produce v7, the first with zstd); return its base offset."""
    deadline = time.monotonic() + 30
    while True:
        answer = _call(
            kafka,
            _PRODUCE,
            7,
            b"".join(
                (
                    struct.pack(">hhi", -1, -1, 30_000),
                    struct.pack(">i", 1),
                    _string(topic),
                    struct.pack(">iii", 1, 0, len(records)),
                    records,
                )
            ),
        )
        error, offset = struct.unpack_from(">hq", answer, 4 + len(_string(topic)) + 4 + 4)
        if error == 0:
            return int(offset)
        # Metadata may name a leader before that broker knows of it.
        assert errors.lookup(error).retriable, f"the broker refuses the batch: {errors.describe(error)}"
        assert time.monotonic() < deadline, errors.describe(error)


def fetch(kafka: Cluster, topic: str, offset: int = 0, max_bytes: int = 1 << 24) -> bytes:
    """Fetch the record set of partition 0 from an offset on (Fetch v4)."""
    answer = _call(
        kafka,
        _FETCH,
        4,
        b"".join(
            (
                struct.pack(">iiiib", -1, 500, 1, max_bytes, 0),
                struct.pack(">i", 1),
                _string(topic),
                struct.pack(">iiqi", 1, 0, offset, max_bytes),
            )
        ),
    )
    position = 4 + 4 + len(_string(topic)) + 4 + 4
    error, _, _, aborted = struct.unpack_from(">hqqi", answer, position)
    assert error == 0 and aborted <= 0
    (size,) = struct.unpack_from(">i", answer, position + 22)
    return answer[position + 26 : position + 26 + size]


def segment(kafka: Cluster, topic: str) -> bytes:
    """Read the first log segment of partition 0 from the disk."""
    folder: Path = kafka.folder / "data-1" / f"{topic}-0"
    return (folder / "00000000000000000000.log").read_bytes()

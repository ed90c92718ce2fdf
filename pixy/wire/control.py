"""Control records: written by brokers among applications' records, in batches with the control bit.

A control record's key holds version int16 and type int16. The value of a transaction marker holds version int16 and the
transaction coordinator's epoch int32 (KIP-98). Control records occupy offsets, so a gap there is not a lost record.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import NamedTuple

from pixy.wire.batch import Batch, Builder, wall_clock
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError
from pixy.wire.record import Record

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(enum.IntEnum):
    """The type of a control record. Readers skip unknown types."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecord(NamedTuple):
    """A control record.

    ``type`` is a bare number if it is unknown. ``coordinator_epoch`` is None unless it is a transaction marker.
    """

    offset: int
    timestamp: int
    version: int
    type: int
    value: bytes | None
    coordinator_epoch: int | None = None


def parse(record: Record) -> ControlRecord:
    """Parse a record of a batch that ``is_control``. Raises DecodeError with the offset in the key or value."""
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size:
        raise TruncatedError("key of a control record is cut off", len(key or b""))
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise DecodeError(f"version of a control record is {version}", 0)
    epoch = None
    if number in (ControlType.ABORT, ControlType.COMMIT):
        if value is None or len(value) < _MARKER.size:
            raise TruncatedError("value of a transaction marker is cut off", len(value or b""))
        _, epoch = _MARKER.unpack_from(value)
    if number in ControlType.__members__.values():
        number = ControlType(number)
    return ControlRecord(record.offset, record.timestamp, version, number, value, epoch)


def transaction_marker(
    kind: ControlType,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    *,
    base_offset: int = 0,
    now: Callable[[], int] = wall_clock,
) -> Batch:
    """Build the batch that ends a transaction, as a broker writes it.

    Args:
        kind: COMMIT or ABORT.
        producer_id: of the transaction's producer.
        producer_epoch: of the transaction's producer.
        coordinator_epoch: of the transaction coordinator, int32.
        base_offset: offset of the marker.
        now: clock in milliseconds since the epoch.

    Raises:
        EncodeError: ``kind`` is another type, or a number is out of range.
    """
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise EncodeError(f"{kind!r} does not end a transaction")
    try:
        key, value = _KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch)
    except struct.error:
        raise EncodeError(f"coordinator_epoch is {coordinator_epoch!r}, which is not an int32") from None
    builder = Builder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        now=now,
    )
    return builder.add(key, value).build()

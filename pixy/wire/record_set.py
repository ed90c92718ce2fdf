"""Record sets of any format: what a fetch response, a produce request or a segment file holds."""

from __future__ import annotations

from collections.abc import Iterator

from pixy.wire import batch, message_set
from pixy.wire.batch_header import slices
from pixy.wire.compression import MAX_SIZE
from pixy.wire.record import Record
from pixy.wire.varint import Buffer


def iter_records(
    buffer: Buffer,
    offset: int = 0,
    *,
    control: bool = False,
    check_crc: bool = True,
    max_size: int = MAX_SIZE,
) -> Iterator[Record]:
    """Records of all whole batches, and of messages of the old formats (magic 0 and 1), one after the other.

    ``control``: those of control batches too, which are not for applications. ``max_size`` bounds the bytes of one
    batch, decompressed. A batch that is cut off at the end is left out. Raises UnsupportedMagicError,
    CorruptedBatchError, CodecUnavailableError, DecodeError.
    """
    for start, end, magic in slices(buffer, offset):
        if magic in (0, 1):
            yield from message_set.decode_entry(buffer, start, end, check_crc=check_crc, max_size=max_size)
            continue
        found = batch.unmarshal(buffer, start, check_crc=check_crc)
        if control or not found.is_control:
            yield from found.records(max_size=max_size)

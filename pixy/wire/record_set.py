"""Read record sets of any format, from fetch responses, produce requests or segment files."""

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
    """Yield the records of all whole batches and of messages of the old formats (magic 0 and 1).

    A batch that is cut off at the end is left out.

    Args:
        buffer: record set.
        offset: first byte of the first batch.
        control: yield control records too, which are not meant for applications.
        check_crc: verify the checksums.
        max_size: largest size of one batch's decompressed records, in bytes.

    Raises:
        UnsupportedMagicError: magic is above 2.
        CorruptedBatchError: a checksum is wrong.
        CodecUnavailableError: a codec's library is not installed.
        DecodeError: a batch or record is malformed.
    """
    for start, end, magic in slices(buffer, offset):
        if magic in (0, 1):
            yield from message_set.decode_entry(buffer, start, end, check_crc=check_crc, max_size=max_size)
            continue
        found = batch.unmarshal(buffer, start, check_crc=check_crc)
        if control or not found.is_control:
            yield from found.records(max_size=max_size)

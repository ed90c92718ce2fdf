"""Decode ShareFetch and ShareAcknowledge responses (KIP-932) without their records, as :mod:`pixy.tap.partial_decoders` does.

Both end with an array of broker addresses, the leaders of partitions that have moved.
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from pixy.tap.primitives import Decoder, LimitReached, length, skip, tags


class Acquired(NamedTuple):
    """Records that a ShareFetch response hands to a member."""

    topic: uuid.UUID
    partition: int
    records: int
    redelivered: int
    """How many of them were delivered before."""


class ShareSummary(NamedTuple):
    """A ShareFetch or ShareAcknowledge response without its records."""

    error: int
    throttle: int
    """Milliseconds for which the broker wants the client to wait."""
    acquired: tuple[Acquired, ...]
    errors: tuple[tuple[uuid.UUID, int, int], ...]
    """Topic, partition, error code: of the partition, or of the acknowledgements that the request carried."""
    refused: tuple[tuple[uuid.UUID, int], ...]
    """Topic, partition: the acknowledgements did not count."""
    sizes: tuple[tuple[uuid.UUID, int], ...]
    """Topic, bytes of records."""
    complete: bool


def share_response(version: int, limit: int, *, fetch: bool) -> Decoder[ShareSummary]:
    """Read the body of a ShareFetch or ShareAcknowledge response up to its broker addresses.

    Args:
        version: the request's version.
        limit: partitions to read at most; of more, the summary is incomplete and the stream is not at the end.
        fetch: whether it answers a ShareFetch.
    """
    throttle, error = struct.unpack(">ih", (yield 6))
    yield from skip((yield from length(True)))
    if version >= (1 if fetch else 2):
        yield -4  # the acquisition lock's timeout
    acquired: list[Acquired] = []
    errors: list[tuple[uuid.UUID, int, int]] = []
    refused: list[tuple[uuid.UUID, int]] = []
    sizes: list[tuple[uuid.UUID, int]] = []
    complete, seen = True, 0
    try:
        for _ in range((yield from length(True))):
            topic = uuid.UUID(bytes=(yield 16))
            for _ in range((yield from length(True))):
                seen += 1
                if seen > limit:
                    raise LimitReached
                partition, failed = struct.unpack(">ih", (yield 6))
                yield from skip((yield from length(True)))
                not_acknowledged = 0 if fetch else failed
                if fetch:
                    not_acknowledged = int.from_bytes((yield 2), "big", signed=True)
                    yield from skip((yield from length(True)))
                yield -8  # the current leader
                yield from tags()
                if fetch:
                    size = yield from length(True)
                    yield from skip(size)
                    if size > 0:
                        sizes.append((topic, size))
                    records, again = yield from _acquired()
                    if records:
                        acquired.append(Acquired(topic, partition, records, again))
                yield from tags()
                if failed or not_acknowledged:
                    errors.append((topic, partition, failed or not_acknowledged))
                if not_acknowledged:
                    refused.append((topic, partition))
            yield from tags()
    except LimitReached:
        complete = False
    return ShareSummary(
        error, throttle, tuple(acquired), tuple(errors), tuple(refused), tuple(sizes), complete
    )


def _acquired() -> Decoder[tuple[int, int]]:
    records = again = 0
    for _ in range((yield from length(True))):
        first, last, count = struct.unpack(">qqh", (yield 18))
        yield from tags()
        number = max(0, last - first + 1)
        records += number
        again += number if count > 1 else 0
    return records, again


__all__ = ["Acquired", "ShareSummary", "share_response"]

"""Keep the metadata log of a KRaft cluster out of a dump: its records hold SCRAM credentials and values of configurations.

Brokers and controllers fetch it from the controllers, by Fetch like any topic. Clients cannot read it from a broker.
"""

from __future__ import annotations

import uuid
from typing import Final

from pixy.tap import events
from pixy.tap.apis import FETCH
from pixy.tap.partial_decoders import FetchResponseSummary, fetch_response
from pixy.tap.primitives import Decoder, tags
from pixy.wire import messages
from pixy.wire.exceptions import DecodeError

METADATA_LOG: Final = "__cluster_metadata"
METADATA_LOG_ID: Final = uuid.UUID(int=1)
"""The topic's id, the same in every cluster."""
_TOPIC_IDS: Final = 13
"""The first version of Fetch that names topics by id."""
_ALL: Final = 1 << 31


def without_metadata_log(seen: events.FrameSeen) -> bytes:
    """Return a frame for a dump: zeros follow behind the metadata log's name or id in a Fetch response.

    Of a response that is cut off or cannot be decoded, bytes that look like the topic's id are taken for it.
    """
    frame = seen.frame
    if seen.key != FETCH or seen.is_request:
        return frame
    mark = METADATA_LOG_ID.bytes if seen.version >= _TOPIC_IDS else METADATA_LOG.encode()
    at = frame.find(mark)
    if at < 0:
        return frame
    found = _summary(frame, seen.version)
    if found is not None:
        topics = {topic for topic, *_ in (*found.ends, *found.errors, *found.sizes)}
        if not topics & {METADATA_LOG, METADATA_LOG_ID}:
            return frame  # records of another topic hold these bytes
    end = at + len(mark)
    return frame[:end] + bytes(len(frame) - end)


def _summary(frame: bytes, version: int) -> FetchResponseSummary | None:
    """Return what a Fetch response says apart from its records; None if it is cut off or malformed."""

    def read() -> Decoder[FetchResponseSummary]:
        yield -4
        yield from tags(messages.response_header_version(FETCH, version) == 1)
        return (yield from fetch_response(version, _ALL))

    decoder, at = read(), 0
    data: bytes | None = None
    while True:
        try:
            want = decoder.send(data)  # type: ignore[arg-type]
        except StopIteration as done:
            found: FetchResponseSummary = done.value
            return found
        except (DecodeError, OverflowError):
            return None
        if at + abs(want) > len(frame):
            return None
        data = frame[at : at + want] if want > 0 else b""
        at += abs(want)


__all__ = ["METADATA_LOG", "METADATA_LOG_ID", "without_metadata_log"]

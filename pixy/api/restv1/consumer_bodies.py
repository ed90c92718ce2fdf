"""Bodies of requests about consumer instances: offsets, partitions, positions, subscriptions. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from pixy.api.restv1 import bodies, errors
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.reads import to_timestamp

_Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, Meta(ge=0, le=2**63 - 2)]
_MAX_PATTERN = 1000


class Partition(Struct, gc=False):
    """A partition of a topic."""

    topic: str
    partition: _Number


class Offset(Partition, gc=False):
    """An offset in a partition."""

    offset: _Offset
    metadata: str | None = None


class Timestamp(Partition, gc=False):
    """A time in a partition: ISO 8601, or milliseconds since 1970."""

    timestamp: str | int

    @property
    def milliseconds(self) -> int:
        """Since 1970."""
        return to_timestamp(str(self.timestamp))


class CommitRequest(Struct):
    """Offsets of the last records that were dealt with."""

    offsets: list[Offset] | None = None


class Partitions(Struct):
    """Partitions."""

    partitions: list[Partition] | None = None


class Positions(Struct):
    """Where to go on: at offsets, at times, or both."""

    offsets: list[Offset] = []
    timestamps: list[Timestamp] = []


class Subscription(Struct):
    """Topics or a pattern."""

    topics: list[str] | None = None
    topic_pattern: str | None = None


_commit = msgspec.json.Decoder(CommitRequest)
_partitions = msgspec.json.Decoder(Partitions)
_positions = msgspec.json.Decoder(Positions)
_subscription = msgspec.json.Decoder(Subscription)


def commit_request(body: bytes) -> list[Offset]:
    """What to commit; nothing: what was handed out. Raises ApiError."""
    return bodies.parse(_some(body), _commit).offsets or []


def partitions_request(body: bytes) -> tuple[tuple[str, int], ...]:
    """Topics and partitions, each once. Raises ApiError."""
    asked = bodies.parse(_some(body), _partitions).partitions
    if asked is None:
        raise ApiError(errors.INVALID, "partitions must be given")
    return tuple(dict.fromkeys((each.topic, each.partition) for each in asked))


def positions_request(body: bytes) -> Positions:
    """Raises ApiError."""
    asked = bodies.parse(_some(body), _positions)
    for each in asked.timestamps:
        _ = each.milliseconds  # a time that is none is said before anything is sought
    return asked


def subscription_request(body: bytes) -> Subscription:
    """Raises ApiError: neither topics nor a pattern (422), or both (409/40903)."""
    asked = bodies.parse(_some(body), _subscription)
    if asked.topics and asked.topic_pattern:
        raise ApiError(
            errors.ILLEGAL_STATE,
            "Subscription to topics, partitions and pattern are mutually exclusive",
        )
    if not asked.topics and not asked.topic_pattern:
        raise ApiError(errors.INVALID, "topics or topic_pattern must be given")
    if asked.topic_pattern and len(asked.topic_pattern) > _MAX_PATTERN:
        raise ApiError(errors.INVALID, f"topic_pattern: longer than {_MAX_PATTERN} characters")
    return asked


def _some(body: bytes) -> bytes:
    return b"{}" if bodies.is_empty(body) else body

"""The bodies of requests about consumer instances. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from pixy.api.restv1 import bodies, errors
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.reads import to_timestamp
from pixy.engine.instances.topic_patterns import TopicPattern
from pixy.errors import InvalidParameter

_Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, Meta(ge=0, le=2**63 - 2)]


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
        """The time in milliseconds since 1970. Raises ApiError (422)."""
        return to_timestamp(str(self.timestamp))


class CommitRequest(Struct):
    """A commit: the offsets of the last records that the client has processed."""

    offsets: list[Offset] | None = None


class PartitionsRequest(Struct):
    """An assignment, a lookup of committed offsets, or a seek to the beginning or end."""

    partitions: list[Partition] | None = None


class PositionsRequest(Struct):
    """A seek to offsets, to times, or both."""

    offsets: list[Offset] = []
    timestamps: list[Timestamp] = []


class SubscriptionRequest(Struct):
    """A subscription to topics or to a pattern."""

    topics: list[str] | None = None
    topic_pattern: str | None = None


_commit = msgspec.json.Decoder(CommitRequest)
_partitions = msgspec.json.Decoder(PartitionsRequest)
_positions = msgspec.json.Decoder(PositionsRequest)
_subscription = msgspec.json.Decoder(SubscriptionRequest)


def commit_request(body: bytes) -> list[Offset]:
    """The offsets to commit; empty: commit the instance's positions. Raises ApiError."""
    return bodies.parse(_or_empty_object(body), _commit).offsets or []


def partitions_request(body: bytes) -> tuple[tuple[str, int], ...]:
    """The partitions of a request, without duplicates. Raises ApiError."""
    asked = bodies.parse(_or_empty_object(body), _partitions).partitions
    if asked is None:
        raise ApiError(errors.INVALID, "partitions must be given")
    return tuple(dict.fromkeys((each.topic, each.partition) for each in asked))


def positions_request(body: bytes) -> PositionsRequest:
    """The targets of a seek. Raises ApiError."""
    asked = bodies.parse(_or_empty_object(body), _positions)
    for each in asked.timestamps:
        _ = each.milliseconds  # raises for a bad time, before anything is sought
    return asked


def subscription_request(body: bytes) -> SubscriptionRequest:
    """The topics (none: consume nothing) or the pattern. Raises ApiError: neither (422), or
    both (409/40903).
    """
    asked = bodies.parse(_or_empty_object(body), _subscription)
    if asked.topics and asked.topic_pattern:
        raise ApiError(
            errors.ILLEGAL_STATE,
            "Subscription to topics, partitions and pattern are mutually exclusive",
        )
    if asked.topics is None and not asked.topic_pattern:
        raise ApiError(errors.INVALID, "topics or topic_pattern must be given")
    if asked.topic_pattern:
        try:
            TopicPattern(asked.topic_pattern)
        except InvalidParameter as error:
            raise ApiError(errors.INVALID, str(error)) from None
    return asked


def _or_empty_object(body: bytes) -> bytes:
    return b"{}" if bodies.is_empty(body) else body

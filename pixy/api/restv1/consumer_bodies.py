"""The bodies of requests about consumer instances. Pure."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from pixy.api.limits import MOST_COMMAS, MOST_LISTED, MOST_OFFSETS, MOST_TOPICS
from pixy.api.restv1 import bodies, errors
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.reads import to_timestamp
from pixy.engine.instances.topic_patterns import TopicPattern
from pixy.errors import InvalidParameter

T = TypeVar("T")

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


P = TypeVar("P", bound=Partition)

_commit = msgspec.json.Decoder(CommitRequest)
_partitions = msgspec.json.Decoder(PartitionsRequest)
_positions = msgspec.json.Decoder(PositionsRequest)
_subscription = msgspec.json.Decoder(SubscriptionRequest)


def commit_request(body: bytes) -> list[Offset]:
    """Return the offsets to commit; empty: commit the instance's positions. Raises ApiError."""
    return _topics(_few(_parse(body, _commit).offsets, "offsets") or [], "offsets")


def partitions_request(body: bytes) -> tuple[tuple[str, int], ...]:
    """Return the partitions of a request, without duplicates. Raises ApiError."""
    asked = _few(_parse(body, _partitions).partitions, "partitions")
    if asked is None:
        raise ApiError(errors.INVALID, "partitions must be given")
    _topics(asked, "partitions")
    return tuple(dict.fromkeys((each.topic, each.partition) for each in asked))


def positions_request(body: bytes) -> PositionsRequest:
    """Return the targets of a seek. Raises ApiError."""
    asked = _parse(body, _positions)
    _few(asked.offsets, "offsets")
    _few(asked.timestamps, "timestamps")
    _topics([*asked.offsets, *asked.timestamps], "offsets and timestamps")
    for each in asked.timestamps:
        _ = each.milliseconds  # raises for a bad time, before anything is sought
    return asked


def subscription_request(body: bytes) -> SubscriptionRequest:
    """Return the topics (none: consume nothing) or the pattern. Raises ApiError: neither (422), or
    both (409/40903).
    """
    asked = _parse(body, _subscription)
    _few(asked.topics, "topics", MOST_TOPICS)
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


def _parse(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    if len(body) > MOST_LISTED:
        text = (
            f"the request is too large, at most {MOST_LISTED} bytes are read of one about a consumer instance"
        )
        raise ApiError(errors.TOO_LARGE, text)
    if body.count(b",") > MOST_COMMAS:
        raise ApiError(errors.INVALID, "the body has too many elements")
    return bodies.parse(b"{}" if bodies.is_empty(body) else body, decoder)


def _few(elements: list[T] | None, name: str, most: int = MOST_OFFSETS) -> list[T] | None:
    """Return a list that is not too long. Raises ApiError (422)."""
    if elements is not None and len(elements) > most:
        raise ApiError(errors.INVALID, f"{name}: too many elements, a request may have {most}")
    return elements


def _topics(partitions: list[P], name: str) -> list[P]:
    """Return partitions of not too many topics: each topic is asked for in the rules. Raises ApiError (422)."""
    if len(partitions) > MOST_TOPICS and len({each.topic for each in partitions}) > MOST_TOPICS:
        raise ApiError(errors.INVALID, f"{name}: too many topics, a request may name {MOST_TOPICS}")
    return partitions

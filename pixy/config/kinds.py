"""The kinds of values that a configuration has, with their bounds as ``msgspec.Meta``."""

from __future__ import annotations

from typing import Annotated, NewType

from msgspec import Meta

Duration = NewType("Duration", float)
"""Seconds; Go's syntax in the file."""
KafkaVersion = NewType("KafkaVersion", str)
Compression = NewType("Compression", str)
Workers = NewType("Workers", str)
"""A number, or ``auto``."""
RequiredAcks = NewType("RequiredAcks", str)

PositiveInt = Annotated[int, Meta(gt=0)]
AnyInt = Annotated[int, Meta(ge=0)]
PositiveDuration = Annotated[Duration, Meta(gt=0)]
AnyDuration = Annotated[Duration, Meta(ge=0)]

KafkaTimeout = Annotated[Duration, Meta(gt=0, le=300)]
"""Of a request; the bounds of this and of what follows are librdkafka's."""
KafkaSession = Annotated[Duration, Meta(gt=0, le=3600)]
"""Of a member of a group, or between its heartbeats."""
KafkaFetchWait = Annotated[Duration, Meta(ge=0, le=300)]
KafkaDelivery = Annotated[Duration, Meta(ge=1, le=2_147_483)]
"""Of a message or a connection."""
KAFKA_MESSAGE_BYTES = 1_000_000_000
KAFKA_PREFETCH_BYTES = 2_097_151 * 1024
KAFKA_BUFFER_BYTES = 2_147_483_647 * 1024


def seconds(value: float) -> Duration:
    """Return a number of seconds as the default of a field."""
    return Duration(value)

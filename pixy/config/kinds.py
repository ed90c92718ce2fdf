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


def seconds(value: float) -> Duration:
    """Return a number of seconds as the default of a field."""
    return Duration(value)

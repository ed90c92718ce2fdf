"""Starting and ending positions: ``earliest``, ``latest``, offsets by partition, or timestamps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pixy.pipeline.errors import SourceError, UsageError
from pixy.wire.types import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
"""Values in JSON of offsets, and in Kafka's ListOffsets."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


class Kind(StrEnum):
    """The ways in which a position can be given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMES = "times"
    """A timestamp for each partition."""
    TIME = "time"
    """One timestamp for all partitions."""


@dataclass(frozen=True, slots=True)
class Position:
    """A starting or an ending position. Timestamps are milliseconds since 1970.

    Attributes:
        option: the option's name, for error texts.
        by_partition: for OFFSETS, offsets (or LATEST, EARLIEST); for TIMES, timestamps.
        time: for TIME, the timestamp.
        or_latest: for TIME and TIMES: whether a partition without a record as late is read from its end.
    """

    kind: Kind
    option: str = ""
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    time: int = -1
    or_latest: bool = False

    @property
    def by_time(self) -> bool:
        """True if it is given by timestamps."""
        return self.kind in (Kind.TIME, Kind.TIMES)

    def wanted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return by partition EARLIEST, LATEST or a timestamp, to ask the brokers for; or the offset itself.

        Raises:
            SourceError: the JSON lacks a partition that is read, or names another one.
        """
        if self.kind is Kind.TIME:
            return dict.fromkeys(partitions, self.time)
        if self.kind in (Kind.EARLIEST, Kind.LATEST):
            return dict.fromkeys(partitions, EARLIEST if self.kind is Kind.EARLIEST else LATEST)
        read = set(partitions)
        for problem, found in (
            ("lacks", read - set(self.by_partition)),
            ("names", set(self.by_partition) - read),
        ):
            if found:
                which = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(found)[:5])
                more = f" and {len(found) - 5} more" if len(found) > 5 else ""
                rest = (
                    "it must name each partition that is read"
                    if problem == "lacks"
                    else "the query does not read it, or it does not exist"
                )
                raise SourceError(f"option {self.option} {problem} {which}{more}: {rest}")
        return {tp: self.by_partition[tp] for tp in read}


def parse_offsets(text: str, option: str, refused: int) -> Position:
    """Parse ``earliest``, ``latest`` or JSON of offsets, as of Spark's Kafka source.

    Args:
        text: the option's value.
        option: the option's name.
        refused: the value that is not allowed: LATEST, EARLIEST, or 0 for none.

    Raises:
        UsageError: the value is wrong; the text names the option.
    """
    words = {"earliest": EARLIEST, "latest": LATEST}
    word = text.strip().lower()
    if word in words:
        if words[word] == refused:
            raise UsageError(f"option {option} cannot be {word} here")
        return Position(Kind(word), option)
    by_partition = _by_partition(text, option)
    for (topic, partition), offset in by_partition.items():
        if offset < EARLIEST or offset == refused:
            raise UsageError(f"option {option}: {topic}/{partition} cannot be {offset}")
    return Position(Kind.OFFSETS, option, by_partition)


def parse_times(text: str, option: str, or_latest: bool) -> Position:
    """Parse JSON of timestamps by partition.

    Args:
        text: the option's value.
        option: the option's name.
        or_latest: see :class:`Position`.

    Raises:
        UsageError: the value is wrong; the text names the option.
    """
    by_partition = _by_partition(text, option)
    for (topic, partition), time in by_partition.items():
        if time < 0:
            raise UsageError(f"option {option}: {topic}/{partition} cannot be {time}")
    return Position(Kind.TIMES, option, by_partition, or_latest=or_latest)


def parse_time(text: str, option: str, or_latest: bool) -> Position:
    """Parse one timestamp for all partitions; for the arguments see :func:`parse_times`."""
    if not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 63:
        raise UsageError(f"option {option}: {text!r} is not a number of milliseconds since 1970")
    return Position(Kind.TIME, option, time=int(text), or_latest=or_latest)


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """Parse ``{"topic": [0, 1]}``; raises UsageError if it is wrong."""
    found: list[TopicPartition] = []
    for topic, partitions in _object(text, "assign").items():
        _check_topic(topic, "assign")
        if not isinstance(partitions, list) or not partitions:
            raise UsageError(f"option assign: {topic} needs a list of partitions")
        found += [(topic, _partition(each, "assign", topic)) for each in partitions]
    if len(set(found)) < len(found):
        raise UsageError("option assign: it names a partition twice")
    if not found:
        raise UsageError("option assign: it names no partition")
    return tuple(found)


def parse_subscribe(text: str) -> tuple[str, ...]:
    """Parse ``a,b``; raises UsageError if a name is wrong."""
    topics = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not topics:
        raise UsageError("option subscribe: it names no topic")
    for topic in topics:
        _check_topic(topic, "subscribe")
    return topics


def parse_pattern(text: str) -> str:
    """Parse a regular expression for whole topic names; raises UsageError if it is wrong."""
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(
            f"option subscribePattern: {text!r} is not a regular expression ({error})"
        ) from error
    if not text:
        raise UsageError("option subscribePattern: it is empty")
    return text


def _check_topic(topic: str, option: str) -> None:
    if not _TOPIC.match(topic) or topic in (".", ".."):
        raise UsageError(f"option {option}: {topic!r} is not a valid topic name")


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"option {option}: {text!r} is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise UsageError(f"option {option}: {text!r} is not a JSON object with topics as names")
    return found


def _by_partition(text: str, option: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(text, option).items():
        _check_topic(topic, option)
        if not isinstance(partitions, dict):
            raise UsageError(f"option {option}: {topic} needs an object with partitions as names")
        for name, value in partitions.items():
            partition = _partition(name, option, topic)
            if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
                raise UsageError(
                    f"option {option}: {topic}/{partition} is {value!r}, which is not an integer"
                )
            found[topic, partition] = value
    if not found:
        raise UsageError(f"option {option}: it names no partition")
    return found


def _partition(given: object, option: str, topic: str) -> int:
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 31:
        raise UsageError(f"option {option}: {topic} has no partition {given!r}")
    return int(text)


__all__ = [
    "EARLIEST",
    "LATEST",
    "Kind",
    "Position",
    "parse_assign",
    "parse_offsets",
    "parse_pattern",
    "parse_subscribe",
    "parse_time",
    "parse_times",
]

"""Where reading starts and ends, as options say it: ``earliest``, ``latest``, JSON of offsets or of times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pixy.pipeline.errors import SourceError, UsageError
from pixy.wire.types import TopicPartition

"""Topic and partition."""

LATEST: Final = -1
EARLIEST: Final = -2
"""In JSON of offsets, and in the protocol's ListOffsets."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


class Kind(StrEnum):
    """What a position is made of."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMES = "times"
    """A time for each partition."""
    TIME = "time"
    """One for all."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start, or to end.

    Attributes:
        option: its name, for errors.
        by_place: an offset (LATEST, EARLIEST too), or a time in milliseconds.
        time: milliseconds, for TIME.
        or_latest: for times: a partition without a record as late begins at its end.
    """

    kind: Kind
    option: str = ""
    by_place: Mapping[TopicPartition, int] = field(default_factory=dict)
    time: int = -1
    or_latest: bool = False

    @property
    def by_time(self) -> bool:
        """Whether it is made of times, which are not offsets."""
        return self.kind in (Kind.TIME, Kind.TIMES)

    def wanted(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What to ask the brokers about each partition: EARLIEST, LATEST, a time; or the offset itself.

        Raises:
            SourceError: JSON that does not name each partition, or names one that is not there.
        """
        if self.kind is Kind.TIME:
            return dict.fromkeys(places, self.time)
        if self.kind in (Kind.EARLIEST, Kind.LATEST):
            return dict.fromkeys(places, EARLIEST if self.kind is Kind.EARLIEST else LATEST)
        here = set(places)
        for problem, found in (("lacks", here - set(self.by_place)), ("names", set(self.by_place) - here)):
            if found:
                which = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(found)[:5])
                more = f" and {len(found) - 5} more" if len(found) > 5 else ""
                rest = (
                    "each partition that is read must be in it"
                    if problem == "lacks"
                    else "it is not read, or does not exist"
                )
                raise SourceError(f"option {self.option} {problem} {which}{more}: {rest}")
        return {place: self.by_place[place] for place in here}


def parse_offsets(text: str, option: str, refused: int) -> Position:
    """``earliest``, ``latest`` or JSON as of Spark's Kafka source; ``refused`` is LATEST, EARLIEST or 0."""
    words = {"earliest": EARLIEST, "latest": LATEST}
    word = text.strip().lower()
    if word in words:
        if words[word] == refused:
            raise UsageError(f"option {option} can not be {word} here")
        return Position(Kind(word), option)
    by_place = _by_place(text, option)
    for (topic, partition), offset in by_place.items():
        if offset < EARLIEST or offset == refused:
            raise UsageError(f"option {option}: {topic}/{partition} can not be {offset}")
    return Position(Kind.OFFSETS, option, by_place)


def parse_times(text: str, option: str, or_latest: bool) -> Position:
    """JSON of milliseconds by partition."""
    by_place = _by_place(text, option)
    for (topic, partition), time in by_place.items():
        if time < 0:
            raise UsageError(f"option {option}: {topic}/{partition} can not be {time}")
    return Position(Kind.TIMES, option, by_place, or_latest=or_latest)


def parse_time(text: str, option: str, or_latest: bool) -> Position:
    """Milliseconds for all partitions."""
    if not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 63:
        raise UsageError(f"option {option}: {text!r} are not milliseconds since 1970")
    return Position(Kind.TIME, option, time=int(text), or_latest=or_latest)


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """``{"topic": [0, 1]}``"""
    found: list[TopicPartition] = []
    for topic, partitions in _object(text, "assign").items():
        _check_topic(topic, "assign")
        if not isinstance(partitions, list) or not partitions:
            raise UsageError(f"option assign: {topic} needs a list of partitions")
        found += [(topic, _partition(each, "assign", topic)) for each in partitions]
    if len(set(found)) < len(found):
        raise UsageError("option assign: a partition is there twice")
    if not found:
        raise UsageError("option assign: it names no partition")
    return tuple(found)


def parse_subscribe(text: str) -> tuple[str, ...]:
    """``a,b``"""
    topics = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not topics:
        raise UsageError("option subscribe: it names no topic")
    for topic in topics:
        _check_topic(topic, "subscribe")
    return topics


def parse_pattern(text: str) -> str:
    """A regular expression that a topic's whole name matches."""
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
        raise UsageError(f"option {option}: {topic!r} is not a name of a topic")


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"option {option}: {text!r} is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise UsageError(f"option {option}: {text!r} is not a JSON object by topic")
    return found


def _by_place(text: str, option: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(text, option).items():
        _check_topic(topic, option)
        if not isinstance(partitions, dict):
            raise UsageError(f"option {option}: {topic} needs an object by partition")
        for name, value in partitions.items():
            partition = _partition(name, option, topic)
            if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
                raise UsageError(
                    f"option {option}: {topic}/{partition} is {value!r}, which is not a whole number"
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

"""Who moves how many bytes, which requests fail, who is throttled, and which responses came late."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pixy.tap.apis import FETCH, PRODUCE, SHARE_FETCH
from pixy.tap.latency import api_name
from pixy.tap.lru import LruDict
from pixy.tap.partial_decoders import Topic
from pixy.tap.sampling import Sampling
from pixy.tap.topics import Topics
from pixy.wire import errors

_TALKERS: Final = 5_000
"""Pairs of topic and client id whose bytes are counted."""
_FAILURES: Final = 2_000
"""Combinations of API, error, topic and client id that are counted."""
_THROTTLED: Final = 2_000
"""Pairs of API and client id."""
_SLOW: Final = 200
_NODES: Final = 2_000
"""Structures of a response in which error codes are looked for."""
EXPECTED: Final = frozenset({27, 79, 70, 71, 122, 123})
"""Errors that are part of a healthy protocol: REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, and ends of fetch sessions
(FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH) and of share sessions."""

_CODES: Final = ("ErrorCode", "AcknowledgeErrorCode")
_NAMES: Final = ("Name", "TopicName", "Topic", "TopicId")


@dataclass(slots=True)
class Talk:
    """Bytes of records and requests of a client on a topic.

    ``written`` and ``writes`` have what brokers have accepted, and what has no response (acks=0).
    """

    written: int = 0
    read: int = 0
    writes: int = 0
    reads: int = 0
    refused: int = 0
    """Bytes of records that brokers have refused."""
    refusals: int = 0


@dataclass(slots=True)
class Failures:
    """How often an error was seen, and when last (seconds since the epoch)."""

    count: int = 0
    first: float = 0.0
    last: float = 0.0


@dataclass(slots=True)
class Throttled:
    """Responses that asked the client to wait, and for how many seconds in total."""

    count: int = 0
    seconds: float = 0.0
    last: float = 0.0


class Traffic:
    """The counters of all connections.

    Args:
        topics: names of topics.
        sampling: which share of the requests was read, and so is in the counters.
    """

    def __init__(self, topics: Topics, sampling: Sampling) -> None:
        self._topics, self._sampling = topics, sampling
        self.talkers: LruDict[tuple[Topic, str], Talk] = LruDict(_TALKERS)
        self.failures: LruDict[tuple[int, int, Topic, str], Failures] = LruDict(_FAILURES)
        self.throttled: LruDict[tuple[int, str], Throttled] = LruDict(_THROTTLED)
        self.slow: deque[dict[str, Any]] = deque(maxlen=_SLOW)
        self.slow_total = 0

    @property
    def forgotten(self) -> int:
        """Number of entries evicted at a limit."""
        return self.talkers.forgotten + self.failures.forgotten + self.throttled.forgotten

    def talked(self, topic: Topic, client_id: str, size: int, *, written: bool) -> None:
        """Count bytes of records.

        Args:
            topic: name or id.
            client_id: the client.
            size: bytes of the records, compressed as on the wire.
            written: whether the client wrote them.
        """
        talk = self.talkers.get_or_create((self._topics.resolve(topic), client_id), Talk)
        if written:
            talk.written, talk.writes = talk.written + size, talk.writes + 1
        else:
            talk.read, talk.reads = talk.read + size, talk.reads + 1

    def refused(self, topic: Topic, client_id: str, size: int) -> None:
        """Count bytes of records that a broker has refused.

        Args:
            topic: name or id.
            client_id: the client.
            size: bytes of the records, compressed as on the wire.
        """
        talk = self.talkers.get_or_create((self._topics.resolve(topic), client_id), Talk)
        talk.refused, talk.refusals = talk.refused + size, talk.refusals + 1

    def failed(self, key: int, code: int, topic: Topic, client_id: str, at: float) -> None:
        """Count an error in a response.

        Args:
            key: the API key.
            code: the error code.
            topic: name or id of the topic that the error is about, empty if none.
            client_id: the client.
            at: when, in seconds since the epoch.
        """
        entry = (key, code, self._topics.resolve(topic), client_id)
        found = self.failures.get_or_create(entry, lambda: Failures(0, at, at))
        found.count, found.last = found.count + 1, at

    def answered(
        self, key: int, throttle: int, found: Iterable[tuple[Topic, int]], client_id: str, at: float
    ) -> None:
        """Count what a response says: the throttle time and the errors.

        Args:
            key: the API key.
            throttle: milliseconds.
            found: topics and error codes; zero is no error.
            client_id: the client.
            at: when, in seconds since the epoch.
        """
        if throttle > 0:
            waited = self.throttled.get_or_create((key, client_id), Throttled)
            waited.count, waited.seconds, waited.last = waited.count + 1, waited.seconds + throttle / 1000, at
        for topic, code in found:
            if code:
                self.failed(key, code, topic, client_id, at)

    def late(self, document: dict[str, Any]) -> None:
        """Keep a slow response for the view."""
        self.slow.append(document)
        self.slow_total += 1

    # -- views -------------------------------------------------------------------------------------

    def top(self) -> list[dict[str, Any]]:
        """List the bytes of each client on each topic, most first: of the requests that were read, one in ``*_one_in``."""
        written = self._sampling.one_in(PRODUCE)
        read = self._sampling.one_in(FETCH, SHARE_FETCH)
        merged: dict[tuple[str, str], Talk] = {}
        for (topic, client_id), talk in self.talkers.items():
            one = merged.setdefault((self._topics.show(topic) if topic else "", client_id), Talk())
            one.written, one.writes = one.written + talk.written, one.writes + talk.writes
            one.read, one.reads = one.read + talk.read, one.reads + talk.reads
            one.refused, one.refusals = one.refused + talk.refused, one.refusals + talk.refusals
        return [
            {
                "topic": topic,
                "client_id": client_id,
                "bytes_written": talk.written,
                "bytes_read": talk.read,
                "writes": talk.writes,
                "reads": talk.reads,
                "bytes_refused": talk.refused,
                "refused": talk.refusals,
                "writes_one_in": written,
                "reads_one_in": read,
            }
            for (topic, client_id), talk in sorted(
                merged.items(), key=lambda each: (-each[1].written - each[1].read, each[0])
            )
        ]

    def errors(self) -> dict[str, Any]:
        """Describe errors and throttle times by API, topic and client, latest first."""
        failures = sorted(self.failures.items(), key=lambda each: -each[1].last)
        throttled = sorted(self.throttled.items(), key=lambda each: -each[1].last)
        return {
            "errors": [
                {
                    "api": api_name(key),
                    "code": code,
                    "error": error_name(code),
                    "expected": code in EXPECTED,
                    "topic": (self._topics.show(topic) if topic else None),
                    "client_id": client_id,
                    "count": found.count,
                    "one_in": self._sampling.one_in(key),
                    "first": round(found.first, 3),
                    "last": round(found.last, 3),
                }
                for (key, code, topic, client_id), found in failures
            ],
            "throttled": [
                {
                    "api": api_name(key),
                    "client_id": client_id,
                    "count": found.count,
                    "one_in": self._sampling.one_in(key),
                    "seconds": round(found.seconds, 3),
                    "last": round(found.last, 3),
                }
                for (key, client_id), found in throttled
            ],
        }


def errors_in(body: Any) -> Iterator[tuple[Topic, int]]:
    """Iterate over the errors of a decoded response as topic (empty if none) and code."""
    left = [_NODES]
    yield from _errors_in(body, "", left)


def _errors_in(value: Any, topic: Topic, left: list[int]) -> Iterator[tuple[Topic, int]]:
    if isinstance(value, list):
        for each in value:
            if not isinstance(each, dict | list) or left[0] <= 0:
                return
            yield from _errors_in(each, topic, left)
        return
    left[0] -= 1
    if "Partitions" in value or "TopicName" in value or "TopicId" in value or "Topic" in value:
        topic = next((value[name] for name in _NAMES if value.get(name)), topic)
    for name in _CODES:
        if value.get(name):
            yield topic, value[name]
    for each in value.values():
        if isinstance(each, dict | list) and each:
            yield from _errors_in(each, topic, left)


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or its number if this version does not know it."""
    try:
        return errors.ErrorCode(code).name
    except ValueError:
        return str(code)


__all__ = ["EXPECTED", "Traffic", "error_name", "errors_in"]

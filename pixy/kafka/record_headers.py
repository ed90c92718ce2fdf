"""The headers of consumed messages, also those whose names are not UTF-8.

confluent-kafka (2.16) decodes the names as UTF-8. When one is not, ``headers()`` raises SystemError and leaves
a list with a null pointer in the message; the second call returns that list, and whoever looks into it ends the
process (SIGSEGV). Worse, a call that CPython has specialized does not see the exception: it returns that list the
first time. So only :func:`headers_of` calls ``headers()``, in a way that is never specialized, and replaces the list
at once. The headers are then read again from the log by our own wire library (:class:`HeaderReader`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from operator import methodcaller
from typing import Any, Final

from pixy.errors import InvalidParameter
from pixy.kafka.brokers import bootstrap, wire_options
from pixy.kafka.errors import error_of, translate
from pixy.kafka.settings import Settings
from pixy.wire.client import PartitionFetcher
from pixy.wire.exceptions import WireError
from pixy.wire.types import RecordHeader, RecordHeaders, TopicPartition

_call_headers = methodcaller("headers")
"""Calls through C, which checks each result for a pending exception. ``message.headers()`` in a function that runs
often becomes PRECALL_NO_KW_METHOD_DESCRIPTOR_NOARGS (CPython 3.11) or CALL_METHOD_DESCRIPTOR_NOARGS, which do not."""

_PATIENCE = 5.0
"""Seconds for reading the headers of one partition's messages: the answer with the messages waits for it."""
_FETCH_BYTES = 1 << 16
"""Of one fetch. The batch with the record is returned whatever its size, and little that nobody asked for."""


class _Unreadable(list[RecordHeader]):
    """The type of :data:`UNREADABLE`, a list because confluent-kafka keeps a message's headers in one."""


UNREADABLE: Final = _Unreadable()
"""In place of the headers of a message that the library cannot decode. Empty, so it can stand in an answer."""


def headers_of(message: Any) -> RecordHeaders:
    """Return a message's headers; none, or :data:`UNREADABLE` if a name is not UTF-8.

    A name ends at its first NUL: librdkafka hands names over as C strings.
    """
    try:
        headers: RecordHeaders | None = _call_headers(message)
    except (SystemError, UnicodeDecodeError):
        headers = UNREADABLE
        message.set_headers(headers)
    return () if headers is None else headers


def checked_headers(headers: Iterable[RecordHeader]) -> list[RecordHeader]:
    """Return the headers of a message to be written.

    Raises:
        InvalidParameter: a name contains NUL; readers would see only what stands before it.
    """
    found = list(headers)
    for name, _ in found:
        if "\0" in name:
            raise InvalidParameter(f"bad header name: {name[:40]!r} must not contain NUL")
    return found


def unreadable(messages: Iterable[Any]) -> dict[TopicPartition, list[Any]]:
    """Return those of the messages whose headers are :data:`UNREADABLE`, by partition."""
    found: dict[TopicPartition, list[Any]] = {}
    for message in messages:
        if headers_of(message) is UNREADABLE:
            found.setdefault((message.topic(), message.partition()), []).append(message)
    return found


def replace_headers(messages: Iterable[Any], found: Mapping[int, RecordHeaders]) -> None:
    """Give messages the headers that :class:`HeaderReader` has found.

    Args:
        messages: of one partition. One that was not found keeps :data:`UNREADABLE`.
        found: by offset.
    """
    for message in messages:
        headers = found.get(message.offset())
        if headers is not None:
            message.set_headers(headers)


class HeaderReader:
    """Reads headers from the log. Blocking; opens a connection for each call.

    Args:
        settings: a client's settings in librdkafka's terms; see :mod:`pixy.kafka.settings`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read(self, topic: str, partition: int, offsets: Collection[int]) -> dict[int, RecordHeaders]:
        """Return the headers of records, by offset. U+FFFD replaces the bytes of a name that are not UTF-8.

        Args:
            topic: of the records.
            partition: of the records.
            offsets: of the records. One that the log no longer holds, or that was not read within 5 s, is
                missing in the result.

        Raises:
            KafkaError: the partition cannot be read.
        """
        wanted, found = set(offsets), dict[int, RecordHeaders]()
        deadline = time.monotonic() + _PATIENCE
        try:
            with self._open(topic, partition) as fetcher:
                for offset in sorted(wanted):
                    if offset not in found and time.monotonic() < deadline:
                        found |= _fetch(fetcher, offset, wanted)
        except (WireError, OSError) as error:
            raise translate(error) from error
        return found

    def _open(self, topic: str, partition: int) -> PartitionFetcher:
        options = wire_options(self._settings, _PATIENCE)
        return PartitionFetcher(
            bootstrap(self._settings), topic, partition, max_bytes=_FETCH_BYTES, max_wait_ms=0, **options
        )


def _fetch(fetcher: PartitionFetcher, offset: int, wanted: Collection[int]) -> dict[int, RecordHeaders]:
    result = fetcher.fetch(offset)
    if result.error_code:
        raise error_of(result.error_code)
    return {
        record.offset: [(_shown(name), value) for name, value in record.headers]
        for record in result.records()
        if record.offset in wanted
    }


def _shown(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

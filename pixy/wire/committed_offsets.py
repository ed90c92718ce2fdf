"""Decode and encode the committed offsets in ``__consumer_offsets``.

A record of that topic is a committed offset if its key has version 0 or 1; later key versions describe groups. A null
value is a tombstone: the offset was deleted. Schemas: OffsetCommitKey and OffsetCommitValue of Kafka's coordinator.
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from pixy.wire.exceptions import (
    DecodeError,
    EncodeError,
    TruncatedError,
    UnsupportedVersionError,
)
from pixy.wire.varint import decode_unsigned, encode_unsigned

_KEY_VERSIONS = (0, 1)
_MAX_VALUE_VERSION = 4
_FLEXIBLE = 4
_TOPIC_ID_TAG = 0


class OffsetKey(NamedTuple):
    """The group and partition of a committed offset. Versions 0 and 1 have the same layout."""

    group: str
    topic: str
    partition: int
    version: int = 1

    def marshal(self) -> bytes:
        """Encode the key. Raises EncodeError, UnsupportedVersionError."""
        if self.version not in _KEY_VERSIONS:
            raise UnsupportedVersionError(f"version {self.version} of an offset's key")
        return (
            _pack(">h", version=self.version)
            + _string(self.group, "group")
            + _string(self.topic, "topic")
            + _pack(">i", partition=self.partition)
        )


class OffsetValue(NamedTuple):
    """A committed offset. Times are milliseconds since the epoch; -1 or None marks a field that the version lacks."""

    offset: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    leader_epoch: int = -1
    topic_id: uuid.UUID | None = None
    version: int = 3

    def marshal(self) -> bytes:
        """Encode the value. Raises EncodeError, UnsupportedVersionError."""
        version = self.version
        if not 0 <= version <= _MAX_VALUE_VERSION:
            raise UnsupportedVersionError(f"version {version} of a committed offset")
        out = _pack(">h", version=version) + _pack(">q", offset=self.offset)
        if version >= 3:
            out += _pack(">i", leader_epoch=self.leader_epoch)
        out += _string(self.metadata, "metadata", compact=version >= _FLEXIBLE)
        out += _pack(">q", commit_timestamp=self.commit_timestamp)
        if version == 1:
            out += _pack(">q", expire_timestamp=self.expire_timestamp)
        if version >= _FLEXIBLE:
            tag = b"" if self.topic_id is None else bytes((_TOPIC_ID_TAG, 16)) + self.topic_id.bytes
            out += bytes((self.topic_id is not None,)) + tag
        return out


def decode_key(data: bytes) -> OffsetKey:
    """Decode the key of a record.

    Raises:
        UnsupportedVersionError: the key is not that of a committed offset.
        DecodeError: the key is malformed, or cut off (TruncatedError).
    """
    reader = _Reader(data)
    version = reader.number(">h", "version")
    if version not in _KEY_VERSIONS:
        raise UnsupportedVersionError(f"version {version} of a key in __consumer_offsets is not an offset's")
    key = OffsetKey(reader.string("group"), reader.string("topic"), reader.number(">i", "partition"), version)
    reader.end()
    return key


def decode_value(data: bytes) -> OffsetValue:
    """Decode the value of a record.

    Raises:
        UnsupportedVersionError: the version is unknown.
        DecodeError: the value is malformed, or cut off (TruncatedError).
    """
    reader = _Reader(data)
    version = reader.number(">h", "version")
    if not 0 <= version <= _MAX_VALUE_VERSION:
        raise UnsupportedVersionError(f"version {version} of a committed offset")
    offset = reader.number(">q", "offset")
    epoch = reader.number(">i", "leader epoch") if version >= 3 else -1
    metadata = reader.string("metadata", compact=version >= _FLEXIBLE)
    committed = reader.number(">q", "commit timestamp")
    expires = reader.number(">q", "expire timestamp") if version == 1 else -1
    topic_id = reader.topic_id() if version >= _FLEXIBLE else None
    reader.end()
    return OffsetValue(offset, metadata, committed, expires, epoch, topic_id, version)


def _pack(layout: str, **field: int) -> bytes:
    ((name, value),) = field.items()
    try:
        return struct.pack(layout, value)
    except struct.error:
        raise EncodeError(f"{name} is {value!r}, which does not fit") from None


def _string(text: str, field: str, *, compact: bool = False) -> bytes:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except (UnicodeEncodeError, AttributeError):
        raise EncodeError(f"{field} is {text!r}, which is not text") from None
    if len(data) > 0x7FFF:
        raise EncodeError(f"{field} has {len(data)} bytes, more than 32767")
    return (encode_unsigned(len(data) + 1) if compact else struct.pack(">h", len(data))) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int, field: str) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise TruncatedError(f"{field} is cut off", start)
        return self._data[start : self._at]

    def number(self, layout: str, field: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout), field))[0])

    def unsigned(self) -> int:
        value, self._at = decode_unsigned(self._data, self._at)
        return value

    def string(self, field: str, *, compact: bool = False) -> str:
        start = self._at
        length = self.unsigned() - 1 if compact else self.number(">h", field)
        if length < 0:
            raise DecodeError(f"length of the {field} is {length}", start)
        return self.take(length, field).decode("utf-8", "surrogateescape")

    def topic_id(self) -> uuid.UUID | None:
        found = None
        for _ in range(self.unsigned()):
            start = self._at
            tag, size = self.unsigned(), self.unsigned()
            content = self.take(size, f"tagged field {tag}")
            if tag == _TOPIC_ID_TAG:
                if size != 16:
                    raise DecodeError(f"topic id has {size} bytes", start)
                found = uuid.UUID(bytes=content)
        return found

    def end(self) -> None:
        if self._at != len(self._data):
            raise DecodeError(f"{len(self._data) - self._at} bytes are left over", self._at)

"""Decode and encode the records in which brokers keep their state: groups, commits, transactions, share groups.

These topics are ``__consumer_offsets``, ``__transaction_state`` and ``__share_group_state``. Their records have the names of Kafka's
schemas, without ``Key`` and ``Value``: ``GroupMetadata``, ``OffsetCommit``, ``TransactionLog``, ``ShareSnapshot``. A key begins with
the type of the record, int16; a value with its version, int16. A null value is a tombstone: what the key names is gone.
The table ``internal_topics.txt`` has the fields.

    >>> record = decode("__consumer_offsets", bytes.fromhex("0002000167"), None)
    >>> record.kind, record.key, record.value
    ('GroupMetadata', {'Group': 'g'}, None)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from pixy.wire import consumer_protocol, messages, schema
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError, UnsupportedVersionError, WireError

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)

_NUMBER: Final = struct.Struct(">h")
_OLD_OFFSET: Final = 0  # keys of commits before Kafka 0.9, with the fields of the newer ones


class InternalRecord(NamedTuple):
    """A record of an internal topic."""

    kind: str
    """The name of the record, as ``OffsetCommit``."""
    key: messages.Body
    version: int
    """The version of the value; -1 for a tombstone."""
    value: messages.Body | None
    """None for a tombstone."""

    @property
    def group(self) -> str | None:
        """The group that the record is about; None for a transaction."""
        found: str | None = self.key.get("Group") or self.key.get("GroupId")
        return found


@cache
def kinds(topic: str) -> Mapping[int, str]:
    """Map the types of a topic's records to their names. Raises UnsupportedVersionError if it is no internal topic."""
    if topic not in TOPICS:
        raise UnsupportedVersionError(f"{topic} is no internal topic (there are {', '.join(TOPICS)})")
    found = {}
    for name, block in schema.internal_blocks().items():
        words = block.split(maxsplit=5)
        if name.endswith("Key") and words[4] == topic:
            found[int(words[2])] = name.removesuffix("Key")
    if topic == CONSUMER_OFFSETS:
        found[_OLD_OFFSET] = "OffsetCommit"
    return found


def decode(topic: str, key: bytes | None, value: bytes | None) -> InternalRecord:
    """Decode a record.

    Args:
        topic: one of :data:`TOPICS`.
        key: the record's key.
        value: its value; None for a tombstone.

    Raises:
        UnsupportedVersionError: the type, or the version of the value, is unknown: written by a later Kafka.
        DecodeError: the record is malformed, or cut off (TruncatedError).
    """
    if key is None:
        raise DecodeError("a record of an internal topic has no key", 0)
    type_ = _number(key, "key")
    try:
        kind = kinds(topic)[type_]
    except KeyError:
        raise UnsupportedVersionError(f"type {type_} of a record in {topic}") from None
    found = messages.decode(f"{kind}Key", 0, key, _NUMBER.size)
    if value is None:
        return InternalRecord(kind, found, -1, None)
    version = _number(value, "value")
    return InternalRecord(kind, found, version, messages.decode(f"{kind}Value", version, value, _NUMBER.size))


def encode(
    topic: str, kind: str, key: Mapping[str, Any], value: Mapping[str, Any] | None = None, version: int = 0
) -> tuple[bytes, bytes | None]:
    """Encode a record; return its key and value.

    Args:
        topic: one of :data:`TOPICS`.
        kind: the name of the record, as ``OffsetCommit``.
        key: fields of the key.
        value: fields of the value; None for a tombstone.
        version: version of the value.

    Raises:
        EncodeError: the topic has no such record, or a body does not fit its schema.
        UnsupportedVersionError: the topic or the version is unknown.
    """
    types = [number for number, name in kinds(topic).items() if name == kind]
    if not types:
        raise EncodeError(f"{topic} has no {kind} (it has {', '.join(sorted(set(kinds(topic).values())))})")
    encoded = _NUMBER.pack(max(types)) + messages.encode(f"{kind}Key", 0, key)
    if value is None:
        return encoded, None
    return encoded, _NUMBER.pack(version) + messages.encode(f"{kind}Value", version, value)


def readable(record: InternalRecord) -> messages.Body | None:
    """Return a record's value with the subscriptions and assignments of consumers decoded, as far as they can be."""
    value = record.value
    if value is None or record.kind != "GroupMetadata" or value["ProtocolType"] != "consumer":
        return value
    return {**value, "Members": [_readable_member(each) for each in value["Members"]]}


def _readable_member(member: messages.Body) -> messages.Body:
    shown = dict(member)
    for name, read in (
        ("Subscription", consumer_protocol.decode_subscription),
        ("Assignment", consumer_protocol.decode_assignment),
    ):
        if member[name]:
            try:
                shown[name] = read(member[name]).body
            except WireError:
                pass  # another client's own bytes: they stay as they are
    return shown


def _number(data: bytes, part: str) -> int:
    if len(data) < _NUMBER.size:
        raise TruncatedError(f"the {part} of a record of an internal topic is cut off", len(data))
    return int(_NUMBER.unpack_from(data)[0])


__all__ = [
    "CONSUMER_OFFSETS",
    "SHARE_GROUP_STATE",
    "TOPICS",
    "TRANSACTION_STATE",
    "InternalRecord",
    "decode",
    "encode",
    "kinds",
    "readable",
]

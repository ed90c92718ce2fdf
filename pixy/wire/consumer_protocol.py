"""What consumers tell each other inside JoinGroup and SyncGroup: subscriptions and assignments.

These bytes are the clients' own (KIP-429, KIP-792, KIP-881), no broker looks into them, and clients
disagree in details: some send version 1 without its last field. So what is missing at the end has
its default, and of a version above the last one known the fields that are known are read.
Protocol types other than ``consumer`` carry other bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pixy.wire import messages
from pixy.wire.decoders import FAILURES, decoder, explain
from pixy.wire.exceptions import DecodeError, TruncatedError

SUBSCRIPTION: Final = "ConsumerProtocolSubscription"
ASSIGNMENT: Final = "ConsumerProtocolAssignment"
_VERSION: Final = struct.Struct(">h")


class Embedded(NamedTuple):
    """A body and the version that was written before it (which may be above the last one known)."""

    version: int
    body: dict[str, Any]


def decode_subscription(data: messages.Buffer) -> Embedded:
    """The ``Metadata`` of a member: Topics, UserData, OwnedPartitions, GenerationId, RackId."""
    return _decode(SUBSCRIPTION, data)


def decode_assignment(data: messages.Buffer) -> Embedded:
    """The ``Assignment`` of a member: AssignedPartitions, UserData.

    The coordinator gives an empty one to a member without partitions in some clients' groups: an
    empty assignment, of version -1.
    """
    return _decode(ASSIGNMENT, data) if len(data) else Embedded(-1, messages.defaults(ASSIGNMENT, 0))


def encode_subscription(version: int, body: Mapping[str, Any]) -> bytes:
    """The ``Metadata`` for a JoinGroupRequest."""
    return _VERSION.pack(version) + messages.encode(SUBSCRIPTION, version, body)


def encode_assignment(version: int, body: Mapping[str, Any]) -> bytes:
    """One member's ``Assignment`` for a SyncGroupRequest."""
    return _VERSION.pack(version) + messages.encode(ASSIGNMENT, version, body)


def _decode(name: str, data: messages.Buffer) -> Embedded:
    if len(data) < 2:
        raise TruncatedError(f"{name}: no version", len(data))
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise DecodeError(f"{name}: version {version}", 0)
    known = min(version, messages.versions(name)[-1])
    function = decoder(name, known, True)
    buffer = bytes(data)
    try:
        body, _ = function(buffer, 2, len(buffer))
    except FAILURES as error:
        raise explain(function, f"{name} v{version}", error, len(buffer)) from None
    return Embedded(version, body)

"""Subscriptions and assignments, which consumers exchange inside JoinGroup and SyncGroup.

Clients define these bytes (KIP-429, KIP-792, KIP-881) and brokers do not read them. Clients disagree in details: some
send version 1 without its last field. The decoders are therefore lenient: fields missing at the end get their defaults,
and a version above the newest known one is read up to its known fields. Protocol types other than ``consumer`` carry
other bytes.
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
    """A body and the version written before it, which may be above the newest known one."""

    version: int
    body: dict[str, Any]


def decode_subscription(data: messages.Buffer) -> Embedded:
    """Decode a member's ``Metadata`` of JoinGroup: Topics, UserData, OwnedPartitions, GenerationId, RackId.

    Raises DecodeError.
    """
    return _decode(SUBSCRIPTION, data)


def decode_assignment(data: messages.Buffer) -> Embedded:
    """Decode a member's ``Assignment`` of SyncGroup: AssignedPartitions, UserData.

    Some clients' leaders give a member without partitions no bytes at all; that is an empty assignment of version -1.
    Raises DecodeError.
    """
    return _decode(ASSIGNMENT, data) if len(data) else Embedded(-1, messages.defaults(ASSIGNMENT, 0))


def encode_subscription(version: int, body: Mapping[str, Any]) -> bytes:
    """Encode a member's ``Metadata`` for JoinGroup. Raises EncodeError, UnsupportedVersionError.

    Args:
        version: of the subscription; it goes before the body.
        body: fields by name.
    """
    return _VERSION.pack(version) + messages.encode(SUBSCRIPTION, version, body)


def encode_assignment(version: int, body: Mapping[str, Any]) -> bytes:
    """Encode a member's ``Assignment`` for SyncGroup. Raises EncodeError, UnsupportedVersionError.

    Args:
        version: of the assignment; it goes before the body.
        body: fields by name.
    """
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

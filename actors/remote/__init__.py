"""Actors elsewhere: one small interface for transports, and the ref that uses it.

``actors.nats`` and ``actors.ray`` are transports. This package has what they share: :class:`RemoteRef`, the
:class:`Transport` interface, codecs and errors.
"""

from actors.remote.codec import BadPayload, Codec, PickleCodec, TypedCodec
from actors.remote.errors import ConnectionLost, RemoteError
from actors.remote.ref import RemoteRef, Transport

__all__ = [
    "BadPayload",
    "Codec",
    "ConnectionLost",
    "PickleCodec",
    "RemoteError",
    "RemoteRef",
    "Transport",
    "TypedCodec",
]

"""Kafka's protocol messages: every version of each, as dictionaries.

Names of messages and fields are those of Kafka's schemas: ``JoinGroupRequest``, ``GroupId``. A body
is a dict with the fields of its version: integers are int, ``bytes`` and ``records`` bytes, ``uuid``
a :class:`uuid.UUID` (all zero for none), null is None, arrays are lists and structures dicts. Tagged
fields that are unknown are kept under ``_tags`` of their structure, tag to bytes; without them there
is no such key.

    >>> body = {"GroupId": "g", "MemberId": "m", "GenerationId": 3}
    >>> encode("HeartbeatRequest", 0, body).hex()
    '0001670000000300016d'
    >>> decode("HeartbeatRequest", 0, bytes.fromhex("0001670000000300016d"))
    {'GroupId': 'g', 'GenerationId': 3, 'MemberId': 'm'}

A decoder allocates nothing that the buffer does not hold the bytes for, though a structure takes more
memory as a dict than as bytes (up to a hundred times): cap the size of frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pixy.wire import decoders, schema
from pixy.wire.encoders import FAILURES, encoder
from pixy.wire.exceptions import DecodeError, EncodeError, UnsupportedVersionError
from pixy.wire.normalize import TAGS, normalize
from pixy.wire.varint import Buffer

API_VERSIONS: Final = 18
CONTROLLED_SHUTDOWN: Final = 7

Body = dict[str, Any]

_decoders: dict[tuple[str, int], decoders.Decoder] = {}


def decode(name: str, version: int, buffer: Buffer, offset: int = 0) -> Body:
    """The body that fills ``buffer`` from ``offset`` to its end.

    Raises DecodeError (TruncatedError where the buffer ends too early) with the byte's place in the
    buffer, and UnsupportedVersionError.
    """
    body, end = decode_from(name, version, buffer, offset)
    if end != len(buffer):
        raise DecodeError(f"{name} v{version}: {len(buffer) - end} bytes are left over", end)
    return body


def decode_from(name: str, version: int, buffer: Buffer, offset: int = 0) -> tuple[Body, int]:
    """Like :func:`decode`, but the body may end before the buffer does: also where it ended."""
    try:
        function = _decoders[name, version]
    except KeyError:
        function = _decoders[name, version] = decoders.decoder(name, version)
    if type(buffer) is not bytes:
        buffer = bytes(buffer)
    size = len(buffer)
    if not 0 <= offset <= size:
        raise DecodeError(f"{name} v{version}: begins outside of the {size} bytes", offset)
    try:
        return function(buffer, offset, size)
    except decoders.FAILURES as error:
        raise decoders.explain(function, f"{name} v{version}", error, size) from None


def encode(name: str, version: int, body: Mapping[str, Any]) -> bytes:
    """The bytes of a body; fields that are missing have the schema's defaults.

    Raises EncodeError, which names the field, and UnsupportedVersionError.
    """
    function = encoder(name, version)
    if type(body) is dict:
        try:
            return function(body)
        except FAILURES:
            pass  # not in the exact form: perhaps wrong, perhaps only short
    full = normalize(schema.message(name), version, body)
    try:
        return function(full)
    except FAILURES as error:  # e.g. 2 GiB of bytes
        raise EncodeError(f"{name} v{version}: {error}") from None


def defaults(name: str, version: int) -> Body:
    """A body in which every field has its default."""
    function = schema.message(name)
    encoder(name, version)
    return {each.name: each.default_in(version) for each in function.fields if version in each.versions}


def names() -> list[str]:
    """All messages, in the order of API keys; headers and data come last."""
    return list(schema.blocks())


def api_key(name: str) -> int | None:
    """The API key of a message, or of an API (``JoinGroup``); None for a header or data."""
    known = name if name in schema.blocks() else f"{name}Request"
    return schema.message(known).key


def api_name(key: int) -> str:
    """``JoinGroup`` for 11; UnsupportedVersionError for a key that is not known."""
    try:
        return schema.keys()[key]
    except KeyError:
        raise UnsupportedVersionError(f"unknown API key {key}") from None


def request_name(key: int) -> str:
    """``JoinGroupRequest`` for 11."""
    return f"{api_name(key)}Request"


def response_name(key: int) -> str:
    """``JoinGroupResponse`` for 11."""
    return f"{api_name(key)}Response"


def versions(name: str) -> range:
    """The versions that are known of a message."""
    return schema.message(name).versions


def first_flexible(name: str) -> int | None:
    """The first version with compact lengths and tagged fields (KIP-482); None if there is none."""
    flexible = schema.message(name).flexible
    return flexible[0] if flexible else None


def request_header_version(key: int, version: int) -> int:
    """The version of the RequestHeader before a request."""
    if key == CONTROLLED_SHUTDOWN and version == 0:
        return 0  # it alone has no client id
    return 2 if version in schema.message(request_name(key)).flexible else 1


def response_header_version(key: int, version: int) -> int:
    """The version of the ResponseHeader before a response."""
    # Whoever asks for ApiVersions does not know yet what the broker can read (KIP-511).
    if key == API_VERSIONS:
        return 0
    return 1 if version in schema.message(response_name(key)).flexible else 0


__all__ = [
    "API_VERSIONS",
    "TAGS",
    "Body",
    "Buffer",
    "api_key",
    "api_name",
    "decode",
    "decode_from",
    "defaults",
    "encode",
    "first_flexible",
    "names",
    "request_header_version",
    "request_name",
    "response_header_version",
    "response_name",
    "versions",
]

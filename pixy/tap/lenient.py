"""Decode responses as clients do: ignore extra bytes at the end.

Java clients ignore them, and librdkafka's mock broker sends an extra byte in Metadata v9+. It also sends malformed bytes after the
error of an ApiVersions response whose version it does not know; clients read the error alone, and ask again in version 0.
"""

from __future__ import annotations

from typing import Final

from pixy.wire import messages
from pixy.wire.exceptions import DecodeError

UNSUPPORTED_VERSION: Final = b"\0\x23"
_ERROR_END: Final = 6  # bytes of a correlation id and an error code


def decode_response(frame: bytes, key: int, version: int) -> tuple[int, messages.Body, bytes]:
    """Decode a response.

    Args:
        frame: the response, without its length.
        key: the API key.
        version: the version of the request.

    Returns:
        Correlation id, body, and the extra bytes.

    Raises:
        WireError: the response cannot be decoded.
    """
    if key == messages.API_VERSIONS and frame[4:6] == UNSUPPORTED_VERSION:
        try:
            return _decoded(frame, key, 0)  # KIP-511
        except DecodeError:
            error = int.from_bytes(UNSUPPORTED_VERSION, "big")
            body = {"ErrorCode": error, "ApiKeys": []}
            return int.from_bytes(frame[:4], "big", signed=True), body, frame[_ERROR_END:]
    return _decoded(frame, key, version)


def _decoded(frame: bytes, key: int, version: int) -> tuple[int, messages.Body, bytes]:
    header, end = messages.decode_from(
        "ResponseHeader", messages.response_header_version(key, version), frame
    )
    body, end = messages.decode_from(messages.response_name(key), version, frame, end)
    return header["CorrelationId"], body, frame[end:]

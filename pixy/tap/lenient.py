"""Decode responses as clients do: ignore extra bytes at the end.

Java clients ignore them, and librdkafka's mock broker sends an extra byte in Metadata v9+.
"""

from __future__ import annotations

from typing import Final

from pixy.wire import messages

UNSUPPORTED_VERSION: Final = b"\0\x23"


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
        version = 0  # KIP-511
    header, end = messages.decode_from(
        "ResponseHeader", messages.response_header_version(key, version), frame
    )
    body, end = messages.decode_from(messages.response_name(key), version, frame, end)
    return header["CorrelationId"], body, frame[end:]

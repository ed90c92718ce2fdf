"""Responses as clients read them: bytes that are left over at the end do no harm.

Java's clients ignore them, and librdkafka's mock broker sends one too many in Metadata v9+.
"""

from __future__ import annotations

from typing import Final

from pixy.wire import messages

UNSUPPORTED_VERSION: Final = b"\0\x23"


def decode_response(frame: bytes, key: int, version: int) -> tuple[int, messages.Body, bytes]:
    """Correlation id, body, and what is left over. Raises WireError."""
    if key == messages.API_VERSIONS and frame[4:6] == UNSUPPORTED_VERSION:
        version = 0  # KIP-511
    header, end = messages.decode_from(
        "ResponseHeader", messages.response_header_version(key, version), frame
    )
    body, end = messages.decode_from(messages.response_name(key), version, frame, end)
    return header["CorrelationId"], body, frame[end:]

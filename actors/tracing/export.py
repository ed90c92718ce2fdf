"""Frames as bytes and back. The only module that needs ``msgpack``."""

from __future__ import annotations

from typing import Any

import msgpack

from actors.tracing.protocol import IDENTITY, ROW, VERSION

_TABLES = {"new": IDENTITY, "dirty": ROW}


def encode(frame: dict[str, Any]) -> bytes:
    """A frame as msgpack. What msgpack does not know is sent as its type's name."""
    packed: bytes = msgpack.packb(frame, default=lambda thing: type(thing).__name__)
    return packed


def decode(data: bytes) -> dict[str, Any]:
    """A frame with its table rows as dictionaries; see :mod:`actors.tracing.protocol`.

    Raises:
        ValueError: this is no frame, or one of another version.
    """
    try:
        frame = msgpack.unpackb(data, strict_map_key=False)
    except Exception as error:
        raise ValueError(f"this is no frame: {error}") from error
    if not isinstance(frame, dict) or frame.get("v") != VERSION:
        raise ValueError("this is no frame of this version")
    for name, columns in _TABLES.items():
        if name in frame:
            frame[name] = [dict(zip(columns, row, strict=True)) for row in frame[name]]
    return frame


__all__ = ["decode", "encode"]

"""Encode and decode the monitor's frames. The only module that needs ``msgpack``."""

from __future__ import annotations

from typing import Any

import msgpack

from actors.tracing.protocol import IDENTITY, ROW, VERSION

_TABLES = {"new": IDENTITY, "dirty": ROW}


def encode(frame: dict[str, Any]) -> bytes:
    """Pack a frame. A value that msgpack cannot pack is replaced by the name of its type."""
    packed: bytes = msgpack.packb(frame, default=lambda thing: type(thing).__name__)
    return packed


def decode(data: bytes) -> dict[str, Any]:
    """Unpack a frame and turn its table rows into dictionaries; see :mod:`actors.tracing.protocol`.

    Raises:
        ValueError: ``data`` is not a frame, or is a frame of another version.
    """
    try:
        frame = msgpack.unpackb(data, strict_map_key=False)
    except Exception as error:
        raise ValueError(f"not a frame: {error}") from error
    if not isinstance(frame, dict) or frame.get("v") != VERSION:
        raise ValueError(f"not a frame of version {VERSION}")
    for name, columns in _TABLES.items():
        if name in frame:
            frame[name] = [dict(zip(columns, row, strict=True)) for row in frame[name]]
    return frame


__all__ = ["decode", "encode"]

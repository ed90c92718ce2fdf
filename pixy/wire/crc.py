"""CRC-32C (Castagnoli, RFC 3720), the checksum of record batches.

Uses the fastest implementation installed: fastcrc (tens of GB/s, any buffer), google-crc32c (as fast,
but accepts only bytes, so other buffers are copied), or a table in Python (some 10 MB/s).
"""

from __future__ import annotations

from collections.abc import Callable

from pixy.wire.varint import Buffer

_POLYNOMIAL = 0x82F63B78  # reflected


def _make_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return tuple(table)


_TABLE = _make_table()


def pure_crc32c(data: Buffer) -> int:
    """Compute CRC-32C without any library."""
    table = _TABLE
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _choose() -> tuple[str, Callable[[Buffer], int]]:
    try:
        from fastcrc.crc32 import iscsi

        return "fastcrc", iscsi
    except ImportError:
        pass
    try:
        import google_crc32c

        if google_crc32c.implementation == "c":
            return "google-crc32c", lambda data: int(google_crc32c.value(bytes(data)))
    except ImportError:
        pass
    return "pure Python", pure_crc32c


BACKEND, crc32c = _choose()
"""The name of the implementation, and ``crc32c(data) -> int``; ``crc32c(b"123456789") == 0xe3069283``."""

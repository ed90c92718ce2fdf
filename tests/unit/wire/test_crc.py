"""CRC-32C in all implementations."""

from __future__ import annotations

import subprocess
import sys

import google_crc32c
import pytest
from hypothesis import given, settings, strategies as st

from pixy.wire import crc
from tests.support import ROOT

VECTORS = [  # RFC 3720, B.4
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_vectors(data: bytes, expected: int) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        assert crc.crc32c(buffer) == crc.pure_crc32c(buffer) == expected


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_all_implementations_agree(data: bytes) -> None:
    assert crc.crc32c(data) == crc.pure_crc32c(data) == google_crc32c.value(data)


@pytest.mark.parametrize(
    ("missing", "backend"),
    [
        ((), "fastcrc"),
        (("fastcrc",), "google-crc32c"),
        (("fastcrc", "google_crc32c"), "pure Python"),
    ],
)
def test_the_fastest_installed_implementation_is_used(missing: tuple[str, ...], backend: str) -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r}))\n"
        "from pixy.wire import crc\n"
        "print(crc.BACKEND, crc.crc32c(memoryview(b'-123456789')[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"{backend} {0xE3069283}"

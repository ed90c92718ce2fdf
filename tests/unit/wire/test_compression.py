"""Codecs: output, accepted input, and limits."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import time

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings, strategies as st

from pixy.wire import compression
from pixy.wire.compression import Codec
from pixy.wire.compression.streams import MAX_EMPTY
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError
from tests.support import ROOT

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b"Good news everyone! " * 10_000
XERIAL = b"\x82SNAPPY\x00"
CODECS = [codec for codec in Codec if codec]


def xerial(*blocks: bytes, numbers: bytes = struct.pack(">ii", 1, 1)) -> bytes:
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return XERIAL + numbers + b"".join(struct.pack(">i", len(each)) + each for each in packed)


def streamed_zstd(data: bytes) -> bytes:
    stream = zstd.ZstdCompressor()
    return stream.compress(data[:100]) + stream.compress(data[100:]) + stream.flush()


@given(st.sampled_from(list(Codec)), st.binary(max_size=200), st.integers(0, 5000))
@settings(deadline=None)
def test_any_bytes_round_trip(codec: Codec, data: bytes, times: int) -> None:
    data *= times % 97
    each = compression.get(codec)
    assert each.codec == codec
    assert each.decompress(each.compress(data), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "data", "expected"),
    [
        (Codec.GZIP, gzip.compress(TEXT), TEXT),
        (Codec.GZIP, gzip.compress(TEXT) + gzip.compress(b"2") + gzip.compress(b""), TEXT + b"2"),
        (Codec.SNAPPY, xerial(TEXT), TEXT),
        (Codec.SNAPPY, xerial(TEXT, b"2"), TEXT + b"2"),
        (Codec.SNAPPY, xerial(TEXT) + xerial(b"2"), TEXT + b"2"),
        (
            Codec.SNAPPY,
            xerial(TEXT, numbers=struct.pack("<ii", 1, 1)),
            TEXT,
        ),  # written by some versions of Redpanda
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), TEXT),
        (Codec.SNAPPY, XERIAL + bytes(8), b""),
        (Codec.LZ4, lz4.frame.compress(TEXT), TEXT),  # linked blocks
        (Codec.LZ4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True), TEXT),
        (Codec.LZ4, lz4.frame.compress(TEXT) + lz4.frame.compress(b"2"), TEXT + b"2"),
        (Codec.LZ4, bytes(cramjam.lz4.compress(TEXT)), TEXT),
        (Codec.ZSTD, zstd.compress(TEXT), TEXT),
        (Codec.ZSTD, streamed_zstd(TEXT), TEXT),  # without content size
        (Codec.ZSTD, streamed_zstd(TEXT) + zstd.compress(b"2"), TEXT + b"2"),
    ],
)
def test_output_of_other_libraries_is_read(codec: Codec, data: bytes, expected: bytes) -> None:
    each = compression.get(codec)
    assert each.decompress(data, len(expected)) == expected
    if expected:
        with pytest.raises(DecodeError, match=f"larger than {len(expected) - 1} bytes"):
            each.decompress(data, len(expected) - 1)


def test_lz4_output_is_readable_by_java() -> None:
    data = compression.get("lz4").compress(TEXT)
    # Version 1, independent blocks, neither checksums nor content size; blocks of 64 KiB.
    assert data[:6].hex() == "04224d186040"
    found = lz4.frame.get_frame_info(data)
    assert not found["block_linked"] and found["block_size"] == 65536
    assert found["content_size"] == 0 and not found["content_checksum"]
    _, read = lz4.frame.decompress(data, return_bytes_read=True)
    assert read == len(data)  # one frame


def test_snappy_output_is_xerial_blocks() -> None:
    data = compression.get("snappy").compress(TEXT)
    assert data[:16] == XERIAL + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", data, 16)
    assert len(cramjam.snappy.decompress_raw(data[20 : 20 + length])) == 32 * 1024


def test_gzip_output_does_not_depend_on_the_time() -> None:
    data = compression.get("gzip").compress(TEXT)
    assert data[4:8] == bytes(4) and gzip.decompress(data) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_bytes(codec: Codec) -> None:
    each = compression.get(codec)
    whole = each.compress(b"Good news everyone!")
    for size in range(len(whole)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # the header alone is an empty stream
        with pytest.raises(DecodeError) as caught:
            each.decompress(whole[:size], 1000)
        assert 0 <= caught.value.offset <= size
    with pytest.raises(TruncatedError):
        each.decompress(b"", 1000)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(deadline=None)
def test_changed_bytes(codec: Codec, data: st.DataObject) -> None:
    each = compression.get(codec)
    packed = bytearray(each.compress(TEXT[:300]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(each.decompress(bytes(packed), 1000)) <= 1000
    except DecodeError as error:
        assert 0 <= error.offset <= len(packed)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes(codec: Codec, data: bytes) -> None:
    try:
        assert len(compression.get(codec).decompress(data, 1000)) <= 1000
    except DecodeError as error:
        assert 0 <= error.offset <= len(data)


@pytest.mark.parametrize("length", [100, 4_000_000_000])
def test_an_impossible_length_in_snappy_allocates_nothing(length: int) -> None:
    from pixy.wire.varint import encode_unsigned

    with pytest.raises(DecodeError, match=f"2 bytes cannot become {length}|larger than 1000"):
        compression.get("snappy").decompress(encode_unsigned(length) + b"\x00", 1000)
    with pytest.raises(DecodeError, match="length of a snappy block is -1"):
        compression.get("snappy").decompress(xerial() + b"\xff\xff\xff\xff", 1000)
    with pytest.raises(TruncatedError, match="snappy block of 99 bytes is cut off"):
        compression.get("snappy").decompress(xerial() + b"\x00\x00\x00\x63", 1000)


_BOMB = """
import resource, sys
from pixy.wire import compression
from pixy.wire.exceptions import DecodeError
packed = sys.stdin.buffer.read()
each = compression.get(sys.argv[1])
each.decompress(each.compress(b"warm" * 1000), 4000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    each.decompress(packed, 16 << 20)
except DecodeError as error:
    print(error, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, sep="|")
"""


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_takes_no_more_memory_than_allowed(codec: Codec) -> None:
    packed = compression.get(codec).compress(bytes(512 << 20))
    if codec is Codec.SNAPPY:
        assert len(packed) > 10 << 20  # snappy expands at most 22 times
    done = subprocess.run(
        [sys.executable, "-c", _BOMB, codec.name], input=packed, cwd=ROOT, capture_output=True, check=True
    )
    text, grown = done.stdout.decode().strip().split("|")
    assert "larger than 16777216 bytes" in text
    assert int(grown) < 64 * 1024, f"{grown} KiB more for a bound of 16 MiB"


def test_names_numbers_and_levels() -> None:
    assert compression.get("ZSTD") is compression.get(4) is compression.get(Codec.ZSTD)
    for name, levels in (("gzip", (1, 9)), ("lz4", (0, 9)), ("zstd", (1, 19))):
        small, big = (
            len(compression.get(name, level).compress(TEXT[:999] + bytes(range(256)) * 9)) for level in levels
        )
        assert big <= small
        with pytest.raises(EncodeError, match=f"{name} has levels"):
            compression.get(name, 99)
    with pytest.raises(EncodeError, match="snappy has no levels"):
        compression.get("snappy", 1)
    for unknown in (5, 7, -1, "brotli"):
        with pytest.raises(DecodeError, match=f"unknown compression codec {unknown!r}"):
            compression.get(unknown)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("snappy", "cramjam"),
        ("lz4", "lz4"),
        ("zstd", zstd.__name__.partition(".")[0]),
    ],
)
def test_a_missing_library_is_named(name: str, module: str) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from pixy.wire import compression\n"
        "print(compression.get('gzip').decompress(compression.get('gzip').compress(b'x'), 1))\n"
        "try:\n"
        f"    compression.get({name!r})\n"
        "except compression.CodecUnavailableError as error:\n"
        "    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == "b'x'"
    package = "backports.zstd" if module == "backports" else module
    assert second.startswith(f"codec {name} needs {module}") and second.endswith(f"pip install {package}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_many_small_frames_cost_their_number(name: str) -> None:
    """Not the square of it. Both are measured in processor time, in the same run."""
    codec = compression.get(name)
    frame = codec.compress(b"x")

    def cost(count: int) -> float:
        data = frame * count
        begun = time.process_time()
        assert codec.decompress(data, 1 << 20) == b"x" * count
        return time.process_time() - begun

    cost(100)
    few = min(cost(1000) for _ in range(5))
    assert cost(100_000) < 100 * few * 3


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_frames_without_content_are_bounded(name: str) -> None:
    """Each costs a decompressor for some 10 bytes: up to 4 s for a mebibyte of zstd's with a large window."""
    codec = compression.get(name)
    frame = codec.compress(b"")
    assert codec.decompress(frame * MAX_EMPTY + codec.compress(b"x"), 10) == b"x"
    with pytest.raises(DecodeError, match="more than 1000 frames without content"):
        codec.decompress(frame * 2 * MAX_EMPTY, 10)

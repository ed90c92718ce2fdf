"""Run every fuzz target with arbitrary bytes and with modified real ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from pixy.wire import compression
from pixy.wire.crc import crc32c
from tests.effort import examples
from tests.fuzz.targets import TARGETS
from tests.unit.wire.samples import message, typical

WHOLE = [typical(6).build().compress(compression.get(codec)).marshal() for codec in compression.Codec]
OLD = [message(magic, 1, b"key", b"value", 9) for magic in (0, 1)]
OLD += [message(1, 1, None, compression.get(codec).compress(OLD[1]), 9, codec) for codec in (1, 2, 3, 4)]


@st.composite
def tampered(draw: st.DrawFn) -> bytes:
    """A record set with bytes changed, cut or doubled, and a right or wrong checksum."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(WHOLE + OLD), min_size=1, max_size=2))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1) | st.integers(0, min(len(data), 70) - 1))
        data[at] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data)))
        data[at:at] = draw(st.binary(max_size=12))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    if draw(st.booleans()) and len(data) > 61:
        end = 12 + int.from_bytes(data[8:12], "big")
        data[17:21] = crc32c(bytes(data[21:end])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("target", TARGETS)
@given(data=st.binary(max_size=150))
@settings(max_examples=examples(200), deadline=None)
def test_any_bytes(target: str, data: bytes) -> None:
    TARGETS[target](data)


@pytest.mark.parametrize("target", ["record_sets", "batches", "messages"])
@given(data=tampered())
@settings(max_examples=examples(400), deadline=None)
def test_modified_bytes(target: str, data: bytes) -> None:
    TARGETS[target](data)


@pytest.mark.parametrize("codec", range(5))
@given(data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_modified_compressed_records(codec: int, data: st.DataObject) -> None:
    changed = bytearray(WHOLE[codec][61:])
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    TARGETS["packed"](bytes((codec,)) + changed)

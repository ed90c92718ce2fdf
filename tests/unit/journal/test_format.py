"""The journal's format: encoding and decoding round-trip, and damaged batches are refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, strategies as st

from pixy.journal import (
    COLUMNS,
    VERSION,
    JournalFormatError,
    Kind,
    Lost,
    Stream,
    decode,
    encode,
)

NOW = 1_790_000_000_000_000

int64 = st.integers(-(2**62), 2**62)
rows = st.lists(
    st.tuples(
        st.sampled_from(Kind),
        st.integers(NOW, NOW + 10**9),
        st.integers(0, 4),
        int64,
        st.integers(0, 2**40),
        st.integers(-1, 2**45),
        st.integers(-1, 2**40),
        st.integers(-300, 300),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(rows, st.lists(st.tuples(st.text(max_size=8), st.integers(0, 2**31 - 1)), min_size=5, max_size=5))
def test_encoded_events_decode_to_the_same_events(events: list[Any], names: list[tuple[str, int]]) -> None:
    streams = [Stream(topic, part, f"g{part}", at) for at, (topic, part) in enumerate(names)]
    made = [(*row[:2], streams[row[2]], *row[3:]) for row in events]
    batch = decode(encode("c1", NOW, 7, made, lost=Lost(3, NOW, NOW + 1), final=True))
    assert (batch.client, batch.epoch, batch.sequence, batch.final) == ("c1", NOW, 7, True)
    assert batch.lost == Lost(3, NOW, NOW + 1)
    found = batch.events()
    assert len(found) == len(made)
    for event, row in zip(found, made, strict=True):
        stream = row[2]
        assert (event["topic"], event["partition"]) == (stream.topic, stream.partition)
        assert (event["group"], event["generation"]) == (stream.group, stream.generation)
        wanted = dict(zip(COLUMNS, row, strict=True))
        del wanted["stream"]
        assert {name: event[name] for name in wanted} == wanted


def test_a_typical_batch_takes_less_than_15_bytes_an_event() -> None:
    streams = [Stream("orders", part, "billing", 4) for part in range(8)]
    events = [
        (
            3 + 2 * (at % 2),
            NOW + at * 400,
            streams[at % 8],
            10**9 + at // 2,
            0,
            NOW // 1000 + at // 2,
            1500 + at % 700,
            0,
            2 * (at % 2),
        )
        for at in range(1000)
    ]
    assert len(encode("kp_host_1", NOW, 1, events)) < 15_000


def test_a_name_that_is_not_valid_unicode_is_encoded_with_a_replacement() -> None:
    event = (Kind.ACKED, NOW, Stream("t", 0, "g\ud800"), 1, 0, 0, 0, 0, 0)
    assert decode(encode("c", NOW, 0, [event])).events()[0]["group"] == "g?"


def _changed(**changes: Any) -> bytes:
    found = msgpack.unpackb(
        encode(
            "c", NOW, 0, [(Kind.ACKED, NOW + at, Stream("t", 0, "g"), at, 0, 0, 0, 0, 0) for at in range(3)]
        )
    )
    for name, change in changes.items():
        found[name] = change(found[name])
    return bytes(msgpack.packb(found))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"", "not a journal batch"),
        (b"Good news everyone!", "not a journal batch"),
        (msgpack.packb([1, 2]), "no msgpack map with a version"),
        (msgpack.packb({"a": 1}), "no msgpack map with a version"),
        (
            _changed(version=lambda v: v + 1),
            f"version {VERSION + 1} is unknown: this program reads {VERSION}",
        ),
        (_changed(version=lambda _v: "x"), "version 'x' is unknown"),
        (
            _changed(columns=lambda c: {k: v for k, v in c.items() if k != "took"}),
            "damaged: KeyError('took')",
        ),
        (
            _changed(columns=lambda c: {**c, "time": (0, 4, b"12345")}),
            "column time has 5 bytes for 3 events of 4",
        ),
        (_changed(columns=lambda c: {**c, "time": (0, 3, b"123456789")}), "column time"),
        (_changed(count=lambda n: n + 1), "damaged"),
        (_changed(streams=lambda _s: 5), "damaged"),
    ],
)
def test_a_value_that_is_not_a_batch_is_refused_with_the_reason(value: bytes, told: str) -> None:
    with pytest.raises(JournalFormatError) as caught:
        decode(value)
    assert told in str(caught.value)


@given(st.lists(st.text(max_size=8), max_size=60))
def test_callers_decode_to_the_same_callers(callers: list[str]) -> None:
    made: Any = [
        (Kind.OFFERED, NOW, Stream("t", 0, "g", 1), at, 0, -1, -1, 0, 0, each)
        for at, each in enumerate(callers)
    ]
    batch = decode(encode("c1", NOW, 7, made))
    shown = [each.encode("utf-8", "replace").decode() for each in callers]
    assert batch.callers_of() == shown == [event["caller"] for event in batch.events()]


def test_a_batch_without_callers_and_one_that_names_none_have_no_caller() -> None:
    made: Any = [(Kind.OFFERED, NOW, Stream("t", 0, "g", 1), 5, 0, -1, -1, 0, 0)]
    value = encode("c1", NOW, 7, made)
    earlier = msgpack.unpackb(value)
    del earlier["callers"]
    for each in (value, msgpack.packb(earlier)):
        batch = decode(each)
        assert batch.callers_of() == [""] and batch.callers == () and batch.events()[0]["caller"] == ""
    damaged = msgpack.unpackb(encode("c1", NOW, 7, [(*made[0], "me")]))
    damaged["callers"] = ["", "me"][:1]
    assert decode(msgpack.packb(damaged)).callers_of() == [""]

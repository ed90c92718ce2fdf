"""Any body round-trips; any bytes decode to a body or raise a typed error."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from pixy.wire import consumer_protocol, frames, messages
from pixy.wire.exceptions import DecodeError, WireError
from tests.effort import QUICK, examples
from tests.unit.wire import bodies

MANY = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("name", messages.names())
def test_round_trip(name: str) -> None:
    """A body round-trips; a missing or surplus byte is an error."""
    for version in messages.versions(name):
        round_trip(name, version)


def round_trip(name: str, version: int) -> None:
    @settings(MANY, max_examples=2 if QUICK else 5)
    @given(bodies.body(name, version))
    @example(bodies.typical(name, version))
    def check(body: dict[str, Any]) -> None:
        data = messages.encode(name, version, body)
        assert messages.decode(name, version, data) == body
        # The slow path, through normalization, produces the same bytes.
        assert messages.encode(name, version, Careful(body)) == data
        for wrong in (data[:-1], data + b"\0") if data else (b"\0",):
            with pytest.raises(DecodeError):
                messages.decode(name, version, wrong)

    check()


class Careful(dict):  # type: ignore[type-arg]
    """A mapping other than dict, which always goes through normalization."""


@pytest.mark.parametrize("name", messages.names())
def test_any_bytes(name: str) -> None:
    """The same noise, in the place of a valid message, at its end and within it, for all versions."""
    valid = {
        each: messages.encode(name, each, bodies.typical(name, each)) for each in messages.versions(name)
    }

    @settings(MANY, max_examples=examples(25))
    @given(st.binary(max_size=60), st.integers(0, max(map(len, valid.values()))), st.integers(1, 255))
    def check(noise: bytes, position: int, flip: int) -> None:
        for version, data in valid.items():
            at = position % max(len(data), 1)
            flipped = bytearray(data or b"\0")
            flipped[at] ^= flip
            for wrong in (noise, data[:at] + noise, bytes(flipped), data[:at]):
                decode(name, version, wrong)

    check()


def decode(name: str, version: int, data: bytes) -> None:
    """Decode; a decoded body must be encodable."""
    try:
        body = messages.decode(name, version, data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data), (error, len(data))
        return
    again = messages.encode(name, version, body)
    assert same(messages.decode(name, version, again), body)


def same(one: Any, two: Any) -> bool:
    return repr(one) == repr(two)  # NaN does not equal itself


@settings(max_examples=examples(300), deadline=None, database=None)
@given(st.binary(max_size=80))
def test_any_frame(data: bytes) -> None:
    for call in (
        lambda: frames.decode_request(data),
        lambda: frames.decode_request_header(data),
        lambda: frames.decode_response(data, "ApiVersions", 3),
        lambda: frames.decode_response(data, "Fetch", 17),
        lambda: consumer_protocol.decode_subscription(data),
        lambda: consumer_protocol.decode_assignment(data),
        lambda: list(frames.FrameSplitter(50).feed(data)),
    ):
        try:
            call()
        except WireError:
            pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["FetchResponse", "MetadataResponse", "OffsetFetchRequest", "LeaderAndIsrRequest"]
)
def test_a_huge_count_costs_neither_memory_nor_time(name: str) -> None:
    """Replace every 4 bytes in turn by a huge count."""
    for version in messages.versions(name)[:: max(len(messages.versions(name)) - 1, 1)]:
        valid = messages.encode(name, version, bodies.typical(name, version))
        messages.decode(name, version, valid)  # compiles the decoder
        tracemalloc.start()
        begun = time.process_time()
        for place in range(len(valid)):
            for lie in (
                b"\x7f\xff\xff\xff",
                b"\x00\xff\xff\xff",
                b"\xff\xff\xff\xff\x0f",
                b"\xff\xff\xff\x7f",
            ):
                decode(name, version, valid[:place] + lie + valid[place + 4 :])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2_000_000, (name, version, peak)
        assert time.process_time() - begun < 20

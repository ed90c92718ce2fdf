"""Frames: cutting a stream, headers, requests and responses."""

from __future__ import annotations

import doctest
import itertools

import pytest
from hypothesis import given, strategies as st

from pixy.wire import frames, messages
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError, UnsupportedVersionError
from pixy.wire.frames import FrameSplitter, RequestHeader


def test_the_examples_in_the_docstring() -> None:
    assert doctest.testmod(frames).failed == 0


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 60), max_size=12))
def test_frames_come_out_however_the_stream_is_cut(wanted: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frames.frame(each) for each in wanted) + b"\0\0"
    places = [0, *sorted(min(each, len(stream)) for each in cuts), len(stream)]
    splitter = FrameSplitter()
    found = [frame for start, end in itertools.pairwise(places) for frame in splitter.feed(stream[start:end])]
    assert found == wanted
    assert splitter.pending == 2


@given(st.lists(st.binary(max_size=10), min_size=2, max_size=6), st.integers(0, 3))
def test_frames_left_in_the_iterator_stay(wanted: list[bytes], taken: int) -> None:
    stream = b"".join(map(frames.frame, wanted))
    splitter = FrameSplitter()
    first = splitter.feed(stream[: len(stream) // 2])
    found = [frame for _, frame in zip(range(taken), first, strict=False)]
    found += splitter.feed(memoryview(stream)[len(stream) // 2 :])
    assert found == wanted and list(splitter.feed(b"")) == [] and splitter.pending == 0


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "00000065"])
@pytest.mark.parametrize("step", [1, 3, 200])
def test_a_bad_length_stops_the_stream_after_the_frames_before_it(length: str, step: int) -> None:
    stream = frames.frame(b"one") + frames.frame(b"two") + bytes.fromhex(length) + b"x" * 50
    splitter = FrameSplitter(100)
    found = []
    with pytest.raises(DecodeError, match="at most 100 are allowed") as caught:
        for start in range(0, len(stream), step):
            for frame in splitter.feed(stream[start : start + step]):
                found += [frame]  # one by one, because the error follows some
    assert found == [b"one", b"two"] and caught.value.offset == 14
    with pytest.raises(DecodeError):
        list(splitter.feed(b"more"))


def test_a_large_frame_is_not_copied_for_each_chunk() -> None:
    """16 MiB in chunks of 1 KiB: copying the held bytes each time would move 128 GiB."""
    splitter = FrameSplitter()
    chunk = b"x" * 1024
    assert list(splitter.feed((16 << 20).to_bytes(4, "big"))) == []
    found = [frame for _ in range(16 << 10) for frame in splitter.feed(chunk)]
    assert [len(each) for each in found] == [16 << 20]


@pytest.mark.parametrize(
    ("api", "version", "client_id"),
    [
        ("JoinGroup", 0, "c"),
        ("JoinGroup", 9, None),
        ("Produce", 3, ""),
        ("ApiVersions", 3, "é"),
        ("ControlledShutdown", 0, None),
        ("ControlledShutdown", 1, "c"),
        ("ControlledShutdown", 3, "c"),
        ("Fetch", 18, "c"),
    ],
)
def test_a_request_round_trips(api: str, version: int, client_id: str | None) -> None:
    data = frames.encode_request(api, version, 77, client_id, {})
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    request = frames.decode_request(data[4:])
    key = messages.api_key(api)
    assert (request.header.key, request.version, request.header.correlation_id) == (key, version, 77)
    assert request.header.client_id == client_id and request.name == f"{api}Request"
    assert request.body == messages.defaults(f"{api}Request", version)
    assert frames.encode_request(key, version, 77, client_id, request.body) == data  # type: ignore[arg-type]
    answer = frames.encode_response(f"{api}Response", version, 77, {})
    response = frames.decode_response(answer[4:], api, version)
    assert (response.correlation_id, response.name, response.version) == (77, f"{api}Response", version)


def test_the_bytes_of_a_header() -> None:
    wanted = bytes.fromhex("00000014 000c 0004 00000001 0001 63 00 01 00000000 01 00 00")
    assert frames.encode_request("Heartbeat", 4, 1, "c", {}).hex(" ") == wanted.hex(" ")


def test_tags_of_a_header_are_kept() -> None:
    header = {
        "RequestApiKey": 12,
        "RequestApiVersion": 4,
        "CorrelationId": 5,
        "ClientId": "c",
        "_tags": {9: b"t"},
    }
    frame = messages.encode("RequestHeader", 2, header) + messages.encode("HeartbeatRequest", 4, {})
    assert frames.decode_request(frame).header.tags == {9: b"t"}
    frame = messages.encode("ResponseHeader", 1, {"CorrelationId": 5, "_tags": {9: b"t"}}) + bytes(7)
    assert frames.decode_response(frame, 12, 4).tags == {9: b"t"}


@pytest.mark.parametrize(
    ("key", "version", "flexible"), [(18, 99, True), (999, 0, True), (17, 5, False), (11, 12, True)]
)
def test_the_header_of_an_unknown_request(key: int, version: int, flexible: bool) -> None:
    fields = {"RequestApiKey": key, "RequestApiVersion": version, "CorrelationId": 5, "ClientId": "c"}
    frame = messages.encode("RequestHeader", 2 if flexible else 1, fields) + b"body"
    assert frames.decode_request_header(frame) == RequestHeader(key, version, 5, "c", len(frame) - 4)
    with pytest.raises(UnsupportedVersionError):
        frames.decode_request(frame)


@pytest.mark.parametrize(
    ("data", "kind", "offset"),
    [
        ("", TruncatedError, 0),
        ("000b0007000000", TruncatedError, 7),
        ("000b0007000000010005 63", TruncatedError, 8),
        ("000b000700000001fffe", DecodeError, 8),
        ("000b0007000000010001ff00", DecodeError, 10),
        ("000b00070000000100016301", TruncatedError, 12),
    ],
)
def test_a_malformed_header(data: str, kind: type[DecodeError], offset: int) -> None:
    with pytest.raises(kind) as caught:
        frames.decode_request_header(bytes.fromhex(data))
    assert type(caught.value) is kind and caught.value.offset == offset


def test_api_versions_falls_back_to_version_0() -> None:
    """A broker that does not support the version answers error 35 in version 0 (KIP-511)."""
    answer = frames.encode_response(
        "ApiVersions",
        0,
        4,
        {
            "ErrorCode": 35,
            "ApiKeys": [{"ApiKey": 18, "MinVersion": 0, "MaxVersion": 2}],
        },
    )
    response = frames.decode_response(answer[4:], "ApiVersions", 4)
    assert response.version == 0 and response.body["ApiKeys"][0]["MaxVersion"] == 2
    other = frames.encode_response("ApiVersions", 3, 4, {"ErrorCode": 42})
    assert frames.decode_response(other[4:], "ApiVersions", 3).version == 3
    mock = bytes.fromhex("0000000700230100120000000200000000")  # librdkafka's, captured
    response = frames.decode_response(mock, "ApiVersions", 3)
    assert response == (7, "ApiVersionsResponse", 0, {"ErrorCode": 35, "ApiKeys": []}, {})


def test_a_message_without_an_api() -> None:
    with pytest.raises(UnsupportedVersionError, match="neither a request nor a response"):
        frames.encode_request("RequestHeader", 2, 1, None, {})
    with pytest.raises(EncodeError, match="CorrelationId"):
        frames.encode_request("Heartbeat", 0, 2**31, None, {})

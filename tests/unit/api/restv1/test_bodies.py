"""Bodies that cost more than they seem to."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from pixy.api.edge.budget import Budget
from pixy.api.limits import MOST_LISTED
from pixy.api.restv1 import bodies
from pixy.api.restv1.consumer_bodies import (
    commit_request,
    partitions_request,
    positions_request,
    subscription_request,
)
from pixy.api.restv1.consumer_options import parse_options
from pixy.api.restv1.errors import ApiError
from pixy.config.model import Instances, Rest

EMPTY = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 200_000
"""Blocks of deflate that hold nothing: a megabyte of which nothing comes out."""


@pytest.mark.parametrize(
    "packed", [EMPTY, gzip.compress(bytes(range(256)) * 4000, 0), gzip.compress(b"x" * 1_000_000)]
)
async def test_only_little_is_unpacked_on_the_loop(monkeypatch: pytest.MonkeyPatch, packed: bytes) -> None:
    here: list[tuple[int, int]] = []
    make, loop = zlib.decompressobj, threading.get_ident()

    class Spy:
        def __init__(self, **kind: int) -> None:
            self._inner = make(**kind)

        def decompress(self, data: bytes, most: int) -> bytes:
            found = self._inner.decompress(data, most)
            if threading.get_ident() == loop:
                here.append((len(data), len(found)))
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Spy)
    with Budget(1 << 30).share() as share:
        try:
            assert len(await bodies.gunzip(packed, Rest(), share)) >= 1_000_000
        except ApiError as error:
            assert packed is EMPTY and "it ends too early" in str(error)
    assert all(size <= 64 * 1024 and found <= 256 * 1024 for size, found in here), here


async def test_zeros_behind_a_gzip_body_are_left_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB of them at once took 36 ms."""
    make = zlib.decompressobj

    class Whole(bytes):
        def lstrip(self, *_what: Any) -> bytes:
            raise AssertionError("all at once")

    class Spy:
        def __init__(self, **kind: int) -> None:
            self._inner = make(**kind)

        @property
        def unused_data(self) -> bytes:
            return Whole(self._inner.unused_data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Spy)
    one, two = gzip.compress(b"a"), gzip.compress(b"b")
    with Budget(1 << 30).share() as share:
        assert await bodies.gunzip(one + bytes(700_000) + two + bytes(524_288), Rest(), share) == b"ab"


async def test_all_members_of_a_gzip_body_are_unpacked() -> None:
    one, two = gzip.compress(b"a" * 70_000), gzip.compress(b"b" * 1_500_000)
    limits = Rest(max_gzip_ratio=10_000)
    with Budget(1 << 30).share() as share:
        for packed in (one + two, one + two + bytes(100)):
            assert await bodies.gunzip(packed, limits, share) == b"a" * 70_000 + b"b" * 1_500_000
        assert len(await bodies.gunzip(one * 32, limits, share)) == 32 * 70_000
        for packed, said in (
            (one * 33, "it has more than 32 members"),
            (one + b"x", ""),
            (one + two[:-3], ""),
        ):
            with pytest.raises(ApiError, match=f"the body is not gzip: .*{said}") as caught:
                await bodies.gunzip(packed, limits, share)
            assert caught.value.kind.status == 400


def test_options_are_read_as_they_were() -> None:
    body = b'{"x": {"y": [1]}, "name": "a", "format": "json", "requestWaitMs": "70", "fetch.min.bytes": 0, '
    body += b'"auto.commit.enable": "FALSE", "max.poll.records": null, "isolation.level": "read_uncommitted"}'
    name, spec = parse_options(body, Instances())
    assert (name, spec.format, spec.wait, spec.min_bytes) == ("a", "json", 0.07, 1)
    assert (spec.auto_commit, spec.isolation, spec.reset) == (False, "read_uncommitted", "latest")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (b'"name": [1]', "name: [1] is not text"),
        (b'"format": [' + b"[]," * 1000 + b"[]]", "format: [[],[],"),
        (b'"fetch.min.bytes": {' + b" " * 2000 + b"}", "Invalid value {"),
        (b'"auto.commit.enable": ' + b"[" * 600 + b"]" * 600, "must be true or false"),
        (b'"auto.offset.reset": "' + b"x" * 5000 + b'"', "Invalid value xxx"),
    ],
)
def test_options_of_a_wrong_type_are_named(option: bytes, said: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_options(b"{" + option + b"}", Instances())
    assert caught.value.kind.status == 422 and said in str(caught.value) and len(str(caught.value)) < 300


def test_a_subscription_may_name_a_thousand_topics() -> None:
    names = ",".join('"t"' for _ in range(1_000))
    assert len(subscription_request(f'{{"topics": [{names}]}}'.encode()).topics or ()) == 1_000


@pytest.mark.parametrize(
    ("parse", "name"),
    [
        (commit_request, "offsets"),
        (partitions_request, "partitions"),
        (positions_request, "offsets"),
        (positions_request, "timestamps"),
    ],
)
def test_a_request_names_a_thousand_topics_and_ten_thousand_partitions(
    parse: Callable[[bytes], Any], name: str
) -> None:
    """Each topic is asked for in the rules, on the event loop."""

    def body(topics: int, partitions: int) -> bytes:
        of = [
            {"topic": f"t{at % topics}", "partition": at, "offset": 1, "timestamp": 1}
            for at in range(partitions)
        ]
        return json.dumps({name: of}).encode()

    parse(body(1000, 10_000))
    with pytest.raises(ApiError, match="too many topics, a request may name 1000"):
        parse(body(1001, 1001))
    with pytest.raises(ApiError, match="too many elements"):
        parse(body(1, 10_001))


@pytest.mark.parametrize(
    "parse", [commit_request, partitions_request, positions_request, subscription_request]
)
def test_a_request_about_an_instance_is_not_parsed_if_it_is_megabytes(parse: Callable[[bytes], Any]) -> None:
    with pytest.raises(ApiError, match="the request is too large, at most 6291456 bytes") as raised:
        parse(b'{"x":"%b"}' % (b"\\n" * (MOST_LISTED // 2)))
    assert raised.value.kind.status == 413

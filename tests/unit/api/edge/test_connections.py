"""How many connections there may be, and whose share each counts against."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest

from pixy.api.edge.acceptor import Acceptor
from pixy.api.edge.connections import ADMIN, IN_ALL, PER_ADDRESS, Book, Slot, bounds, share_of
from pixy.api.edge.heads import Heads
from pixy.api.edge.pace import HANDSHAKES, Pace
from pixy.api.edge.refusals import Refusals
from pixy.config.model import Connections


@pytest.mark.parametrize(
    ("open_files", "http", "grpc"),
    [
        (1 << 20, 16_384, 4096),
        (24_576, 16_384, 4096),
        (20_000, 12_723, 3181),
        (4096, 1638, 410),
        (100, 40, 10),
        (2, 1, 1),
    ],
)
def test_connections_and_the_reserve_fit_into_the_open_files(open_files: int, http: int, grpc: int) -> None:
    found = bounds(Connections(), open_files)
    assert (found.http, found.grpc) == (http, grpc)
    assert found.per_address <= max(http, 4096) and bool(found.cut) == (http < 16_384)
    assert found.http + found.grpc <= max(2, open_files - min(4096, open_files // 2))


def test_the_admin_listeners_bounds_have_one_key() -> None:
    book = Book(3, 2, ADMIN)
    assert isinstance(book.enter("a"), Slot) and isinstance(book.enter("a"), Slot)
    assert book.enter("a") == ADMIN and book.is_full("a")
    assert isinstance(book.enter("b"), Slot)
    assert book.enter("c") == ADMIN and not book.is_full("c")


def test_places_are_counted_by_caller_and_in_all() -> None:
    book = Book(3, 2)
    first, second = book.enter("a"), book.enter("a")
    assert isinstance(first, Slot) and isinstance(second, Slot)
    assert book.enter("a") == PER_ADDRESS
    assert isinstance(book.enter("b"), Slot)
    assert book.enter("c") == IN_ALL
    first.free()
    first.free()
    assert (book.open, book.of("a"), book.refused) == (2, 1, 2)
    assert isinstance(book.enter("c"), Slot)
    second.free()
    assert book.of("a") == 0 and book.open == 2


@pytest.mark.parametrize(
    ("host", "share"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("odd", "odd"),
    ],
)
def test_a_host_of_ipv6_has_one_share_for_its_network(host: str, share: str) -> None:
    assert share_of(host) == share


def test_beyond_the_limit_of_heads_each_may_hold_an_equal_share() -> None:
    heads = Heads(1000)
    assert all(heads.change(0, 200) for _ in range(5))
    assert not heads.change(0, 300), "more than its share"
    assert heads.change(300, 0)
    assert heads.change(0, 100), "a sixth holder, with less than a sixth"
    assert not heads.change(100, 300)
    assert heads.change(300, 0) and heads.held == 1000 and heads.most == 1300


def test_what_happens_often_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    for _ in range(5):
        refusals.count("too many from a", "k")
    now = 61.0
    refusals.count("too many from b", "k")
    assert caplog.messages == ["too many from a", "too many from b (4 more since the last such line)"]


async def test_the_address_of_a_peer_is_known_from_the_moment_it_is_accepted(tmp_path: Path) -> None:
    """A connection that was reset has no address any more: it was logged as ``unix``, and trusted where ``unix`` is."""
    places: list[Slot] = []
    made = asyncio.Event()

    def make(slot: Slot) -> asyncio.Protocol:
        places.append(slot)
        made.set()
        return asyncio.Protocol()

    for where, family in (("127.0.0.1", socket.AF_INET), (str(tmp_path / "s"), socket.AF_UNIX)):
        made.clear()
        with socket.socket(family) as listener, socket.socket(family) as client:
            listener.bind((where, 0) if family == socket.AF_INET else where)
            listener.listen()
            listener.setblocking(False)
            acceptor = Acceptor(listener, make, Book(10, 10), None, 10.0, Pace(time.monotonic, HANDSHAKES))
            acceptor.start()
            client.connect(listener.getsockname())
            shown = "unix" if family == socket.AF_UNIX else "{}:{}".format(*client.getsockname())
            async with asyncio.timeout(30):
                await made.wait()
            acceptor.close()
        assert places[-1].peer == shown

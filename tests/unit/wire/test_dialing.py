"""Names with several addresses: one that is silent or refuses does not keep the clients from the others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from pixy.wire import client, dialing
from tests.unit.wire.fake_broker import FakeBroker

INET = (socket.AF_INET, socket.SOCK_STREAM, 6, "")


@contextlib.contextmanager
def silent() -> Iterator[tuple[str, int]]:
    """Yield an address that answers nothing, because its accept queue is full."""
    with socket.socket() as full, contextlib.ExitStack() as fillers:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        yield full.getsockname()


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Names with their addresses, instead of a resolver's."""
    known: dict[str, list[Any]] = {}
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host in known:
            return [(*INET, address) for address in known[host]]
        return real(host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


def test_a_silent_address_leaves_time_for_the_next(side: Any, named: dict[str, list[Any]]) -> None:
    with silent() as nowhere, FakeBroker() as broker:
        named["kafka.example"] = [nowhere, ("127.0.0.1", broker.port)]
        found = side.do(lambda: side.module.call_metadata("kafka.example:9092", [], dial_timeout=2.0))
        assert found["ControllerId"] == 7


def test_an_address_that_refuses_is_passed_over(side: Any, named: dict[str, list[Any]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        gone = probe.getsockname()
    with FakeBroker() as broker:
        named["kafka.example"] = [gone, gone, ("127.0.0.1", broker.port)]
        assert side.do(lambda: side.module.call_metadata("kafka.example:9092", []))["ControllerId"] == 7
    with pytest.raises(client.TransportError, match=r": connection refused\Z"):
        named["kafka.example"] = [gone, gone]
        side.do(lambda: side.module.call_metadata("kafka.example:9092", []))
    with silent() as nowhere, pytest.raises(client.RequestTimedOutError, match=r"no connection in 0\.3 s"):
        named["kafka.example"] = [nowhere, nowhere]
        side.do(lambda: side.module.call_metadata("kafka.example:9092", [], dial_timeout=0.3))


async def test_no_socket_of_a_race_stays_open(
    named: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[socket.socket] = []

    class Counted(socket.socket):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    with silent() as nowhere, socket.create_server(("127.0.0.1", 0)) as server:
        named["kafka.example"] = [nowhere, nowhere, server.getsockname()]
        monkeypatch.setattr(dialing.socket, "socket", Counted)
        won = await dialing.open_socket("kafka.example", 9092)
        monkeypatch.undo()
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(made) == 3 and [each.fileno() >= 0 for each in made] == [False, False, True]
        assert won.getpeername() == server.getsockname() and not won.getblocking()
        won.close()


def test_families_alternate() -> None:
    six = [(socket.AF_INET6, 1, 6, "", (f"::{n}", 1, 0, 0)) for n in range(3)]
    four = [(socket.AF_INET, 1, 6, "", (f"10.0.0.{n}", 1)) for n in range(2)]
    assert dialing.interleaved([*six, *four]) == [six[0], four[0], six[1], four[1], six[2]]
    assert dialing.interleaved([]) == []

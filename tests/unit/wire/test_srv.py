"""SRV lookups against a name server on loopback, blocking and on asyncio."""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import dns.resolver
import pytest

from pixy.wire import aio, client, srv
from pixy.wire.exceptions import WireError
from tests.unit.wire.fake_broker import FakeBroker

NAME = b"\x06_kafka\x04_tcp\x07example\x03com\0"


def record(priority: int, host: bytes, port: int, weight: int = 0) -> bytes:
    data = struct.pack(">HHH", priority, weight, port) + host
    return b"\xc0\x0c" + struct.pack(">HHIH", 33, 1, 60, len(data)) + data


def message(question: bytes, *records: bytes, flags: int = 0x8180) -> bytes:
    return (
        question[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0) + question[12:] + b"".join(records)
    )


class NameServer:
    """Answers over UDP, and over TCP on the same port."""

    def __init__(self) -> None:
        while True:  # a port that is free for both
            self.tcp = socket.create_server(("127.0.0.1", 0))
            self.address: tuple[str, int] = self.tcp.getsockname()
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                self.udp.bind(self.address)
                break
            except OSError:
                self.tcp.close()
                self.udp.close()
        self.over_udp: Callable[[bytes], list[bytes]] = lambda question: [message(question)]
        self.over_tcp: Callable[[bytes], bytes] = lambda question: message(question)
        self.asked = 0
        for serve in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=serve, daemon=True).start()

    def _serve_udp(self) -> None:
        while True:
            try:
                question, who = self.udp.recvfrom(2000)
            except OSError:
                return
            self.asked += 1
            for answer in self.over_udp(question):
                self.udp.sendto(answer, who)

    def _serve_tcp(self) -> None:
        while True:
            try:
                connection, _ = self.tcp.accept()
            except OSError:
                return
            with connection:
                question = connection.recv(2000)[2:]
                answer = self.over_tcp(question)
                data = len(answer).to_bytes(2, "big") + answer
                connection.sendall(data[:5])
                connection.sendall(data[5:])

    def close(self) -> None:
        for each in (self.udp, self.tcp):
            each.shutdown(socket.SHUT_RDWR) if each is self.tcp else None
            each.close()


@pytest.fixture
def server() -> Iterator[NameServer]:
    made = NameServer()
    yield made
    made.close()


@pytest.fixture(params=["blocking", "asyncio"])
def lookup(request: pytest.FixtureRequest) -> Callable[..., list[str]]:
    if request.param == "blocking":
        return srv.lookup
    return lambda *args, **kwargs: asyncio.run(srv.lookup_async(*args, **kwargs))


TWO = (record(20, b"\x02k2\xc0\x18", 9093), record(10, b"\x02k1\x07example\x03com\0", 9092))


def test_addresses_come_in_order_of_priority(server: NameServer, lookup: Callable[..., list[str]]) -> None:
    asked = []

    def answer(question: bytes) -> list[bytes]:
        asked.append(question)
        # A late answer to another question, an alias among the records, then the answer.
        alias = b"\xc0\x0c" + struct.pack(">HHIH", 5, 1, 60, 2) + b"\xc0\x0c"
        other = bytes([question[0] ^ 1, question[1]]) + question[2:]
        return [message(other), message(question, alias, *TWO)]

    server.over_udp = answer
    found = lookup("_kafka._tcp.example.com", servers=[server.address])
    assert found == ["k1.example.com:9092", "k2.example.com:9093"]
    assert asked[0][12:] == NAME + struct.pack(">HH", 33, 1)


def test_weight_decides_among_equal_priorities(server: NameServer) -> None:
    """RFC 2782: a weight of 0 is chosen first only very rarely."""
    heavy = record(10, b"\x05heavy\xc0\x18", 9092, weight=65535)
    light = record(10, b"\x05light\xc0\x18", 9092, weight=0)
    server.over_udp = lambda question: [message(question, light, heavy)]
    firsts = [srv.lookup("_kafka._tcp.example.com", servers=[server.address])[0] for _ in range(20)]
    assert firsts.count("heavy.example.com:9092") > 10


def test_a_truncated_answer_is_asked_again_over_tcp(
    server: NameServer, lookup: Callable[..., list[str]]
) -> None:
    server.over_udp = lambda question: [message(question, flags=0x8380)]
    server.over_tcp = lambda question: message(question, *TWO)
    assert len(lookup("_kafka._tcp.example.com", servers=[server.address])) == 2


@pytest.mark.slow
def test_after_a_failed_server_the_next_is_asked(
    server: NameServer, lookup: Callable[..., list[str]]
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        gone = closed.getsockname()
    server.over_udp = lambda question: [message(question, *TWO)]
    assert lookup("_kafka._tcp.example.com", servers=[gone, server.address])


@pytest.mark.slow
def test_servers_share_the_timeout(server: NameServer, lookup: Callable[..., list[str]]) -> None:
    """A silent first server leaves time for the second."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        server.over_udp = lambda question: [message(question, *TWO)]
        begun = time.monotonic()
        servers = [silent.getsockname(), server.address]
        # Half of it for the second: a busy machine needs some.
        assert lookup("_kafka._tcp.example.com", servers=servers, timeout=5.0)
        assert time.monotonic() - begun >= 2.5


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (0x8183, "no such name"),
        (0x8182, "server failure"),
        (0x8185, "refused"),
        (0x8184, "NOTIMP"),
        (0x8180, "there is none"),
    ],
)
def test_an_answer_without_addresses_is_an_error(
    server: NameServer, lookup: Callable[..., list[str]], flags: int, words: str
) -> None:
    server.over_udp = lambda question: [message(question, flags=flags)]
    with pytest.raises(WireError, match=f"SRV record of .*: {words}"):
        lookup("_kafka._tcp.example.com", servers=[server.address])


def test_a_target_of_the_root_means_no_service(server: NameServer, lookup: Callable[..., list[str]]) -> None:
    server.over_udp = lambda question: [message(question, record(1, b"\0", 9092))]
    with pytest.raises(WireError, match="there is none"):
        lookup("_kafka._tcp.example.com", servers=[server.address])


def test_a_silent_server_ends_the_lookup_in_time(
    server: NameServer, lookup: Callable[..., list[str]]
) -> None:
    server.over_udp = lambda _question: []
    begun = time.monotonic()
    with pytest.raises(WireError, match=r"SRV record of example\.com: 127\.0\.0\.1@\d+: timed out$"):
        lookup("example.com", servers=[server.address], timeout=0.2)
    assert time.monotonic() - begun >= 0.2
    with pytest.raises(WireError, match="no name server"):
        lookup("example.com", servers=[])


@pytest.mark.slow
def test_a_malformed_answer_is_an_error(server: NameServer, lookup: Callable[..., list[str]]) -> None:
    server.over_udp = lambda question: [message(question, *TWO)[:-3]]
    with pytest.raises(WireError, match=r"SRV record of example\.com"):
        lookup("example.com", servers=[server.address], timeout=0.5)


@pytest.mark.parametrize("name", ["", ".", "a..b", "x" * 64, ".".join(["abcdefgh"] * 40)])
def test_an_invalid_name_is_refused(name: str, lookup: Callable[..., list[str]]) -> None:
    with pytest.raises(WireError, match="not a host name"):
        lookup(name, servers=[("127.0.0.1", 1)])


def test_a_system_without_name_servers(
    lookup: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unconfigured(_self: object, *_args: object) -> None:
        raise dns.resolver.NoResolverConfiguration

    monkeypatch.setattr(dns.resolver.BaseResolver, "read_resolv_conf", unconfigured)
    with pytest.raises(WireError, match=r"SRV record of example\.com: no name server"):
        lookup("example.com")


def test_without_dnspython_the_error_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['dns'] = None\n"
        "from pixy.wire import client\n"
        "try:\n"
        "    client.call_metadata('_kafka._tcp.example.com')\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "SRV record of _kafka._tcp.example.com needs dnspython: pip install dnspython\n"


async def test_a_lookup_leaves_the_event_loop_free(server: NameServer) -> None:
    asked, free = threading.Event(), threading.Event()

    def answer(question: bytes) -> list[bytes]:
        asked.set()
        return [message(question, *TWO)] if free.wait(10) else []

    server.over_udp = answer
    call = asyncio.ensure_future(
        srv.lookup_async("_kafka._tcp.example.com", servers=[server.address], timeout=30.0)
    )
    while not asked.is_set():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert not call.done()
    free.set()  # a lookup that blocks the event loop waits for this in vain
    assert len(await call) == 2


def test_a_bootstrap_without_a_port_is_an_srv_record(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeBroker() as broker:
        server.over_udp = lambda question: [message(question, record(1, b"\x09localhost\0", broker.port))]
        monkeypatch.setattr(srv, "lookup", functools.partial(srv.lookup, servers=[server.address]))
        one = client.PartitionClient("_kafka._tcp.example.com", "events", 3)
        assert one.fetch(0).error_code == 0
        one.forget()
        one.fetch(0)
        assert server.asked == 1  # kept, until a bootstrap broker fails
        one.close()


async def test_a_bootstrap_without_a_port_is_an_srv_record_on_asyncio_too(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeBroker() as broker:
        server.over_udp = lambda question: [message(question, record(1, b"\x09localhost\0", broker.port))]
        monkeypatch.setattr(
            srv, "lookup_async", functools.partial(srv.lookup_async, servers=[server.address])
        )
        async with aio.PartitionClient("_kafka._tcp.example.com", "events", 3) as one:
            assert (await one.fetch(0)).error_code == 0
        assert server.asked == 1

"""SRV records, asked of a name server on a real socket."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pixy.wire import client, srv
from pixy.wire.exceptions import WireError
from tests.unit.wire.fake_broker import FakeBroker

NAME = b"\x06_kafka\x04_tcp\x07example\x03com\0"


def record(priority: int, host: bytes, port: int) -> bytes:
    data = struct.pack(">HHH", priority, 0, port) + host
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


TWO = (record(20, b"\x02k2\xc0\x18", 9093), record(10, b"\x02k1\x07example\x03com\0", 9092))


def test_addresses_by_priority(server: NameServer) -> None:
    asked = []

    def answer(question: bytes) -> list[bytes]:
        asked.append(question)
        # A late answer to another question, an alias among the records, then the answer.
        alias = b"\xc0\x0c" + struct.pack(">HHIH", 5, 1, 60, 2) + b"\xc0\x0c"
        other = bytes([question[0] ^ 1, question[1]]) + question[2:]
        return [message(other), message(question, alias, *TWO)]

    server.over_udp = answer
    found = srv.lookup("_kafka._tcp.example.com", servers=[server.address])
    assert found == ["k1.example.com:9092", "k2.example.com:9093"]
    assert asked[0][12:] == NAME + struct.pack(">HH", 33, 1)


def test_a_long_answer_comes_over_tcp(server: NameServer) -> None:
    server.over_udp = lambda question: [message(question, flags=0x8380)]
    server.over_tcp = lambda question: message(question, *TWO)
    assert len(srv.lookup("_kafka._tcp.example.com", servers=[server.address])) == 2


def test_the_next_name_server_is_asked(server: NameServer) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        gone = closed.getsockname()
    server.over_udp = lambda question: [message(question, *TWO)]
    assert srv.lookup("_kafka._tcp.example.com", servers=[gone, server.address])


@pytest.mark.parametrize(
    ("flags", "words"), [(0x8183, "no such name"), (0x8182, "server failure"), (0x8180, "there is none")]
)
def test_no_such_record(server: NameServer, flags: int, words: str) -> None:
    server.over_udp = lambda question: [message(question, flags=flags)]
    with pytest.raises(WireError, match=words):
        srv.lookup("_kafka._tcp.example.com", servers=[server.address])


def test_a_silent_server(server: NameServer) -> None:
    server.over_udp = lambda _question: []
    with pytest.raises(WireError, match=r"SRV record of example\.com: 127"):
        srv.lookup("example.com", servers=[server.address], timeout=0.2)
    with pytest.raises(WireError, match="no name server"):
        srv.lookup("example.com", servers=[])


@pytest.mark.parametrize("name", ["", "a..b", "x" * 64, ".".join(["abcdefgh"] * 40)])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(WireError, match="not a host name"):
        srv.lookup(name, servers=[("127.0.0.1", 1)])


@given(st.binary(max_size=100), st.binary(max_size=40))
def test_any_answer(noise: bytes, tail: bytes) -> None:
    question = b"\0\7\1\0\0\1\0\0\0\0\0\0" + NAME + b"\0\x21\0\1"
    for data in (noise, b"\0\7\x81\x80" + noise, message(question, *TWO)[: len(noise)] + tail):
        try:
            srv.parse(data, 7)
        except WireError:
            pass


def test_a_name_that_points_to_itself() -> None:
    head = struct.pack(">HHHHHH", 7, 0x8180, 1, 0, 0, 0)
    with pytest.raises(WireError, match="points forward"):
        srv.parse(head + b"\xc0\x0c\0\0\0\0", 7)


def test_the_systems_servers(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("# x\nnameserver 10.0.0.1\nsearch a\nnameserver ::1\nnameserver\n")
    assert srv.system_servers(tmp_path / "resolv.conf") == [("10.0.0.1", 53), ("::1", 53)]
    assert srv.system_servers(tmp_path / "none") == []


def test_a_bootstrap_without_a_port_is_an_srv_record(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeBroker() as broker:
        server.over_udp = lambda question: [message(question, record(1, b"\x09localhost\0", broker.port))]
        monkeypatch.setattr(srv, "system_servers", lambda: [server.address])
        one = client.PartitionClient("_kafka._tcp.example.com", "events", 3)
        assert one.fetch(0).error_code == 0
        one.forget()
        one.fetch(0)
        assert server.asked == 1  # kept, until a bootstrap broker fails
        one.close()

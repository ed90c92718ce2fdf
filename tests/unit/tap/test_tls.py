"""TLS ends at the tap, on each side for itself: bytes arrive whole and in order, and are observed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pixy.cli.tap_flags import make_config, make_parser
from pixy.config.certificates import client_context, server_context
from pixy.config.model import Tls
from pixy.errors import ConfigError, StartError
from pixy.tap import tls
from pixy.tap.config import BrokerTls, TapConfig
from pixy.tap.conversation import Conversation
from pixy.tap.pipes import SharedBuffer
from pixy.tap.relay import Relay
from pixy.tap.service import TapService
from pixy.wire import frames
from tests.support import eventually
from tests.unit.tap.stage import Stage
from tests.unit.tap.test_relay import pair, requests


def of_tap(folder: Path, client_ca: str = "") -> Tls:
    return Tls(str(folder / "a.pem"), str(folder / "a.key"), client_ca and str(folder / client_ca))


class Peer:
    """One end of a TLS connection, blocking, in threads."""

    def __init__(self, made: ssl.SSLSocket) -> None:
        self.socket = made

    async def send(self, data: bytes) -> None:
        await asyncio.to_thread(self.socket.sendall, data)

    async def receive(self, count: int, slowly: bool = False) -> bytes:
        def read() -> bytes:
            got = bytearray()
            while len(got) < count:
                chunk = self.socket.recv(min(3_000 if slowly else 1 << 16, count - len(got)))
                assert chunk, f"{len(got)} of {count} bytes"
                got += chunk
            return bytes(got)

        return await asyncio.to_thread(read)


async def secured(folder: Path, server_side: bool) -> tuple[Peer, ssl.SSLSocket]:
    """A connection between a peer in threads and a socket for the relay, which is the server or the client."""
    outer, inner = pair()
    outer.settimeout(30)
    server, client = server_context(of_tap(folder)), client_context(str(folder / "ca.pem"))
    if server_side:
        begun = asyncio.to_thread(client.wrap_socket, outer, server_hostname="localhost")
        made, other = await asyncio.gather(begun, tls.shake_hands(inner, server))
    else:
        begun = asyncio.to_thread(server.wrap_socket, outer, server_side=True)
        made, other = await asyncio.gather(begun, tls.shake_hands(inner, client, "localhost"))
    return Peer(made), other


class Line:
    """A client and a broker, both by TLS, with a relay between them."""

    def __init__(self, client: tuple[Peer, ssl.SSLSocket], broker: tuple[Peer, ssl.SSLSocket]) -> None:
        self.client, self.broker = client[0], broker[0]
        self.stage, self.ended = Stage(), asyncio.Event()
        self.reasons: list[str] = []
        self.conversation = Conversation(1, self.stage, lambda: 0.0, self.stage.config.bounds)
        self.relay = Relay(client[1], broker[1], self.conversation, SharedBuffer(), self._end)
        self.relay.start()

    def _end(self, reason: str) -> None:
        self.reasons.append(reason)
        self.ended.set()

    def close(self) -> None:
        self.relay.close("done")
        self.client.socket.close()
        self.broker.socket.close()


@pytest.fixture
async def line(pem_folder: Path) -> AsyncIterator[Line]:
    made = Line(await secured(pem_folder, True), await secured(pem_folder, False))
    yield made
    made.close()


@pytest.mark.parametrize("slowly", [False, True])
async def test_both_directions_arrive_whole_and_are_observed(line: Line, slowly: bool) -> None:
    data = requests([700_000, 10, 70_000, 900_000])
    answers = b"".join(frames.encode_response("Produce", 7, number, {}) for number in range(1, 5))
    sending = asyncio.create_task(line.client.send(data))
    assert await line.broker.receive(len(data), slowly) == data
    await sending
    assert line.conversation.counts["requests"] == 4 and not line.conversation.counts["undecodable"]
    assert line.conversation.counts["bytes_to_broker"] == len(data)
    await line.broker.send(answers)
    assert await line.client.receive(len(answers)) == answers
    await eventually(lambda: asyncio.sleep(0, line.conversation.in_flight), lambda found: found == 0)


async def test_what_openssl_has_decrypted_already_is_not_left_behind(line: Line, pem_folder: Path) -> None:
    """A buffer that is smaller than a record: the socket does not become readable for the rest."""
    line.relay.to_broker._limit = 100
    data = requests([10_000])
    await line.client.send(data)
    assert await asyncio.wait_for(line.broker.receive(len(data)), 20) == data


async def test_the_end_of_one_side_is_told_to_the_other_after_its_last_bytes(line: Line) -> None:
    data = random.Random(1).randbytes(300_000)

    async def last_words() -> None:
        await line.client.send(data)
        await asyncio.to_thread(line.client.socket.unwrap)

    leaving = asyncio.create_task(last_words())
    assert await line.broker.receive(len(data)) == data
    assert await asyncio.to_thread(line.broker.socket.recv, 10) == b"", "a clean end, not a truncation"
    await leaving
    await asyncio.wait_for(line.ended.wait(), 20)
    assert line.reasons == ["closed"]


async def test_bytes_that_are_no_tls_end_the_connection(line: Line) -> None:
    raw = socket.socket(fileno=line.client.socket.detach())
    raw.sendall(b"\0\0\0\x10plain text follows")
    await asyncio.wait_for(line.ended.wait(), 20)
    raw.close()
    assert line.conversation.counts["requests"] == 0


def config(broker: tuple[str, int], **fields: Any) -> TapConfig:
    return TapConfig((broker,), ("127.0.0.1", 0), connect_timeout=5, **fields)


async def closed_reason(settings: TapConfig, data: bytes) -> str:
    """Send bytes to a tap and return why it has closed the connection."""
    service, told = TapService(settings), list[Any]()
    service.add_output(told.append)
    async with service as tap:
        reader, writer = await asyncio.open_connection(*tap.listening[0][0])
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            assert not (await reader.read()).startswith(b"\0"), "no answer of Kafka's"
        writer.close()

        async def closed() -> list[str]:
            return [each["reason"] for each in told if each["event"] == "connection.closed"]

        return (await eventually(closed, bool))[0]


async def test_a_client_without_tls_is_refused_with_the_reason(pem_folder: Path) -> None:
    settings = config(("127.0.0.1", 1), tls=of_tap(pem_folder))
    frame = frames.encode_request("ApiVersions", 0, 1, "c", {})
    assert (await closed_reason(settings, frame)).startswith("TLS with the client: ")


async def test_a_broker_with_another_authority_is_refused_with_the_reason(pem_folder: Path) -> None:
    served = server_context(of_tap(pem_folder))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=served)
    port = server.sockets[0].getsockname()[1]
    try:
        for name, wanted in (("localhost", "certificate refused"), ("127.0.0.1", "certificate refused")):
            # the system's authorities do not know this one; and the certificate is localhost's
            ca = "" if name == "localhost" else str(pem_folder / "ca.pem")
            settings = config((name, port), broker_tls=BrokerTls(ca))
            assert wanted in await closed_reason(settings, b"")
    finally:
        server.close()


async def test_certificates_are_read_again(pem_folder: Path, tmp_path: Path) -> None:
    for name in ("pem", "key"):
        shutil.copy(pem_folder / f"a.{name}", tmp_path / f"a.{name}")
    async with TapService(config(("127.0.0.1", 1), tls=of_tap(tmp_path))) as tap:
        before = await certificate(tap)
        (tmp_path / "a.key").write_text("no key")
        with pytest.raises(StartError, match=r"--tls-key .*a\.key"):
            await tap.reload_certificates()
        assert await certificate(tap) == before
        for name in ("pem", "key"):
            shutil.copy(pem_folder / f"b.{name}", tmp_path / f"a.{name}")
        await tap.reload_certificates()
        assert await certificate(tap) != before


async def certificate(tap: TapService) -> str:
    return await asyncio.to_thread(ssl.get_server_certificate, tap.listening[0][0])


async def test_files_that_cannot_be_used_keep_the_tap_from_starting(pem_folder: Path) -> None:
    for fields, wanted in (
        ({"tls": Tls(str(pem_folder / "a.pem"), str(pem_folder / "b.key"))}, "--tls-key .*not the key"),
        ({"tls": of_tap(pem_folder, "junk")}, "--client-ca .*no certificate"),
        ({"broker_tls": BrokerTls(str(pem_folder / "missing"))}, "--broker-tls-ca .*no such file"),
        ({"broker_tls": BrokerTls("", str(pem_folder / "a.pem"))}, "--broker-tls-key .*no private key"),
    ):
        with pytest.raises(StartError, match=wanted):
            await TapService(config(("127.0.0.1", 1), **fields)).start()


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("--tls-cert a.pem", "--tls-cert and --tls-key are needed together"),
        ("--client-ca ca.pem", "--client-ca needs --tls-cert"),
        ("--broker-tls-key a.key", "--broker-tls-key needs --broker-tls-cert"),
    ],
)
def test_flags_that_need_others_say_so(flags: str, wanted: str) -> None:
    args = make_parser().parse_args(["--broker", "kafka:9093", *flags.split()])
    with pytest.raises(ConfigError, match=wanted):
        make_config(args)


def test_each_flag_for_brokers_means_tls() -> None:
    for flags, wanted in (
        ([], None),
        (["--broker-tls"], BrokerTls()),
        (["--broker-tls-ca", "ca"], BrokerTls("ca")),
        (["--broker-tls-cert", "c", "--broker-tls-key", "k"], BrokerTls("", "c", "k")),
    ):
        found = make_config(make_parser().parse_args(["--broker", "kafka:9093", *flags]))
        assert found.broker_tls == wanted and found.tls is None

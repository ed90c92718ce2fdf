"""Client certificates over HTTP and gRPC, and certificates that change while the daemon serves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
import trustme

from pixy.api.tls import ServerTls
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.config.model import Tls
from pixy.config.security import Rule
from pixy.engine.engine import Engine
from pixy.engine.service import Reload
from pixy.errors import NotValidNow, StartError
from pixy.kafka.sandbox import Sandbox
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub


class Authority:
    """A CA whose certificates lie in a folder."""

    def __init__(self, folder: Path, ca: trustme.CA | None = None) -> None:
        self.ca = ca or trustme.CA()
        self.folder = folder

    def serve(self, since: float = -1, until: float = 1) -> None:
        """Write the daemon's own certificate, and itself as the CA of clients.

        Args:
            since: the begin of the certificate's validity, in days from now.
            until: its end.
        """
        now = datetime.now(UTC)
        begin, end = (now + timedelta(each) for each in (since, until))
        issued = self.ca.issue_cert("localhost", "127.0.0.1", not_before=begin, not_after=end)
        issued.cert_chain_pems[0].write_to_path(self.folder / "cert.pem")
        issued.private_key_pem.write_to_path(self.folder / "key.pem")
        self.ca.cert_pem.write_to_path(self.folder / "ca.pem")

    def client(self, name: str) -> tuple[bytes, bytes]:
        """Key and certificate of a client."""
        issued = self.ca.issue_cert("client.example", common_name=name)
        return issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()


class Clients:
    """Clients that trust one CA and have a certificate of another one, or none."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder

    async def http(self, trusted: Authority, pair: tuple[bytes, bytes] | None, path: str = "/topics") -> int:
        context = ssl.create_default_context(cadata=trusted.ca.cert_pem.bytes().decode())
        if pair is not None:
            file = self.folder / "client.pem"
            file.write_bytes(b"".join(pair))
            context.load_cert_chain(file)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://{self.engine.addresses['rest']}{path}", ssl=context) as answer,
        ):
            return answer.status

    async def grpc(self, trusted: Authority, pair: tuple[bytes, bytes] | None) -> grpc.StatusCode:
        key, chain = pair or (None, None)
        credentials = grpc.ssl_channel_credentials(trusted.ca.cert_pem.bytes(), key, chain)
        async with grpc.aio.secure_channel(self.engine.addresses["grpc"], credentials) as channel:
            try:
                await KafkaPixyStub(channel).ListTopics(pb.ListTopicRq())
            except grpc.aio.AioRpcError as error:
                return error.code()
        return grpc.StatusCode.OK


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.serve()
    return made


async def started(folder: Path, **tls: str) -> tuple[Engine, Any]:
    sandbox = Sandbox()
    config = App(grpc_addr="127.0.0.1:0", tcp_addr="127.0.0.1:0")
    config.proxies["default"] = Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))
    config.tls.certificate_path, config.tls.key_path = str(folder / "cert.pem"), str(folder / "key.pem")
    config.tls.client_ca_path = str(folder / "ca.pem")
    for name, value in tls.items():
        setattr(config.tls, name, value)
    config.auth.enabled = config.auth.certificates = True
    config.rules = [Rule(["cert:shop"], ["describe"], topics=["*"])]
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    return engine, sandbox


@pytest.fixture
async def clients(authority: Authority, tmp_path: Path) -> AsyncIterator[Clients]:
    engine, sandbox = await started(tmp_path)
    try:
        yield Clients(engine, tmp_path)
    finally:
        await engine.stop()
        del sandbox


async def test_the_certificate_names_the_caller_on_both_transports(
    clients: Clients, authority: Authority
) -> None:
    shop, other = authority.client("shop"), authority.client("other")
    assert await clients.http(authority, shop) == 200
    assert await clients.http(authority, other) == 403
    assert await clients.grpc(authority, shop) is grpc.StatusCode.OK
    assert await clients.grpc(authority, other) is grpc.StatusCode.PERMISSION_DENIED


async def test_without_a_certificate_of_the_ca_there_is_no_connection(
    clients: Clients, authority: Authority
) -> None:
    stranger = Authority(clients.folder).client("shop")
    for pair in (None, stranger):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await clients.http(authority, pair)
        assert await clients.grpc(authority, pair) is grpc.StatusCode.UNAVAILABLE


async def test_an_optional_certificate_leaves_those_without_one_unknown(
    authority: Authority, tmp_path: Path
) -> None:
    engine, sandbox = await started(tmp_path, client_certificates="optional", min_version="1.3")
    clients = Clients(engine, tmp_path)
    try:
        assert await clients.http(authority, authority.client("shop")) == 200
        assert await clients.http(authority, None) == 401
        assert await clients.http(authority, None, "/_ping") == 200
        assert await clients.grpc(authority, authority.client("shop")) is grpc.StatusCode.UNAUTHENTICATED
    finally:
        await engine.stop()
        del sandbox


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_of_a_removed_ca_is_not_resumed(
    clients: Clients, authority: Authority, version: ssl.TLSVersion
) -> None:
    file = clients.folder / "client.pem"
    file.write_bytes(b"".join(authority.client("shop")))
    new = Authority(clients.folder)
    context = ssl.create_default_context(cadata=authority.ca.cert_pem.bytes().decode())
    context.load_verify_locations(cadata=new.ca.cert_pem.bytes().decode())
    context.load_cert_chain(file)
    context.minimum_version = context.maximum_version = version
    host, port = clients.engine.addresses["rest"].rsplit(":", 1)

    def ask(session: ssl.SSLSession | None) -> tuple[bytes, bool, ssl.SSLSession | None]:
        with (
            socket.create_connection((host, int(port)), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as tls,
        ):
            tls.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = tls.recv(100)
            return answer, bool(tls.session_reused), tls.session

    answer, _, session = await asyncio.to_thread(ask, None)
    assert answer.startswith(b"HTTP/1.1 200 ")
    answer, reused, session = await asyncio.to_thread(ask, session)
    assert answer.startswith(b"HTTP/1.1 200 ") and reused, "sessions are resumed while the CA is the same"
    new.serve()
    await clients.engine._service.ask(Reload(), block=False)
    answer = b""
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        answer, _, _ = await asyncio.to_thread(ask, session)
    assert answer == b"", "the connection ends in its handshake, or right behind"


async def test_certificates_and_the_ca_of_clients_change_while_it_serves(
    clients: Clients, authority: Authority
) -> None:
    shop = authority.client("shop")
    assert await clients.http(authority, shop) == 200
    new = Authority(clients.folder)
    new.serve()
    assert await clients.http(authority, shop) == 200, "nobody has asked it to read the files again"
    await clients.engine._service.ask(Reload(), block=False)
    assert await clients.http(new, new.client("shop")) == 200
    assert await clients.grpc(new, new.client("shop")) is grpc.StatusCode.OK
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
        await clients.http(new, shop)
    assert await clients.grpc(new, shop) is grpc.StatusCode.UNAVAILABLE
    (clients.folder / "key.pem").write_text("nonsense")
    with pytest.raises(StartError, match=r"^tls\.key_path .*key\.pem: holds no private key"):
        await clients.engine._service.ask(Reload(), block=False)
    assert await clients.http(new, new.client("shop")) == 200, "the last certificates stay in use"


DAY = 86_400.0


def tls_of(folder: Path) -> tuple[ServerTls, list[float]]:
    """The certificates of a folder, and the time, which may be changed."""
    config = Tls(certificate_path=str(folder / "cert.pem"), key_path=str(folder / "key.pem"))
    wall = [time.time()]
    return ServerTls(config, lambda: wall[0]), wall


@pytest.mark.parametrize(("since", "until", "said"), [(-3, -2, "expired on"), (2, 3, "is not valid before")])
def test_a_certificate_that_is_not_valid_replaces_none_that_is(
    authority: Authority, tmp_path: Path, since: float, until: float, said: str
) -> None:
    tls, wall = tls_of(tmp_path)
    first = tls.context()
    authority.serve(since, until)
    with pytest.raises(
        NotValidNow, match=rf"^tls\.certificate_path .*cert\.pem {said} 20.*Z, and the one in use is"
    ) as caught:
        tls.load()
    assert tls.context() is first
    if until < 0:
        assert caught.value.since is None
        return
    assert caught.value.since == pytest.approx(wall[0] + 2 * DAY, abs=10)
    wall[0] = caught.value.since
    tls.load()
    assert tls.context() is not first, "now it is valid"


def test_where_none_is_valid_the_new_one_is_taken(authority: Authority, tmp_path: Path) -> None:
    authority.serve(-3, -2)
    tls, wall = tls_of(tmp_path)
    first = tls.context()
    authority.serve(-5, -4)
    tls.load()
    assert tls.context() is not first
    authority.serve()
    tls.load()
    wall[0] += 2 * DAY
    first = tls.context()
    tls.load()
    assert tls.context() is not first, "the CA of clients changes also while the certificate has expired"


def test_a_certificate_whose_time_cannot_be_read_is_taken(authority: Authority, tmp_path: Path) -> None:
    tls, _ = tls_of(tmp_path)
    first = tls.context()
    authority.serve(-3, -2)
    file = tmp_path / "cert.pem"
    odd = file.read_text().replace("BEGIN CERT", "BEGIN TRUSTED CERT").replace("END CERT", "END TRUSTED CERT")
    file.write_text(odd)
    tls.load()
    assert tls.context() is not first


async def test_clients_get_the_valid_certificate_behind_a_reload_with_an_expired_one(
    clients: Clients, authority: Authority
) -> None:
    shop = authority.client("shop")
    authority.serve(-3, -2)
    with pytest.raises(NotValidNow):
        await clients.engine._service.ask(Reload(), block=False)
    assert await clients.http(authority, shop) == 200
    assert await clients.grpc(authority, shop) is grpc.StatusCode.OK

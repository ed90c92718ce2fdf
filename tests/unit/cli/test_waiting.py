"""``--waitForKafka`` and ``doctor`` say why Kafka does not answer, and a daemon that waits survives SIGUSR1."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from pixy.cli import serve
from pixy.cli.reloading import Reloader
from pixy.cli.shell import doctor
from pixy.cli.waiting import kafka_answers
from pixy.config import App, Kafka, Proxy
from tests.unit.wire.fake_broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


def wrong_password(broker: FakeBroker) -> Proxy:
    broker.answers["SaslHandshake"] = lambda request: broker.usual(request, Mechanisms=["PLAIN"])
    broker.answers["SaslAuthenticate"] = lambda request: broker.usual(
        request, ErrorCode=58, ErrorMessage="Invalid username or password"
    )
    proxy = Proxy(kafka=Kafka(seed_peers=[broker.address]))
    proxy.net.sasl.enable, proxy.net.sasl.user, proxy.net.sasl.password = True, "u", "wrong"
    return proxy


async def first_line(proxies: dict[str, Proxy], caplog: pytest.LogCaptureFixture) -> str:
    """What the log says before the second attempt."""
    stop = asyncio.Event()
    caplog.handler.addFilter(lambda _record: stop.set() or True)
    with caplog.at_level(logging.WARNING, "pixy"):
        assert not await kafka_answers(proxies, stop)
    return caplog.messages[0]


async def test_a_wrong_password_is_said_and_not_shown(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    line = await first_line({"eu": wrong_password(broker)}, caplog)
    assert line.startswith(f"waiting for Kafka at {broker.address} (cluster eu): kafka: client has run out")
    assert line.endswith(f"({broker.address}: SASL PLAIN: Invalid username or password)"), line


async def test_nobody_who_stops_a_daemon_waits_for_a_frozen_broker() -> None:
    stop = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as broker:
        proxy = Proxy(kafka=Kafka(seed_peers=[f"127.0.0.1:{broker.getsockname()[1]}"]))
        waiting = asyncio.create_task(kafka_answers({"eu": proxy}, stop))
        connection, _ = await asyncio.to_thread(broker.accept)
        with connection:
            assert await asyncio.to_thread(connection.recv, 1 << 16)
            stop.set()
            assert not await waiting
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):  # the question still stands
                connection.recv(1)


def test_doctor_says_which_setting_is_wrong(broker: FakeBroker) -> None:
    [finding] = doctor._kafka("eu", wrong_password(broker))
    assert finding.result == doctor.FAIL and finding.todo == "correct net.sasl"
    assert finding.found.endswith("SASL PLAIN: Invalid username or password)")


def test_doctor_says_that_a_certificate_is_not_trusted(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=shake_hands, args=(server, context), daemon=True).start()
        kafka = Kafka(seed_peers=[address], tls=True, ca_certificate_file=str(tmp_path / "other.pem"))
        [finding] = doctor._kafka("eu", Proxy(kafka=kafka))
        server.shutdown(socket.SHUT_RDWR)  # wakes the thread
    assert (finding.result, finding.todo) == (doctor.FAIL, "correct kafka.tls and kafka.ca_certificate_file")
    assert "certificate verify failed" in finding.found and f"({address}: " in finding.found


def shake_hands(server: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            context.wrap_socket(connection, server_side=True)


async def test_a_daemon_that_waits_logs_sigusr1_and_lives(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logged = asyncio.Event()
    caplog.handler.addFilter(lambda _record: logged.set() or True)

    async def wait(*_: object) -> bool:
        assert signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL, "it would end this process"
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(logged.wait(), 20)
        return False

    monkeypatch.setattr(serve, "kafka_answers", wait)
    app = App(proxies={"default": Proxy()})
    daemon = serve.Daemon(app, lambda _code: None, Reloader(app, lambda: app, ""), wait_for_kafka=True)
    with caplog.at_level(logging.WARNING, "pixy"):
        assert await daemon.run() == serve.EXIT_OK
    assert caplog.messages == ["dump (SIGUSR1): waiting for Kafka"]

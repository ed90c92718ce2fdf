"""Envoy's configuration, and the line between the supervisor and the daemon within Envoy."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from pixy.cli.envoy import hosted
from pixy.cli.envoy.bootstrap import CLIENTS, SERVER, bootstrap, write_tls
from pixy.cli.processes.channel import VARIABLE, Channel, Host
from pixy.cli.processes.child import tcp_addresses
from pixy.config import App, Proxy
from pixy.config.model import Tls
from pixy.config.validate import validate
from pixy.errors import ConfigError


def made(**fields: object) -> App:
    app = App(proxies={"default": Proxy()})
    for name, value in fields.items():
        setattr(app, name, value)
    return app


def test_all_tcp_addresses_are_of_one_listener_whose_ports_nobody_shares() -> None:
    app = made(unix_addr="/run/pixy.sock")
    app.rest.addr = "127.0.0.1:8082"
    assert list(tcp_addresses(app)) == ["grpc", "rest-v1", "rest"]
    (listener,) = bootstrap(app, "/tmp/f", "m.so")["static_resources"]["listeners"]
    ports = [
        each["socket_address"]["port_value"]
        for each in (listener["address"], *(more["address"] for more in listener["additional_addresses"]))
    ]
    assert ports == [19091, 8082, 19092]
    assert listener["enable_reuse_port"] is False


def test_envoys_own_interface_is_a_private_file_and_no_port() -> None:
    admin = bootstrap(made(), "/tmp/f", "m.so")["admin"]
    assert admin == {"address": {"pipe": {"path": "/tmp/f/admin.sock", "mode": 0o600}}}


def test_the_limits_of_connections_are_envoys() -> None:
    app = made()
    app.connections.header_timeout = 7
    app.connections.grpc_max_streams = 9
    app.connections.max_header_bytes = 4096
    app.connections.grpc_max_age = 0
    (listener,) = bootstrap(app, "/tmp/f", "m.so")["static_resources"]["listeners"]
    (chain,) = listener["filter_chains"]
    manager = chain["filters"][1]["typed_config"]
    assert manager["request_headers_timeout"] == "7.000s"
    assert manager["http2_protocol_options"]["max_concurrent_streams"] == 9
    assert manager["max_request_headers_kb"] == 16  # gRPC's metadata may have more
    assert "max_connection_duration" not in manager["common_http_protocol_options"]
    assert manager["forward_client_cert_details"] == "SANITIZE"
    assert "transport_socket" not in chain


def test_requests_of_an_address_and_of_all_have_a_rate_before_they_wait_for_python() -> None:
    """pyvoy's queue has no bound, and requests stay in it when their connection has ended."""
    app = made()
    app.connections.max_request_rate = 1000
    (listener,) = bootstrap(app, "/tmp/f", "m.so")["static_resources"]["listeners"]
    assert listener["per_connection_buffer_limit_bytes"] == 32 * 1024
    manager = listener["filter_chains"][0]["filters"][1]["typed_config"]
    assert manager["route_config"]["virtual_hosts"][0]["routes"][0]["request_body_buffer_limit"] > 2_000_000
    first = manager["http_filters"][0]
    assert first["name"] == "envoy.filters.http.local_ratelimit"
    rate = first["typed_config"]
    assert rate["token_bucket"] == {"max_tokens": 2000, "tokens_per_fill": 100, "fill_interval": "0.050s"}
    (caller,) = rate["descriptors"]
    assert caller["token_bucket"] == {"max_tokens": 1000, "tokens_per_fill": 50, "fill_interval": "0.050s"}


def test_requests_have_a_rate_where_strangers_may_come() -> None:
    def filters(app: App) -> list[str]:
        (listener,) = bootstrap(app, "/tmp/f", "m.so")["static_resources"]["listeners"]
        return [
            each["name"]
            for each in listener["filter_chains"][0]["filters"][1]["typed_config"]["http_filters"]
        ]

    app = made()
    assert "envoy.filters.http.local_ratelimit" not in filters(app)
    app.auth.enabled = True
    assert filters(app)[0] == "envoy.filters.http.local_ratelimit"


def test_certificates_are_written_for_envoy_alone(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca"):
        (tmp_path / name).write_text(name)
    tls = Tls(str(tmp_path / "cert"), str(tmp_path / "key"), str(tmp_path / "ca"))
    app = made(tls=tls)
    write_tls(tls, str(tmp_path))
    for name in (SERVER, CLIENTS):
        path = tmp_path / f"{name}.json"
        (found,) = json.loads(path.read_text())["resources"]
        assert found["name"] == name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (listener,) = bootstrap(app, str(tmp_path), "m.so")["static_resources"]["listeners"]
    context = listener["filter_chains"][0]["transport_socket"]["typed_config"]
    assert context["require_client_certificate"] is True
    tls.client_certificates = "optional"
    (listener,) = bootstrap(app, str(tmp_path), "m.so")["static_resources"]["listeners"]
    context = listener["filter_chains"][0]["transport_socket"]["typed_config"]
    assert context["require_client_certificate"] is False


def test_envoy_gets_whole_files_also_if_two_listeners_publish_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Envoy reads a file when it is moved into its place, and not again when more is written to it."""
    for name in ("cert", "key", "ca"):
        (tmp_path / name).write_text(name)
    tls = Tls(str(tmp_path / "cert"), str(tmp_path / "key"), str(tmp_path / "ca"))
    moved: list[str] = []
    rename, dump = os.rename, json.dump
    other = threading.Thread(target=write_tls, args=(tls, str(tmp_path)))

    def begin_another(made: Any, file: Any) -> None:
        """Let the other listener begin while the first file is written, and go on for as long as it can."""
        dump(made, file)
        if not moved and other.ident is None:
            other.start()
            other.join(0.1)

    def move(source: str, target: str) -> None:
        rename(source, target)
        moved.append(json.loads(Path(target).read_text())["resources"][0]["name"])

    monkeypatch.setattr(json, "dump", begin_another)
    monkeypatch.setattr(os, "rename", move)
    write_tls(tls, str(tmp_path))
    other.join(30)
    assert moved == [SERVER, CLIENTS] * 2


def test_a_front_that_there_is_not_and_one_without_a_port_are_refused() -> None:
    app = made()
    app.server.front = "nginx"
    with pytest.raises(ConfigError, match=r"server\.front"):
        validate(app)
    app.server.front = "envoy"
    validate(app)
    app.grpc_addr = app.tcp_addr = ""
    app.unix_addr = "/run/pixy.sock"
    with pytest.raises(ConfigError, match=r"server\.front envoy needs"):
        validate(app)


def test_the_hosted_daemon_gets_its_environment_back(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(5, ["--sandbox"], "/tmp/f", {"LD_PRELOAD": None, "PYTHONPATH": "mine"})
    monkeypatch.setenv("LD_PRELOAD", "libpython.so")
    monkeypatch.setenv("PYTHONPATH", "theirs")
    monkeypatch.setenv(VARIABLE, host.variable())
    assert Host.of_environment() == host
    assert "LD_PRELOAD" not in os.environ
    assert os.environ["PYTHONPATH"] == "mine"
    assert VARIABLE not in os.environ


async def test_each_end_of_the_line_hears_the_other_until_it_goes() -> None:
    ours, theirs = (Channel(each) for each in socket.socketpair())
    await asyncio.gather(ours.open(), theirs.open())
    ours.say("signal", 15)
    ours.say("open")
    assert [await theirs.hear(), await theirs.hear()] == [("signal", 15), ("open", None)]
    ours.close()
    assert await theirs.hear() is None
    theirs.say("ended", 0)  # to nobody
    theirs.close()


async def test_what_fails_in_a_callback_is_reported_but_for_results_that_nobody_awaits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """uvloop and asyncio begin the message alike."""
    loop, theirs = (
        asyncio.get_running_loop(),
        "Exception in callback <_pyvoy.asgi.RecvFutureExecutor object at 0x7f>",
    )
    late = asyncio.InvalidStateError("invalid state")
    hosted.report(loop, {"message": theirs, "exception": late})
    assert not caplog.records
    for message, error in (
        (theirs, RuntimeError("x")),
        ("Exception in callback of_ours()", late),
        ("Task was destroyed but it is pending!", None),
    ):
        hosted.report(loop, {"message": message, **({"exception": error} if error else {})})
        assert message in caplog.records.pop().getMessage()

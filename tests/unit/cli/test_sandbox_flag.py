"""``--sandbox`` reaches no broker of the configuration, and says what to try where it listens."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from pixy.cli import serve
from pixy.cli.flags import SANDBOX_SEEDS, UsageError, parse
from pixy.cli.main import main
from pixy.cli.welcome import greet, welcome
from pixy.config import App
from pixy.config.load import Origins
from tests.in_process import run_in_process

REAL = """\
default_cluster: main
auth: {enabled: true, peer_uid: true}
proxies:
  main:
    kafka: {seed_peers: [prod:9092], tls: true}
    net: {sasl: {enable: true, user: u, password: p}}
    identities: {users: {shop: {who: ["uid:1"], password: x}}}
  other: {kafka: {seed_peers: ["second:9092"], tls: true}, consumer: {session_timeout: 3s}}
"""


def test_every_cluster_is_the_sandbox_without_tls_and_users(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(REAL)
    origins: Origins = {}
    _, app = parse(["--sandbox", f"--config={tmp_path}/c.yaml"], origins)
    assert [each.kafka.seed_peers for each in app.proxies.values()] == [SANDBOX_SEEDS, SANDBOX_SEEDS]
    assert not any(each.kafka.tls or each.net.sasl.enable for each in app.proxies.values())
    assert not app.proxies["main"].identities.users
    for key in ("main.kafka.seed_peers", "main.kafka.tls", "main.net.sasl.enable", "other.kafka.seed_peers"):
        assert origins[f"proxies.{key}"] == "--sandbox"
    assert [each.consumer.session_timeout for each in app.proxies.values()] == [6, 3]
    assert origins["proxies.main.consumer.session_timeout"] == "--sandbox"
    _, app = parse(["--sandbox=false", "--kafkaPeers=k:1"])
    assert app.proxies["default"].consumer.session_timeout == 15
    assert app.proxies["default"].kafka.seed_peers == ["k:1"]


def test_each_cluster_gets_a_sandbox_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(REAL)
    _, app = parse(["--sandbox", f"--config={tmp_path}/c.yaml"])
    running = serve.make_sandboxes(app, wanted=True)
    main_, other = (each.kafka.seed_peers for each in app.proxies.values())
    assert main_ != other and all(each.startswith("127.0.0.1:") for each in main_ + other)
    assert len(running) == 2 and serve.make_sandboxes(app, wanted=False) == []


def test_it_says_that_it_has_one_process(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("server: {workers: 2}\nproxies: {default: {}}")
    flags, app = parse(["--sandbox", f"--config={tmp_path}/c.yaml"])
    assert app.server.processes == 1
    assert flags.notes == [
        "--sandbox lives in the process that serves, so there is one instead of server.workers: 2"
    ]
    assert parse(["--sandbox"])[0].notes == parse([f"--config={tmp_path}/c.yaml"])[0].notes == []


def test_brokers_cannot_be_named_with_it() -> None:
    with pytest.raises(UsageError, match="--kafkaPeers cannot be given with it"):
        parse(["--sandbox", "--kafkaPeers=prod:9092"])
    done = run_in_process(lambda: main(["tap", "--sandbox", "--broker", "prod:9092"]))
    assert done.returncode == 2 and b"not allowed with argument" in done.stderr


COMMANDS = {
    "": "curl 'http://127.0.0.1:19092/topics/foo/messages?group=bar'",
    "everywhere": "curl 'http://localhost:80/topics/",
    "six": "curl 'http://[::1]:80/topics/",
    "tls": "curl --cacert CA.pem 'https://127.0.0.1:19092/topics/",
    "unix": "curl --unix-socket /s 'http://localhost/topics/",
    "grpc": "kafka-pixy produce foo -m 'Good news everyone!' --ca CA.pem --server localhost:19091\n",
    "v1": "only the API of the v1 and v2 REST proxies is on",
}


def app_of(kind: str) -> App:
    app = App()
    app.tcp_addr = {"everywhere": "0.0.0.0:80", "six": "[::1]:80", "": app.tcp_addr, "tls": app.tcp_addr}.get(
        kind, ""
    )
    app.unix_addr = "/s" if kind == "unix" else ""
    app.tls.certificate_path = "c" if kind in ("tls", "grpc") else ""
    if kind == "grpc":
        app.grpc_addr = ":19091"
    if kind == "v1":
        app.grpc_addr, app.rest.addr = "", "127.0.0.1:8082"
    return app


@pytest.mark.parametrize("kind", COMMANDS)
def test_what_is_proposed_to_try_works_where_it_listens(kind: str) -> None:
    shown = welcome(app_of(kind))
    assert COMMANDS[kind] in shown, shown
    assert ("  REST  off\n" in shown) is (kind == "grpc") and "Ctrl-C stops it." in shown
    assert "http://:" not in shown and "https://:" not in shown


def test_the_greeting_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unbuffered, a line of the log came before its line end."""
    out = mock.Mock()
    monkeypatch.setattr("sys.stdout", out)
    app = App(grpc_addr=":0", tcp_addr="127.0.0.1:0", unix_addr="/s")
    app.rest.addr = "[::1]:0"
    greet(app, {"grpc": "0.0.0.0:5", "rest": "127.0.0.1:6", "rest-v1": "[::1]:7", "rest-unix": "/s"})
    [(text,)] = [call.args for call in out.write.call_args_list]
    assert text.endswith("Ctrl-C stops it.\n")
    assert "  gRPC  :5\n" in text and "  REST  127.0.0.1:6 and /s and [::1]:7 (v1 and v2)\n" in text
    assert "'http://127.0.0.1:6/topics" in text and app.tcp_addr == "127.0.0.1:0"

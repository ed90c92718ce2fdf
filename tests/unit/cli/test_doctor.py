"""``kafka-pixy doctor``: each check passing and failing, and what it says to do."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import trustme

from pixy.cli.main import main
from pixy.cli.shell import doctor
from pixy.cli.shell.doctor import FAIL, OK, WARN, Finding
from pixy.cli.shell.errors import CallError, DaemonGone, WrongServer
from pixy.cli.shell.session import Session, Settings
from pixy.config import App, Kafka, Proxy, load_text
from pixy.errors import KafkaError
from pixy.kafka.sandbox import Sandbox
from tests.in_process import Finished, run_in_process
from tests.kafka.cluster import free_port

NOBODY = "127.0.0.1:1"


def run(*arguments: str) -> Finished:
    return run_in_process(lambda: main(["doctor", "--server", NOBODY, *arguments]))


def found(done: Finished) -> dict[str, Finding]:
    return {each["check"]: Finding(**each) for each in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[str]:
    made = Sandbox()
    yield made.seed_peers[0]
    del made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose ports are free."""
    path = tmp_path / "pixy.yaml"
    path.write_text(f"grpc_addr: 127.0.0.1:{free_port()}\ntcp_addr: 127.0.0.1:{free_port()}\n")
    return path


def test_where_all_is_well_it_ends_with_0(config: Path, sandbox: str) -> None:
    done = run("--json", "--config", str(config), "--kafkaPeers", sandbox)
    checks = found(done)
    assert (done.returncode, done.stderr) == (0, b""), checks
    assert list(checks) == [
        "configuration",
        "open files",
        "daemon",
        "grpc_addr",
        "tcp_addr",
        "kafka (default)",
        "kafka (default): versions",
        "kafka (default): rights",
    ]
    assert {each.result for name, each in checks.items() if name != "daemon"} == {OK}
    assert checks["configuration"].found == f"{config}: 1 cluster(s)"
    assert checks["grpc_addr"].found.endswith("is free")
    assert checks["kafka (default)"].found.startswith(f"{sandbox}: ")
    assert (checks["daemon"].result, checks["daemon"].todo) == (
        WARN,
        "start one (kafka-pixy), or name it with --server",
    )


def test_a_wrong_configuration_is_the_only_finding(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("tcp_adr: 127.0.0.1:1\n")
    done = run("--json", "--config", str(path))
    [finding] = found(done).values()
    assert (done.returncode, finding.result) == (1, FAIL)
    assert "unknown key tcp_adr (did you mean tcp_addr?)" in finding.found and "config check" in finding.todo


def test_the_table_shows_what_to_do_and_is_never_cut(config: Path) -> None:
    done = run("--config", str(config), "--kafkaPeers", NOBODY)
    shown = done.stdout.decode()
    assert done.returncode == 1 and done.stderr == b""
    lines = shown.splitlines()
    assert lines[0].split() == ["result", "check", "found", "what", "to", "do"]
    [line] = [line for line in lines if line.startswith("fail")]
    assert "kafka (default)" in line and line.endswith(
        "is it running, and does kafka.seed_peers name its listener?"
    )
    assert "Traceback" not in shown


def test_a_port_in_use_fails_unless_a_daemon_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        app = App(grpc_addr=f"127.0.0.1:{taken.getsockname()[1]}", tcp_addr="")
        [alone] = doctor._ports(app, running=False)
        [beside] = doctor._ports(app, running=True)
    assert (alone.result, alone.todo) == (FAIL, "free it, or set another grpc_addr")
    assert alone.found.endswith("address already in use")
    assert beside.result == OK and "a daemon runs here" in beside.found


@pytest.mark.skipif(not socket.has_ipv6, reason="!!! no IPv6 here !!!")
def test_an_address_of_ipv6_is_free() -> None:
    [finding] = doctor._ports(App(grpc_addr="", tcp_addr="[::1]:0"), running=False)
    assert finding == Finding(OK, "tcp_addr", "[::1]:0 is free")


def test_files_of_the_listeners(tmp_path: Path, config: Path) -> None:
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "c.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "k.pem"))
    with config.open("a") as file:
        file.write(f"tls: {{certificate_path: {tmp_path}/c.pem, key_path: {tmp_path}/k.pem}}\n")
    findings = doctor.check(str(config), NOBODY, Settings(NOBODY))
    assert {each.check: each.result for each, _ in zip(findings, range(2), strict=False)}["files"] == OK
    (tmp_path / "k.pem").unlink()
    findings = doctor.check(str(config), NOBODY, Settings(NOBODY))
    [finding] = [each for each, _ in zip(findings, range(2), strict=False) if each.check == "files"]
    assert finding == Finding(
        FAIL,
        "files",
        f"tls.key_path {tmp_path}/k.pem: no such file or directory",
        "name a file in PEM format",
    )


@pytest.mark.parametrize(
    ("most", "result", "shown"),
    [
        (resource.RLIM_INFINITY, OK, "at most unlimited"),
        (4096, OK, "at most 4096"),
        (4095, WARN, "at most 4095"),
    ],
)
def test_open_files(most: int, result: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, most))
    finding = doctor._open_files()
    assert (finding.result, finding.found) == (result, shown)
    assert bool(finding.todo) is (result == WARN)


@pytest.mark.parametrize(("ahead", "result"), [(0.0, OK), (-60.0, WARN), (60.0, WARN)])
def test_the_daemon_s_clock(ahead: float, result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pixy.cli.shell import session

    def call(*_: Any) -> SimpleNamespace:
        return SimpleNamespace(time=int((time.time() + ahead) * 1000), version="1.2.3", uptime=7.0)

    monkeypatch.setattr(session.Session, "call", call)
    finding, running = doctor._daemon(Settings(NOBODY))
    assert finding.result == result and running
    if result == OK:
        assert finding.found == f"{NOBODY} answers: version 1.2.3, up 7 s"
    else:
        assert finding.found.startswith(f"its clock is {ahead:+.0f}"[:13]) and "NTP" in finding.todo


class Answers:
    """Brokers that answer what a test wants.

    Args:
        versions: whether the brokers know KIP-848's heartbeat; an error to raise instead.
    """

    def __init__(self, versions: bool | KafkaError = True) -> None:
        self.versions = versions

    def ask_any(self, _question: Any) -> bool:
        if isinstance(self.versions, KafkaError):
            raise self.versions
        return self.versions


@pytest.mark.parametrize(
    ("answers", "membership", "result", "shown"),
    [
        (Answers(True), "kafka-next", OK, "classic and KIP-848 groups"),
        (Answers(False), "kafka", OK, "classic groups only (before Kafka 4, or switched off)"),
        (Answers(False), "kafka-next", FAIL, "classic groups only (before Kafka 4, or switched off)"),
        (Answers(KafkaError("it broke", -1, "X")), "kafka", FAIL, "it broke"),
    ],
)
def test_group_protocols(answers: Answers, membership: str, result: str, shown: str) -> None:
    proxy = Proxy()
    proxy.consumer.membership = membership
    finding = doctor._protocols("kafka", proxy, answers)
    assert (finding.result, finding.found) == (result, shown)
    assert (finding.todo == "set consumer.membership: kafka") is (
        membership == "kafka-next" and result == FAIL
    )
    if result == FAIL and membership == "kafka-next":
        proxy.consumer.group_protocol = "consumer"
        both = "set consumer.membership: kafka and consumer.group_protocol: classic"
        assert doctor._protocols("kafka", proxy, answers).todo == both
        proxy.consumer.membership = "kafka"
        assert doctor._protocols("kafka", proxy, answers).todo == "set consumer.group_protocol: classic"


@pytest.mark.parametrize(
    ("refusal", "result", "shown"),
    [
        (None, OK, "topics may be listed and created"),
        (KafkaError("Cluster authorization failed", -1, "X"), WARN, "topics may not be created"),
        (KafkaError("it broke", -1, "X"), WARN, "it broke"),
    ],
)
def test_rights(refusal: KafkaError | None, result: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pixy.kafka import topic_changes

    def create(_self: Any, topic: Any, *, validate_only: bool) -> None:
        assert validate_only, "nothing is changed"
        if refusal is not None:
            raise refusal

    monkeypatch.setattr(topic_changes.TopicChanges, "create", create)
    finding = doctor._rights("kafka", Answers())
    assert (finding.result, finding.found) == (result, shown)
    assert ("admin_changes: false" in finding.todo) is ("not be created" in shown)


def test_tls_towards_kafka_that_the_library_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    from pixy.kafka import brokers

    def refuse(*_: Any, **__: Any) -> None:
        raise KafkaError("ssl.key.location failed", -1, "X")

    monkeypatch.setattr(brokers, "Brokers", refuse)
    [finding] = doctor._kafka("eu", Proxy(kafka=Kafka(tls=True)))
    assert (finding.result, finding.check) == (FAIL, "kafka (eu)") and "kafka.tls" in finding.todo


def test_a_daemon_that_refuses_the_caller_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from pixy.cli.shell import session

    def refuse(*_: Any) -> None:
        raise CallError(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

    monkeypatch.setattr(session.Session, "call", refuse)
    finding, running = doctor._daemon(Settings(NOBODY))
    assert running, "something answers there"
    assert finding == Finding(
        WARN,
        "daemon",
        f"{NOBODY} refuses: who are you?",
        "name who calls: KAFKA_PIXY_TOKEN, or ask somebody with rights",
    )


CERTIFICATE = "the certificate of d is not trusted"


def test_a_server_that_is_no_daemon_is_not_to_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: Any) -> None:
        raise WrongServer(grpc.StatusCode.UNAVAILABLE, "at d:1 is no gRPC server of Kafka-Pixy")

    monkeypatch.setattr(Session, "call", answer)
    finding, running = doctor._daemon(Settings(NOBODY))
    assert (finding.result, finding.todo, running) == (WARN, "name its gRPC port with --server", False)


@pytest.mark.parametrize(
    ("answer", "is_used"),
    [
        (60.0, True),
        (CallError(grpc.StatusCode.PERMISSION_DENIED, "may not describe"), True),
        (DaemonGone(grpc.StatusCode.UNAVAILABLE, CERTIFICATE), True),
        (DaemonGone(grpc.StatusCode.UNAVAILABLE, "no daemon answers at d: connection refused"), False),
    ],
)
def test_the_ports_of_a_daemon_that_answers_are_not_to_be_freed(
    answer: float | CallError, is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it refuses the caller, has another clock, or a certificate that is not trusted."""

    def call(*_: Any) -> SimpleNamespace:
        if isinstance(answer, CallError):
            raise answer
        return SimpleNamespace(time=int((time.time() + answer) * 1000), version="1", uptime=7.0)

    monkeypatch.setattr(Session, "call", call)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = tmp_path / "c.yaml"
        path.write_text(f"grpc_addr: 127.0.0.1:{taken.getsockname()[1]}\ntcp_addr: ''\n")
        settings = Settings(f"127.0.0.1:{taken.getsockname()[1]}", tls=True)
        findings = {each.check: each for each in doctor.check(str(path), NOBODY, settings)}
    assert findings["daemon"].result == WARN
    assert (findings["grpc_addr"].result, "a daemon runs here" in findings["grpc_addr"].found) == (
        OK if is_used else FAIL,
        is_used,
    )


def test_a_daemon_elsewhere_has_no_ports_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a foreign program were ok: "a daemon runs here"."""
    answer = SimpleNamespace(time=int(time.time() * 1000), version="1", uptime=7.0)
    monkeypatch.setattr(Session, "call", lambda *_: answer)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = tmp_path / "c.yaml"
        path.write_text(f"grpc_addr: 127.0.0.1:{taken.getsockname()[1]}\ntcp_addr: ''\n")
        findings = {each.check: each for each in doctor.check(str(path), NOBODY, Settings(NOBODY))}
    assert findings["daemon"].result == OK
    assert (findings["grpc_addr"].result, findings["grpc_addr"].todo) == (
        FAIL,
        "free it, or set another grpc_addr",
    )


@pytest.mark.parametrize(
    ("server", "address", "is_here"),
    [
        ("127.0.0.1:5", "127.0.0.1:5", True),
        ("localhost:5", "0.0.0.0:5", True),
        ("127.0.0.1:5", "127.0.0.1:6", False),
        ("192.0.2.1:5", "0.0.0.0:5", False),  # of documentation: nobody has it
        ("127.0.0.1:5", "", False),
    ],
)
def test_where_a_daemon_is(server: str, address: str, is_here: bool) -> None:
    assert doctor._is_here(server, App(grpc_addr=address)) is is_here


@pytest.mark.parametrize(
    ("config", "server", "tls"),
    [
        ("grpc_addr: 127.0.0.1:29091", "127.0.0.1:29091", False),
        ("grpc_addr: 0.0.0.0:29091\ninsecure: true", "localhost:29091", False),
        ("grpc_addr: '[::1]:29091'\ntls: {certificate_path: C, key_path: K}", "[::1]:29091", True),
        ("grpc_addr: ''", "localhost:19091", False),
    ],
)
def test_the_daemon_is_looked_for_where_the_configuration_says(config: str, server: str, tls: bool) -> None:
    found = doctor._here(load_text(config), Settings("", ca="ca.pem", token_file="t"))
    assert found == Settings(server, tls=tls, ca="ca.pem", token_file="t")


@pytest.mark.parametrize("arguments", [[], ["--server", "d:2"]])
def test_doctor_has_the_shell_s_options(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags, variables and profiles name the daemon and the caller; else it is the configuration's."""
    seen: list[Settings] = []

    def check(_config: str, _peers: str, settings: Settings) -> Iterator[Finding]:
        seen.append(settings)
        yield Finding(OK, "x", "y")

    (tmp_path / "p.yaml").write_text("default: {tls: true}\nother: {server: 'p:1', cert: c}\n")
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(tmp_path / "p.yaml"))
    monkeypatch.setenv("KAFKA_PIXY_CA", "ca.pem")
    monkeypatch.setattr(doctor, "check", check)
    for more in ([], ["--profile", "other"]):
        assert run_in_process(lambda more=more: main(["doctor", *arguments, *more])).returncode == 0
    given = "d:2" if arguments else ""
    assert seen == [Settings(given, tls=True, ca="ca.pem"), Settings(given or "p:1", ca="ca.pem", cert="c")]


def test_a_daemon_whose_configuration_nobody_named_may_have_another_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_daemon", lambda _settings: (Finding(OK, "daemon", "it answers"), True))
    monkeypatch.setenv("KAFKA_PIXY_PROXIES__DEFAULT__KAFKA__SEED_PEERS", NOBODY)
    guessed = {each.check: each for each in doctor.check("", "", Settings(NOBODY))}["kafka (default)"]
    assert guessed.result == WARN and "--config" in guessed.todo and "sandbox" in guessed.todo
    named = {each.check: each for each in doctor.check("", NOBODY, Settings(NOBODY))}["kafka (default)"]
    assert named.result == FAIL and named.todo.endswith("; a daemon with --sandbox has no Kafka to check")

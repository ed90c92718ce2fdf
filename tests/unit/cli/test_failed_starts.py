"""What keeps the daemon from starting is one line that says what to do, before anything is opened."""

from __future__ import annotations

import errno
import gc
import socket
import sys
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaError, KafkaException

from pixy.cli import logs, open_files, serve, tap
from pixy.cli.logs import configured
from pixy.cli.main import main
from pixy.cli.reloading import Reloader
from pixy.config import App
from pixy.errors import StartError
from pixy.kafka import sandbox
from pixy.kafka.errors import OUT_OF_BROKERS
from tests.in_process import Finished, run_in_process

SANDBOXES = serve.make_sandboxes


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The daemon must not get as far as opening things."""
    seen: list[str] = []

    def opens(*_: object) -> int:
        seen.append("opened")
        return 0

    monkeypatch.setattr(serve, "_logged", opens)
    monkeypatch.setattr(serve, "make_sandboxes", lambda *_: [])
    monkeypatch.setattr(serve, "tune_process", lambda: None)
    monkeypatch.setattr(serve.sys, "setswitchinterval", lambda _: None)
    return seen


def start(*args: str) -> Finished:
    return run_in_process(lambda: main([*args, "--sandbox"]))


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            ["--grpcAddr=127.0.0.1:99999"],
            "Failed to start service: err=(grpc_addr 127.0.0.1:99999: has a port above 65535: name an address such as 127.0.0.1:19091)",
        ),
    ],
)
def test_it_is_one_line(args: list[str], text: str, opened: list[str]) -> None:
    done = start(*args)
    assert (done.returncode, done.stderr.decode()) == (1, f"{text}\n") and not opened


def fails_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr(serve, "_logged", fails)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(24, "Too many open files"),
            "too many open files: let the daemon open more of them (ulimit -n, LimitNOFILE of systemd)",
        ),
        (OSError(28, "No space left on device", "/run/x"), "/run/x: no space left on device: free some space"),
        (PermissionError(13, "Permission denied", "/run/x"), "/run/x: permission denied"),
        (OSError(98, "while binding ('::1', 1): [errno 98] in use"), "address already in use"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (OSError("it broke\nbadly"), "it broke badly"),
        (ValueError("it broke\nbadly"), "it broke badly"),
    ],
)  # fmt: skip
def test_an_error_of_the_system_is_words(
    error: Exception, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ``[Errno 24] Too many open files``: no number, one line, and what to do if that is known."""
    fails_with(error, monkeypatch)
    done = start()
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        1,
        b"",
        f"Failed to initialize: err=({text})\n",
    )


def test_a_loop_that_cannot_be_made_costs_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without files it cannot: Python said on standard error that the daemon's coroutine was never awaited."""

    class Runner:
        @staticmethod
        def run(_main: object) -> int:
            raise OSError(24, "Too many open files")

    async def serves() -> int:
        return 0

    monkeypatch.setitem(sys.modules, "uvloop", Runner)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(OSError, match="Too many"):
            serve.run_loop(serves)
        gc.collect()
    assert [str(each.message) for each in seen] == []


def test_a_syslog_server_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_host(**_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    def opens_logs(app: App, *_: object) -> int:
        with configured(app.logging):
            raise AssertionError("there is no such server")

    monkeypatch.setattr(logs, "_Syslog", no_such_host)
    monkeypatch.setattr(serve, "_logged", opens_logs)
    done = start("--logging=[{name: syslog, params: {addr: 'nohost:514'}}]")
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        1,
        b"",
        "Failed to initialize: err=(logging addr nohost:514 of syslog: name or service not known: "
        "name the host and the port of a syslog server)\n",
    )


def test_a_log_that_cannot_be_written(tmp_path: Path, opened: list[str]) -> None:
    """As ``config check`` says it, with what to do."""
    path = tmp_path / "c.yaml"
    path.write_text(f"access_log: {{path: {tmp_path}/none/log}}\n")
    done = start(f"--config={path}")
    assert (done.returncode, done.stdout) == (1, b"") and not opened
    assert done.stderr.decode() == (
        f"Failed to start service: err=(access_log.path {tmp_path}/none/log: the directory {tmp_path}/none does not exist: "
        "create it, or choose another path)\n"
    )


def test_a_logger_that_nobody_knows_is_a_line_at_start(opened: list[str]) -> None:
    """The daemon starts, as the original does; with no other logger it was silent."""
    done = start("--logging=[{name: syslgo}]")
    assert (done.returncode, done.stdout, opened) == (0, b"", ["opened"])
    assert done.stderr.decode() == (
        "kafka-pixy: logging: there is no logger 'syslgo', so it is ignored; known are console, json, syslog\n"
    )


def test_a_configuration_that_is_no_text(tmp_path: Path, opened: list[str]) -> None:
    path = tmp_path / "bin.dat"
    path.write_bytes(b"\x7fELF\xae\x00")
    done = start(f"--config={path}")
    assert done.returncode == 1 and not opened
    assert done.stderr.decode() == (
        f"Failed to load config: err=(failed to read config file: path={path}, "
        "err=(it is not text in UTF-8: name a YAML file))\n"
    )


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["keys", "new", "a", "--file", "FOLDER/none/keys"], "keys: FOLDER/none/keys: no such file or directory"),
        (["man", "FOLDER/file/man1"], "man: FOLDER/file/man1: not a directory"),
    ],
)  # fmt: skip
def test_commands_name_no_error_numbers_either(args: list[str], text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_in_process(lambda: main([each.replace("FOLDER", str(tmp_path)) for each in args]))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"kafka-pixy {text.replace('FOLDER', str(tmp_path))}\n"


def test_each_problem_of_a_configuration_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("tcp_adr: x\nfoo: 1\n")
    done = run_in_process(lambda: main(["config", "check", "--config", str(tmp_path / "c.yaml")]))
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"kafka-pixy config: {tmp_path}/c.yaml: line 1: unknown key tcp_adr (did you mean tcp_addr?)\n"
        f"kafka-pixy config: {tmp_path}/c.yaml: line 2: unknown key foo\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rest: [1", "FILE: line 1: expected ',' or ']', but got the end of the file"),
        (
            "proxies:\n  eu:\n    consumer: {ack_timeout: -1s}\n",
            "invalid config, cluster=eu: invalid config parameter: consumer.ack_timeout must be > 0 (FILE:3)",
        ),
        (
            "\ntcp_addr: nowhere\n",
            "invalid config parameter: tcp_addr 'nowhere' must be HOST:PORT, such as nowhere:19092, or a path with a slash (FILE:2)",
        ),
    ],
)
def test_the_file_of_a_wrong_value_is_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    said = said.replace("FILE", str(file))
    done = run_in_process(lambda: main(["config", "check", "--config", str(file)]))
    assert (done.returncode, done.stderr.decode()) == (1, f"kafka-pixy config: {said}\n")
    done = run_in_process(lambda: main(["--config", str(file)]))
    assert (done.returncode, said in done.stderr.decode()) == (1, True), done


def test_the_variable_or_flag_of_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PIXY_PROXIES__DEFAULT__CONSUMER__ACK_TIMEOUT", "-1s")
    done = run_in_process(lambda: main(["config", "check"]))
    assert b"must be > 0 ($KAFKA_PIXY_PROXIES__DEFAULT__CONSUMER__ACK_TIMEOUT)\n" in done.stderr
    monkeypatch.delenv("KAFKA_PIXY_PROXIES__DEFAULT__CONSUMER__ACK_TIMEOUT")
    done = run_in_process(lambda: main(["config", "check", "--kafkaPeers", "a b"]))
    assert b" (--kafkaPeers)\n" in done.stderr, done
    done = run_in_process(lambda: main(["--logging", "7"]))
    assert b"--logging: line 1: cannot unmarshal" in done.stderr, done


def test_a_full_disk_is_named_with_the_page_that_was_not_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A write's error names no file."""

    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    done = run_in_process(lambda: main(["man", str(tmp_path / "man1")]))
    assert done.returncode == 1
    assert done.stderr.decode() == f"kafka-pixy man: {tmp_path}/man1/kafka-pixy.1: no space left on device\n"


@pytest.mark.parametrize(
    ("content", "text"), [(b"\xff", "it is not text in UTF-8: name a YAML file"), (None, "Is a directory")]
)
def test_profiles_that_cannot_be_read(
    content: bytes | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "profiles"
    path.mkdir() if content is None else path.write_bytes(content)
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(path))
    done = run_in_process(lambda: main(["topics"]))
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        2,
        b"",
        f"kafka-pixy topics: {path}: {text}\n",
    )


def test_a_duration_without_a_unit_is_said_at_the_start(tmp_path: Path, opened: list[str]) -> None:
    (tmp_path / "c.yaml").write_text("proxies: {default: {consumer: {ack_timeout: 5}}}")
    done = start(f"--config={tmp_path}/c.yaml")
    assert done.returncode == 0 and opened
    assert done.stderr.startswith(b"kafka-pixy: proxies.default.consumer.ack_timeout is 5ns: ")


def test_a_broker_that_does_not_answer_is_a_line_with_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_with(StartError(f"failed: {OUT_OF_BROKERS} [localhost:9092: down]"), monkeypatch)
    assert start().stderr.decode() == (
        f"Failed to start service: err=(failed: {OUT_OF_BROKERS} [localhost:9092: down]: name other brokers with "
        "--kafkaPeers, wait for them with --waitForKafka, or try it out with --sandbox)\n"
    )


# -- open files -------------------------------------------------------------------------------------

FEW = "at most 12 files may be open, and 64 are needed: allow more (ulimit -n, LimitNOFILE of systemd)"


@pytest.mark.parametrize(
    ("args", "text"),
    [([], f"Failed to start service: err=({FEW})"), (["tap"], f"kafka-pixy tap: {FEW}")],
)
def test_too_few_open_files_are_one_line(
    args: list[str], text: str, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ulimit -n 12`` was a traceback, 16 the end by SIGABRT without a word."""
    monkeypatch.setattr(open_files.resource, "getrlimit", lambda _: (12, 12))
    monkeypatch.setattr(open_files.resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(tap, "_sandbox", lambda _: opened.append("sandbox"))
    done = start(*args)
    assert (done.returncode, done.stderr.decode(), opened) == (1, f"{text}\n", [])


@pytest.mark.parametrize(("limit", "enough"), [(63, False), (64, True), (-1, True)])
def test_how_many_open_files_are_enough(limit: int, enough: bool) -> None:
    assert (open_files.too_few(limit) == "") is enough


@pytest.mark.parametrize(
    ("args", "text"), [([], "Failed to start service: err=({})\n"), (["tap"], "kafka-pixy tap: {}\n")]
)
def test_a_sandbox_that_does_not_answer_is_one_line(
    args: list[str], text: str, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files may be all in use, as where many are inherited."""

    class Silent:
        def __init__(self, _settings: object) -> None:
            pass

        def list_topics(self, **_: object) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(serve, "make_sandboxes", SANDBOXES)
    monkeypatch.setattr(sandbox, "Producer", Silent)
    done = start(*args)
    shown = done.stderr.decode()
    head, _, tail = text.partition("{}")
    assert done.returncode == 1 and shown.count("\n") == 1 and not opened, shown
    assert shown.startswith(f"{head}the sandbox does not answer: ") and shown.endswith(tail), shown


async def test_each_process_logs_that_it_serves_with_an_invalid_certificate(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also a worker that is started again, long after the program's own warning."""

    class Started:
        def __init__(self, _app: App) -> None: ...

        async def start(self, _listeners: object) -> None: ...

    async def served(_daemon: object, _engine: object) -> int:
        return 0

    monkeypatch.setattr(serve, "Engine", Started)
    monkeypatch.setattr(serve, "listeners", lambda *_: [])
    monkeypatch.setattr(serve.Daemon, "_serve", served)
    monkeypatch.setattr(serve, "invalid_note", lambda _tls: "c.pem expired")
    app = App()
    daemon = serve.Daemon(app, lambda _code: None, Reloader(app, lambda: app, ""))
    assert await daemon.run() == 0
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", "c.pem expired")]


@pytest.mark.parametrize(
    ("since", "until", "checked", "warned"),
    [
        (-3, -2, "expired on 20", True),
        (2, 30, "is not valid before 20", True),
        (-3, 13, "expires on 20", False),
        (-3, 15, "", False),
    ],
)
def test_a_certificate_that_clients_refuse_is_said_and_served(
    since: float, until: float, checked: str, warned: bool, tmp_path: Path, opened: list[str]
) -> None:
    begin, end = (datetime.now(UTC) + timedelta(each) for each in (since, until))
    issued = trustme.CA().issue_cert("localhost", not_before=begin, not_after=end)
    issued.cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    issued.private_key_pem.write_to_path(tmp_path / "c.key")
    path = tmp_path / "c.yaml"
    path.write_text(f"tls: {{certificate_path: {tmp_path}/c.pem, key_path: {tmp_path}/c.key}}\n")
    named = f"tls.certificate_path {tmp_path}/c.pem {checked}"
    done = run_in_process(lambda: main(["config", "check", f"--config={path}"]))
    assert done.returncode == 0 and (f"note: {named}" in done.stdout.decode()) is bool(checked), done.stdout
    assert (b"note:" in done.stdout) is bool(checked), done.stdout
    done = start(f"--config={path}")
    shown = done.stderr.decode()
    assert (done.returncode, opened) == (0, ["opened"]), shown
    assert shown.startswith(f"kafka-pixy: {named}") if warned else not shown, shown
    assert shown.count("\n") == warned

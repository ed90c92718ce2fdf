"""Reloading: what is read again while the daemon serves, and what happens if it is wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pixy.auth.keys import make_key
from pixy.auth.principal import Credentials, Principal
from pixy.auth.rules import Access
from pixy.cli import reloading, watched_files
from pixy.cli.logs import configured, set_severities
from pixy.cli.reloading import Reloader, changed_keys, values_of
from pixy.cli.watched_files import WatchedFiles, fingerprint
from pixy.config import App, Logger, Proxy, load_file, load_text, validate
from pixy.engine.engine import Engine
from pixy.errors import ConfigError, NotValidNow, StartError, Unauthenticated
from tests.kafka.cluster import free_port
from tests.support import ROOT, Program, eventually

APP = Principal("key:app")


class Daemon:
    """An engine that was not started, its files, and what reloads them."""

    def __init__(self, folder: Path) -> None:
        self.file, self.keys = folder / "c.yaml", folder / "keys"
        self.key, stored = make_key("app")
        self.keys.write_text(stored.line())
        self.write("orders")
        app = self.read()
        self.engine: Any = Engine(app)
        self.certificates: Callable[[], None] = lambda: None
        self.engine.reload_certificates = self._certificates
        self.reloader = Reloader(app, self.read, str(self.file))

    def write(self, topic: str, *more: str) -> None:
        rules = f"rules: [{{who: ['key:app'], verbs: [produce], topics: [{topic}]}}]"
        start = f"reload_interval: 10ms\nauth: {{enabled: true, keys_file: '{self.keys}'}}"
        self.file.write_text("\n".join([start, rules, "proxies: {default: {}}", *more]))

    def read(self) -> App:
        return validate(load_file(str(self.file)))

    async def _certificates(self) -> None:
        self.certificates()

    def allows(self, topic: str) -> bool:
        return bool(self.engine.guard.rules.allows(APP, Access("produce", "default", topic)))

    def knows(self, key: str) -> bool:
        try:
            self.engine.guard.authenticator.recognize(Credentials(api_key=key))
        except Unauthenticated:
            return False
        return True


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


async def test_rules_limits_and_keys_count_at_once(daemon: Daemon) -> None:
    limiter = daemon.engine.guard.limiter
    daemon.write("payments")
    new, stored = make_key("app")
    daemon.keys.write_text(stored.line())
    await daemon.reloader.reload(daemon.engine)
    assert not daemon.allows("orders") and daemon.allows("payments")
    assert daemon.knows(new) and not daemon.knows(daemon.key)
    assert daemon.engine.guard.limiter is limiter, "what callers have used up would be forgotten"
    daemon.write("payments", "limits: [{who: ['*'], instances: 3}]")
    await daemon.reloader.reload(daemon.engine)
    assert daemon.engine.guard.limiter.limit_of(APP).instances == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("rules: [", "rules, limits and severities stay as they were"),
        ("nope: 1", "rules, limits and severities stay as they were: failed to parse config"),
        ("limits: [{who: ['a*b']}]", "rules and limits stay as they were: limits[0]: bad pattern"),
    ],
)
async def test_a_wrong_file_changes_nothing_but_keys_are_read(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, wrong: str, said: str
) -> None:
    daemon.write("payments", wrong)
    new, stored = make_key("new")
    daemon.keys.write_text(stored.line())
    await daemon.reloader.reload(daemon.engine)
    assert daemon.allows("orders") and not daemon.allows("payments")
    assert daemon.knows(new)
    assert said in caplog.text


async def test_wrong_keys_or_certificates_leave_the_earlier_ones(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise StartError("tls: cert.pem: no such file")

    daemon.certificates = refuse
    daemon.keys.write_text("nonsense")
    daemon.write("payments")
    await daemon.reloader.reload(daemon.engine)
    assert daemon.allows("payments") and daemon.knows(daemon.key)
    assert "the keys stay as they were" in caplog.text
    assert "the certificates stay as they were: tls: cert.pem: no such file" in caplog.text


async def test_what_needs_a_restart_is_named(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.write("payments", "tcp_addr: 127.0.0.1:7", "logging: [{name: json, severity: error}]")
    await daemon.reloader.reload(daemon.engine)
    assert "these changes need a restart: tcp_addr" in caplog.text


def test_which_changes_need_a_restart() -> None:
    def loaded(text: str) -> dict[str, Any]:
        return values_of(load_text("proxies: {default: {client_id: a}}\n" + text))

    before = loaded("")
    assert changed_keys(before, loaded("")) == []
    assert (
        changed_keys(before, loaded("rules: [{who: [a]}]\nlimits: [{who: [a]}]\nauth: {groups: {a: [b]}}"))
        == []
    )
    assert changed_keys(before, loaded("rest: {prefix: /x}\nauth: {basic: true}")) == [
        "auth.basic",
        "rest.prefix",
    ]
    other = values_of(load_text("proxies: {default: {client_id: a}, more: {}}"))
    assert "proxies.more.kafka.seed_peers" in changed_keys(before, other)
    generated = values_of(App(proxies={"default": Proxy(client_id="kp_a")}))
    assert changed_keys(generated, values_of(App(proxies={"default": Proxy(client_id="kp_b")}))) == []


def test_a_secret_that_has_changed_is_noticed() -> None:
    before, after = App(proxies={"default": Proxy()}), App(proxies={"default": Proxy()})
    after.proxies["default"].client_id = before.proxies["default"].client_id
    after.proxies["default"].net.sasl.password = "x"
    assert changed_keys(values_of(before), values_of(after)) == ["proxies.default.net.sasl.password"]


def test_a_file_that_was_replaced_or_is_gone_looks_different(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_text("x")
    first = fingerprint([str(file)])
    assert fingerprint([str(file)]) == first
    other.write_text("y")
    other.replace(file)
    second = fingerprint([str(file)])
    assert second != first
    file.unlink()
    assert fingerprint([str(file)]) == (None,) != second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "`auth.enabled` is not true any more"),
        ("auth: {enabled: true, keys_file: keys}", "there are no `rules` any more"),
        ("auth: {enabled: true, keys_file: keys}\nrules: []", "there are no `rules` any more"),
        (
            "auth: {enabled: true, keys_file: keys}\nrules: [{who: ['*'], verbs: ['*'], topics: [payments]}]",
            "there are no `limits` any more",
        ),
    ],
)
async def test_a_file_that_is_empty_or_cut_off_does_not_open_the_daemon(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    daemon.write("orders", "limits: [{who: ['*'], instances: 3}]")
    await daemon.reloader.reload(daemon.engine)
    # The program itself adds the default cluster to a file without any.
    daemon.file.write_text(text + "\nproxies: {default: {}}\n")
    await daemon.reloader.reload(daemon.engine)
    assert daemon.allows("orders") and not daemon.allows("payments")
    assert not daemon.knows("kp_other") and f"rules and limits stay as they were: {said}" in caplog.text
    assert daemon.engine.guard.limiter.limit_of(APP).instances == 3
    daemon.write("payments", "limits: [{who: ['*'], instances: 4}]")
    await daemon.reloader.reload(daemon.engine)
    assert daemon.allows("payments") and not daemon.allows("orders"), "it goes on from there"


async def test_an_emptied_file_of_keys_locks_nobody_out(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.keys.write_text(" \n")
    await daemon.reloader.reload(daemon.engine)
    assert daemon.knows(daemon.key)
    assert "keys stay as they were" in caplog.text and "leave a comment (#) in it" in caplog.text
    daemon.keys.write_text("# nobody\n")
    await daemon.reloader.reload(daemon.engine)
    assert not daemon.knows(daemon.key), "that is meant"


async def test_files_that_are_being_written_are_read_again(daemon: Daemon) -> None:
    read, asked = daemon.read, []

    def reading() -> App:
        found = read()
        if not asked:
            asked.append(daemon.allows("half-written"))
            daemon.write("payments", "# more")
        return found

    daemon.write("half-written")
    daemon.reloader._read = reading
    await daemon.reloader.reload(daemon.engine)
    assert asked == [False] and not daemon.allows("half-written") and daemon.allows("payments")


async def test_files_that_never_rest_change_nothing(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(1000))
    monkeypatch.setattr(watched_files, "fingerprint", lambda _paths: (next(looks),))
    monkeypatch.setattr(reloading, "_PAUSE", 0)
    daemon.write("payments")
    daemon.keys.write_text("")
    await daemon.reloader.reload(daemon.engine)
    assert daemon.allows("orders") and daemon.knows(daemon.key)
    assert "the files change while they are read" in caplog.text


@pytest.mark.parametrize("requested", [False, True])
async def test_a_change_counts_when_it_looks_the_same_twice(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, requested: bool
) -> None:
    looks, seen = ["half", "half a bit longer", *["whole"] * 100], list[str]()

    def look(paths: tuple[str, ...]) -> Any:
        if paths != (str(daemon.file),):
            return fingerprint(paths)
        seen.append(looks.pop(0))
        return seen[-1]

    async def reload(_engine: object, _files: object) -> None:
        done.set()

    done = asyncio.Event()
    monkeypatch.setattr(watched_files, "fingerprint", look)
    monkeypatch.setattr(daemon.reloader, "reload", reload)
    monkeypatch.setattr(reloading, "_PAUSE", 0)
    if requested:
        daemon.reloader.request()
    task = asyncio.create_task(daemon.reloader.run(daemon.engine))
    await asyncio.wait_for(done.wait(), 60)
    assert seen[:4] == ["half", "half a bit longer", "whole", "whole"]
    task.cancel()


@pytest.mark.parametrize("requested", [False, True])
async def test_a_file_that_never_rests_does_not_hold_up_the_others(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, requested: bool
) -> None:
    """A JWKS that something rewrites all the time kept a removed key in use."""
    looks, look = iter(range(1_000_000)), watched_files.fingerprint
    monkeypatch.setattr(reloading, "_PAUSE", 0.001)
    monkeypatch.setattr(
        watched_files,
        "fingerprint",
        lambda paths: ((next(looks), 0, 0),) if paths == ("jwks",) else look(paths),
    )
    daemon.reloader._token_keys._paths = ("jwks",)
    removed = asyncio.Event()
    daemon.engine.guard.authenticator._watchers[removed] = removed.set
    daemon.keys.write_text("# nobody\n")
    if requested:
        daemon.reloader.request()
    task = asyncio.create_task(daemon.reloader.run(daemon.engine))
    await asyncio.wait_for(removed.wait(), 60)
    assert not daemon.knows(daemon.key)
    task.cancel()


async def test_wrong_keys_of_tokens_do_not_keep_a_removed_key(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        daemon.engine.guard.authenticator._config.jwt, "jwks_file", str(daemon.file), raising=False
    )
    daemon.keys.write_text("# nobody\n")
    await daemon.reloader.reload(daemon.engine)
    assert not daemon.knows(daemon.key)
    assert "the keys of tokens stay as they were: auth.jwt.jwks_file" in caplog.text


def test_a_file_that_is_always_rewritten_is_read_in_the_end(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("x")
    watched = WatchedFiles("keys", str(file))
    ready = []
    for number in range(1, 12):
        file.write_text("x" * (number + 1))
        ready.append(watched.look())
        if ready[-1]:
            watched.were_read(watched.now())
    assert [at for at, each in enumerate(ready, 1) if each] == [5, 10]


@pytest.fixture
async def running(daemon: Daemon) -> AsyncIterator[Daemon]:
    task = asyncio.create_task(daemon.reloader.run(daemon.engine))
    yield daemon
    task.cancel()


async def test_a_change_of_a_file_is_noticed_also_before_the_first_look(running: Daemon) -> None:
    running.write("payments")

    async def allowed() -> bool:
        return running.allows("payments")

    await eventually(allowed)


async def test_a_request_reloads_though_no_file_has_changed(running: Daemon) -> None:
    done = asyncio.Event()
    running.certificates = done.set
    running.reloader.request()
    await asyncio.wait_for(done.wait(), 60)


@pytest.mark.slow
async def test_an_error_of_ours_does_not_end_reloading(
    running: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    failed, done = asyncio.Event(), asyncio.Event()

    def fail() -> None:
        failed.set()
        raise ValueError("ours")

    running.certificates = fail
    running.reloader.request()
    await asyncio.wait_for(failed.wait(), 60)
    running.certificates = done.set
    running.reloader.request()
    await asyncio.wait_for(done.wait(), 60)
    assert "reloading failed" in caplog.text and "ours" in caplog.text


def test_severities_change_and_the_loggers_stay(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("pixy.test")
    with configured([Logger("console", "error")]):
        log.info("one")
        set_severities([Logger("console", "debug"), Logger("json", "debug")])
        log.debug("two")
    with configured([Logger("console", "debug")]):
        set_severities([Logger("console", "warning")])
        log.info("three")
    set_severities([Logger("console", "debug")])
    shown = capsys.readouterr().out
    assert "two" in shown and "one" not in shown and "three" not in shown


@pytest.mark.slow
def test_a_hangup_reloads_and_does_not_end_the_daemon(tmp_path: Path) -> None:
    """The whole program: the log says what was done, and a signal afterwards still drains."""
    file, port = tmp_path / "c.yaml", free_port()
    file.write_text(f"tcp_addr: 127.0.0.1:{port}\ngrpc_addr: ''\nreload_interval: 0\n")
    with Program("--config", str(file), "--sandbox") as program:
        assert program.process.stdout is not None
        lines = iter(program.process.stdout.readline, "")
        assert any("Ctrl-C stops it." in line for line in lines)
        file.write_text(f"tcp_addr: 127.0.0.1:{port}\ngrpc_addr: ''\nmax_concurrent_requests: 7\n")
        program.process.send_signal(signal.SIGHUP)
        found = []
        for line in lines:
            found.append(line)
            if "reloaded the configuration" in line:
                break
        assert any(
            "these changes need a restart: max_concurrent_requests, reload_interval" in line for line in found
        ), found
        program.process.send_signal(signal.SIGTERM)
        code, output = program.wait()
    assert code == 0, output


@pytest.mark.slow
def test_a_sandbox_ends_with_its_terminal() -> None:
    controller, terminal = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "pixy.cli.main",
        "--sandbox",
        f"--grpcAddr=127.0.0.1:{free_port()}",
        f"--tcpAddr=127.0.0.1:{free_port()}",
    ]
    with subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert any("Ctrl-C stops it." in line for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGHUP)
        output, _ = process.communicate(timeout=60)
    os.close(terminal)
    os.close(controller)
    assert process.returncode == 0, output


def test_what_is_wrong_at_the_start_is_an_error() -> None:
    app = load_text("auth: {enabled: true, keys_file: /nowhere}\nproxies: {default: {}}")
    with pytest.raises(ConfigError, match="no such file"):
        Engine(app)


@pytest.mark.parametrize("wrong", ["", "rules: [", "limits: [{who: ['a*b']}]"])
async def test_only_a_reload_without_an_error_claims_success(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    caplog.set_level(logging.INFO, "pixy")
    daemon.write("payments", wrong)
    await daemon.reloader.reload(daemon.engine)
    assert ("reloaded the configuration, keys and certificates" in caplog.text) is (not wrong)
    assert ("reloaded only in part" in caplog.text) is bool(wrong)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{each.levelname} {each.getMessage()}" for each in caplog.records if each.name == "pixy"]


async def test_a_certificate_that_has_expired_is_one_warning(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise NotValidNow("tls.certificate_path c.pem has expired on Monday, and the one in use is valid")

    caplog.set_level(logging.INFO, "pixy")
    daemon.certificates = refuse
    daemon.write("payments")
    await daemon.reloader.reload(daemon.engine)
    assert daemon.allows("payments")
    assert lines_of(caplog) == [
        "WARNING reloading: the certificates stay as they were: tls.certificate_path c.pem has expired on Monday, and the one in use is valid",
        "INFO reloaded the configuration and keys",
    ]


async def test_an_invalid_certificate_that_is_taken_is_one_warning(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "invalid_note", lambda _tls: "c.pem has expired")
    caplog.set_level(logging.INFO, "pixy")
    await daemon.reloader.reload(daemon.engine)
    assert lines_of(caplog) == [
        "WARNING reloading: c.pem has expired",
        "INFO reloaded the configuration, keys and certificates",
    ]


@pytest.mark.parametrize("interval", [0.01, 0])
async def test_a_certificate_that_is_not_valid_yet_is_read_again_once_it_is(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    since, asked, taken = time.time() + 0.3, 0, asyncio.Event()

    def certificates() -> None:
        nonlocal asked
        asked += 1
        if time.time() < since:
            raise NotValidNow("c.pem is not valid before Monday", since)
        taken.set()

    monkeypatch.setattr(reloading, "_PAUSE", 0.01)
    daemon.reloader._interval = interval
    daemon.certificates = certificates
    task = asyncio.create_task(daemon.reloader.run(daemon.engine))
    daemon.reloader.request()
    await asyncio.wait_for(taken.wait(), 60)
    task.cancel()
    assert asked == 2 and caplog.text.count("is not valid before") == 1, "it says so once"

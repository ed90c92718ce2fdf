"""``config check`` finds what would keep the daemon from starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.cli import pid_file
from pixy.cli.main import main
from pixy.cli.shell import doctor
from pixy.cli.shell.session import Settings
from pixy.cli.start_problems import listener_problem, start_problem
from pixy.config import App, Proxy, files
from pixy.config.security import Identity
from pixy.errors import ConfigError
from tests.in_process import Finished, run_in_process

AUTH = "auth: {enabled: true, keys_file: KEYS}\n"
JWT = "auth: {enabled: true, jwt: {issuer: i, audience: a, jwks_file: JWKS}}\n"
RULE = "rules: [{who: ['key:a'], verbs: VERBS, topics: TOPICS}]\n"


def rule(verbs: str = "[consume]", topics: str = "[t]") -> str:
    return AUTH + RULE.replace("VERBS", verbs).replace("TOPICS", topics)


PROBLEMS = {
    "verb": (rule(verbs="[consmue]"), "rules[0].verbs: 'consmue' is not one of *, produce, "),
    "pattern": (rule(topics='["a*b"]'), "rules[0]: bad pattern 'a*b': * stands at the end only"),
    "limit": (AUTH + "limits: [{who: ['re:(']}]\n", "limits[0]: bad pattern 're:('"),
    "no keys": (AUTH.replace("KEYS", "KEYS.none"), "auth.keys_file: KEYS.none: no such file or directory"),
    "bad keys": (AUTH.replace("KEYS", "JUNK"), "auth.keys_file: JUNK: line 1: not `NAME sha256:HASH"),
    "no jwks": (JWT.replace("JWKS", "JWKS.none"), "auth.jwt.jwks_file: JWKS.none: no such file or directory"),
    "bad jwks": (JWT.replace("JWKS", "JUNK"), "auth.jwt.jwks_file: JUNK: "),
    "grpc": ("grpc_addr: nonsense\n", "grpc_addr nonsense: is not host:port: "),
    "port": ("grpc_addr: '127.0.0.1:99999'\n", "grpc_addr 127.0.0.1:99999: has a port above 65535: "),
    "rest": ("rest: {addr: '127.0.0.1:x'}\n", "rest.addr 127.0.0.1:x: is not host:port: "),
    "audit": (AUTH + "audit: {path: FOLDER/none/log}\n", "audit.path FOLDER/none/log: the directory FOLDER/none "),
    "access log": ("access_log: {path: FOLDER}\n", "access_log.path FOLDER: is a directory: "),
    "one port": (
        "grpc_addr: '127.0.0.1:29091'\ntcp_addr: 'localhost:29091'\n",
        "tcp_addr localhost:29091: grpc_addr 127.0.0.1:29091 has it already: choose another port",
    ),
    "one path": (
        "tcp_addr: FOLDER/s\nunix_addr: FOLDER/s\n",
        "unix_addr FOLDER/s: tcp_addr FOLDER/s has it already: choose another path",
    ),
    "syslog": (
        "logging: [{name: syslog, params: {addr: localhost}}]\n",
        "invalid config parameter: logging addr 'localhost' of syslog must be host:port, such as 127.0.0.1:514",
    ),
}  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "keys").write_text("")
    (tmp_path / "junk").write_text("junk\n")
    names = {"KEYS": "keys", "JUNK": "junk", "JWKS": "jwks"}
    return {"FOLDER": str(tmp_path)} | {word: str(tmp_path / name) for word, name in names.items()}


def filled(text: str, places: dict[str, str]) -> str:
    for word, path in places.items():
        text = text.replace(word, path)
    return text


def check(text: str, folder: Path, *flags: str) -> Finished:
    (folder / "pixy.yaml").write_text(text)
    line = ["config", "check", f"--config={folder / 'pixy.yaml'}", *flags]
    return run_in_process(lambda: main(line))


@pytest.mark.parametrize("name", PROBLEMS)
def test_config_check_finds_it_in_one_line(name: str, tmp_path: Path, places: dict[str, str]) -> None:
    text, wanted = (filled(each, places) for each in PROBLEMS[name])
    done = check(text, tmp_path)
    shown = done.stderr.decode()
    assert (done.returncode, done.stdout, shown.count("\n")) == (1, b"", 1), (done.stdout, shown)
    assert shown.startswith(f"kafka-pixy config: {wanted}"), shown


def test_a_pid_file_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "none" / "pid"
    done = check("", tmp_path, "--pidFile", str(path))
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        1,
        b"",
        f"kafka-pixy config: pidFile {path}: the directory {path.parent} does not exist: create it, or choose another path\n",
    )


def test_a_pid_file_of_the_daemon_that_runs_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People check a configuration while its daemon runs, before they restart it."""
    monkeypatch.setattr(pid_file, "_is_daemon", lambda _: True)
    path = tmp_path / "pid"
    path.write_text("4194304")
    assert check("", tmp_path, "--pidFile", str(path)).returncode == 0
    with pytest.raises(ConfigError, match="another daemon runs with it"):
        pid_file.PidFile(str(path)).check()


def test_what_the_daemon_accepts_is_valid(tmp_path: Path, places: dict[str, str]) -> None:
    text = filled(rule(topics='["a*", "re:b.c"]') + "audit: {path: FOLDER/log}\n", places)
    done = check(text + "logging: [{name: syslog}, {name: console}]\n", tmp_path)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    assert b"note:" not in done.stdout


def test_a_logger_that_nobody_knows_is_a_note(tmp_path: Path) -> None:
    done = check("logging: [{name: syslgo}]\n", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    note = b"note: logging: there is no logger 'syslgo', so it is ignored; known are console, json, syslog\n"
    assert done.stdout.endswith(note), done.stdout


def test_the_principals_of_an_identity_are_looked_at() -> None:
    app = App(proxies={"eu": Proxy()})
    app.auth.enabled = True
    app.proxies["eu"].identities.users["shop"] = Identity(["a*b"])
    assert start_problem(app).startswith("proxies.eu.identities.users.shop: bad pattern 'a*b'")


def test_doctor_finds_it_too(tmp_path: Path) -> None:
    (tmp_path / "pixy.yaml").write_text("grpc_addr: nonsense\n")
    findings = doctor.check(str(tmp_path / "pixy.yaml"), "127.0.0.1:1", Settings("127.0.0.1:1"))
    found = next(each for each in findings if each.check == "start")
    assert found.result == doctor.FAIL and found.found.startswith("grpc_addr nonsense: is not host:port")


def test_a_duration_without_a_unit_is_noted(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("body_timeout: 5")
    done = run_in_process(lambda: main(["config", "check", "--config", str(tmp_path / "c.yaml")]))
    assert done.returncode == 0 and b"note: body_timeout is 5ns: " in done.stdout


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "0.0.0.0:1", True),
        ("0.0.0.0:1", "localhost:1", True),
        (":1", "10.0.0.1:1", True),
        ("[::1]:1", "[::]:1", True),
        ("kp.example.com:1", "kp.example.com:1", True),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("0.0.0.0:1", "[::1]:1", False),
        ("0.0.0.0:1", "[::]:1", False),
        ("0.0.0.0:1", "kp.example.com:1", False),
        ("/run/a", "127.0.0.1:1", False),
    ],
)
def test_listeners_that_cannot_have_their_addresses_both(one: str, other: str, meets: bool) -> None:
    """The daemon said that another process listened there."""
    for first, second in ((one, other), (other, one)):
        app = App(grpc_addr="", tcp_addr=first)
        app.rest.addr = second
        assert bool(listener_problem(app)) is meets


def test_two_files_are_refused(tmp_path: Path) -> None:
    """The first one was ignored in silence."""
    done = check("", tmp_path, "--config", str(tmp_path / "none"))
    assert (done.returncode, done.stderr) == (
        2,
        b"kafka-pixy config: bad command line: --config is given twice: it takes one value (see --help)\n",
    )


def test_a_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with a MemoryError."""
    monkeypatch.setattr(files, "MAX_SMALL_FILE", 10)
    done = check("insecure: true\n", tmp_path)
    assert done.returncode == 1 and b"failed to read config file: " in done.stderr
    assert b"file too large" in done.stderr and done.stderr.count(b"\n") == 1

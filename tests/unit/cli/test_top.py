"""``kafka-pixy top`` and the demo of the console."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import io
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trustme
from rich.console import Console

from pixy.cli import demo_console, demo_console_round, top
from pixy.cli.admin_client import AdminClient, AdminError, Connection, address_of
from pixy.cli.main import main
from pixy.cli.top_tables import duration, rate
from pixy.config import App
from tests.in_process import run_in_process

FINDINGS = {
    "at": 1e9,
    "findings": [
        {"rule": "never-acked", "severity": "error", "cause": "client \x1b[31mx\x1b[0m holds 301 messages", "age": 42.0,
         "todo": "have it acknowledge", "where": {}, "evidence": {}},
    ],
}  # fmt: skip
GROUPS = {
    "total": 1,
    "rows": [
        {"group": "billing", "cluster": "main", "errors": 1, "trouble": 1, "lag": None, "rate": None, "drain": None, "unacked": 301,
         "oldest": 42.0, "polls": 3, "acks": 0, "partitions_owned": 4},
    ],
}  # fmt: skip
ACTORS = {
    "total": 9,
    "actors": [
        {"path": "/service/main", "current": "Reach", "busy": 0.25, "wait_p99": 0.001, "run_p99": 0.002, "restarts": 0,
         "mailbox": {"depth": 5, "oldest_age": 1.5}},
    ],
}  # fmt: skip


def drawn(findings: Any = FINDINGS, width: int = 140, groups: Any = GROUPS, actors: Any = ACTORS) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(
        top.render("http://h:1", findings, groups, actors, width)
    )
    return out.getvalue()


def test_it_shows_findings_groups_and_actors() -> None:
    text = drawn()
    assert "1 finding, 1 group, 9 actors" in text
    assert "never-acked" in text and "holds 301 messages" in text and "have it acknowledge" in text
    (billing,) = [line for line in text.splitlines() if line.startswith("billing")]
    assert billing.split() == ["billing", "main", "-", "-", "-", "301", "42", "s", "3", "0", "4"]
    assert "/service/main" in text and "250 ms" in text


def test_it_says_that_nothing_is_wrong() -> None:
    assert "nothing is wrong, 1 group," in drawn({"at": 1e9, "findings": []})


def test_a_narrow_terminal_loses_columns_and_no_part_of_a_name() -> None:
    group, path = "g" * 40, "/service/" + "p" * 45
    groups = {**GROUPS, "rows": [{**GROUPS["rows"][0], "group": group}]}
    actors = {**ACTORS, "actors": [{**ACTORS["actors"][0], "path": path}]}
    for width in (80, 120, 160):
        text = drawn(width=width, groups=groups, actors=actors)
        assert group in text and path in text and "UN-ACKED" in text and "…" not in text, text
        assert all(len(line) <= width for line in text.splitlines())
        assert ("PARTITIONS" in text, "RESTARTS" in text) == (width > 80, width > 80)


def test_a_name_wider_than_the_terminal_is_broken_into_lines() -> None:
    groups = {**GROUPS, "rows": [{**GROUPS["rows"][0], "group": "g" * 100}]}
    assert drawn(width=80, groups=groups).count("g") >= 100


def test_what_is_piped_has_all_columns_and_no_broken_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = "g" * 100
    answers = {
        "/findings": FINDINGS,
        "/console": {**GROUPS, "rows": [{**GROUPS["rows"][0], "group": group}]},
        "/debug": ACTORS,
    }
    monkeypatch.setattr(
        AdminClient,
        "get",
        lambda _self, path, **_: next(answers[key] for key in answers if path.startswith(key)),
    )
    assert top.run(["--once"]) == 0
    out = capsys.readouterr().out
    assert group in out and "PARTITIONS" in out and "RESTARTS" in out
    assert max(map(len, out.splitlines())) < 250


@pytest.mark.parametrize("width", [80, 160])
def test_the_lines_of_a_finding_are_indented(width: int) -> None:
    finding = {**FINDINGS["findings"][0], "cause": "client " + "c " * 80, "todo": "have it " + "t " * 80}
    lines = drawn({"at": 1e9, "findings": [finding]}, width).splitlines()[2:]
    part = lines[: lines.index("")]
    assert part[0].startswith("never-acked") and len(part) > 3
    indent = 4 if width == 80 else len("never-acked  42 s  ")
    assert all(line.startswith(" " * indent) and line[indent] != " " for line in part[1:]), part


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "-"), (0.0, "0"), (-0.04, "0"), (-0.06, "-0.1"), (1.5, "+1.5")]
)
def test_a_rate_that_rounds_to_nothing_is_zero(value: float | None, shown: str) -> None:
    assert rate(value) == shown


def test_what_clients_call_themselves_does_not_reach_the_terminal_as_it_is() -> None:
    assert "\x1b" not in drawn()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0.0, "-"), (0.0005, "0.5 ms"), (0.25, "250 ms"), (1.5, "1.5 s"), (42.0, "42 s"), (600.0, "10 m"), (7200.0, "2 h"),
     (864_000.0, "10 d")],
)  # fmt: skip
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


class _Daemon(BaseHTTPRequestHandler):
    seen: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append(dict(self.headers.items()))
        found = {
            "/findings": (200, b'{"at": 1, "findings": []}'),
            "/no": (403, b'{"error": "may not console"}'),
        }
        status, body = found.get(self.path, (200, b"<html>"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Daemon) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_credential_goes_into_the_header_of_its_kind(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Daemon.seen.clear()
    (tmp_path / "key").write_text("kp_secret\n")
    monkeypatch.setenv("KAFKA_PIXY_TOKEN", "a.b.c")
    AdminClient(address, Connection(token_file=str(tmp_path / "key"))).get("/findings")
    AdminClient(address).get("/findings")
    first, second = _Daemon.seen
    assert first["X-Api-Key"] == "kp_secret" and "Authorization" not in first
    assert second["Authorization"] == "Bearer a.b.c"


def test_what_cannot_be_asked_costs_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AdminError, match="403 may not console"):
        AdminClient(address).get("/no")
    with pytest.raises(AdminError, match="does not answer as an admin listener: the answer is not JSON"):
        AdminClient(address).get("/html")
    with pytest.raises(AdminError, match="the answer has no 'rows'"):
        AdminClient(address).get("/findings", has="rows")
    assert top.run(["--admin", "127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--adminAddr" in error


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            "--admin localhost",
            "--admin 'localhost': is neither HOST:PORT nor a URL, such as 127.0.0.1:19093 or https://kp.example.com:19093",
        ),
        ("--admin :1", "--admin ':1': is neither "),
        ("--admin h:99999", "--admin 'h:99999': is neither "),
        ("--admin ftp://h:1", "--admin 'ftp://h:1': is neither "),
        (
            "--admin http://h:1 --tls",
            "--admin http://h:1: has no TLS: write https://, or leave out --tls, --ca and --cert",
        ),
        ("--ca none", "--ca none: No such file or directory"),
        ("--cert none", "--cert needs --cert-key: give both"),
        ("--token-file none", "--token-file none: No such file or directory"),
    ],
)
@pytest.mark.parametrize("command", ["top --once", "trace orders/0/1"])
def test_an_address_or_a_file_that_cannot_be_used_is_one_line(command: str, args: str, said: str) -> None:
    done = run_in_process(lambda: main([*command.split(), *args.split()]))
    text = done.stderr.decode()
    assert (done.returncode, done.stdout, text.count("\n")) == (2, b"", 1), done
    assert text.startswith(f"kafka-pixy {command.split(maxsplit=1)[0]}: {said}"), text


@contextlib.contextmanager
def serving(context: ssl.SSLContext) -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Daemon) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_top_shows_a_certificate_to_a_daemon_that_asks_for_one(tmp_path: Path) -> None:
    ca = trustme.CA()
    theirs, mine = ca.issue_cert("127.0.0.1"), ca.issue_cert("me")
    ca.cert_pem.write_to_path(tmp_path / "ca")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    mine.private_key_pem.write_to_path(tmp_path / "key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    own = Connection(ca=f"{tmp_path}/ca", cert=f"{tmp_path}/cert", cert_key=f"{tmp_path}/key")
    with serving(context) as port:
        assert AdminClient(f"127.0.0.1:{port}", own).get("/findings")["at"] == 1
        for given, said in (
            (Connection(ca=own.ca), "give --cert and --cert-key"),
            (Connection(tls=True), "its certificate is not trusted: .*; name its CA with --ca"),
            (Connection(), "if it serves TLS, give --tls or --ca"),
        ):
            with pytest.raises(AdminError, match=said):
                AdminClient(f"127.0.0.1:{port}", given).get("/findings")


def test_a_listener_without_tls_is_named(address: str) -> None:
    with pytest.raises(AdminError, match="it serves no TLS; write http://"):
        AdminClient(address, Connection(tls=True)).get("/findings")


@pytest.mark.parametrize(
    ("configured", "certificate", "url"),
    [
        ("", "", ""),
        ("127.0.0.1:9", "", "http://127.0.0.1:9"),
        (":9", "c", "https://localhost:9"),
        ("[::]:9", "", "http://localhost:9"),
    ],
)
def test_the_address_is_that_of_the_configuration(configured: str, certificate: str, url: str) -> None:
    app = App(admin_addr=configured)
    app.tls.certificate_path = certificate
    assert address_of(app) == url


@pytest.mark.slow
async def test_the_demo_names_the_stuck_consumer(capsys: pytest.CaptureFixture[str]) -> None:
    task = asyncio.create_task(demo_console_round.run("127.0.0.1:0", 40.0))
    shown = ""
    while "Open http://" not in shown:
        await asyncio.sleep(0.05)
        assert not task.done()
        shown += capsys.readouterr().out
    client = AdminClient(shown.partition("Open ")[2].partition("/console")[0])
    found: list[Any] = []
    for _ in range(300):
        found = (await asyncio.to_thread(client.get, "/findings"))["findings"]
        found = [each for each in found if each["rule"] != "blocked-loop"]  # a busy machine
        if found:
            break
        await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert {each["rule"] for each in found} == {"never-acked"}
    assert {(each["where"]["group"], each["where"]["client"]) for each in found} == {("billing", "10.1.0.9")}


def test_ctrl_c_while_the_demo_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pixy.cli.demo_console_round":
            raise KeyboardInterrupt
        return imported(name, *args, **kwargs)

    imported = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert demo_console.main([]) == 130

"""Standard streams that are closed, full, no longer read, or not UTF-8; and a start error that is told once on a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pixy.cli import serve, start, streams
from pixy.cli.logs import ON_STDERR, configured
from pixy.cli.reloading import Reloader
from pixy.cli.shell.output import Output
from pixy.config import App, Proxy
from pixy.config.model import Logger
from pixy.escaping import json_text
from pixy.tap.printer import JsonPrinter
from tests.support import ROOT

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="!!! there is no /dev/full !!!")
WORDS = "Grüße, 世界"
MANY = "x" * 100_000
"""More than a buffer holds, so the first write fails, and nothing is kept for a later one."""


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Gives the program another standard output, as the interpreter would, and prepares it."""
    opened: list[Any] = []

    def prepare(path: Any, encoding: str = "utf-8") -> None:
        out = open(path, "w", encoding=encoding, errors="strict")  # noqa: SIM115
        opened.append(out)
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        monkeypatch.setattr(sys, "stdout", out)
        streams.prepare()
        opened.append(sys.stdout)

    yield prepare
    for each in opened[::-1]:
        with contextlib.suppress(OSError):  # what the full disk did not take
            each.close()


def broken_pipe() -> int:
    """The end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def said() -> str:
    assert isinstance(sys.stderr, io.StringIO)
    return sys.stderr.getvalue()


def printing(text: str) -> Callable[[], int]:
    def program() -> int:
        print(text)
        return 0

    return program


@needs_full
@pytest.mark.parametrize("text", ["a line", MANY])
def test_a_full_disk_is_one_line_and_exit_code_1(text: str, usable: Callable[[Any], None]) -> None:
    usable(FULL)
    assert streams.guarded(printing(text), ["config", "show"]) == 1
    assert said() == "kafka-pixy config: standard output: No space left on device\n"
    sys.stdout.flush()  # as at the interpreter's end: it would change the exit code to 120


@pytest.mark.parametrize("text", ["a line", MANY])
def test_a_reader_that_has_gone_is_no_line(text: str, usable: Callable[[Any], None]) -> None:
    usable(broken_pipe())
    assert streams.guarded(printing(text), ["rules"]) == streams.EXIT_BROKEN_PIPE and said() == ""
    sys.stdout.flush()


@needs_full
def test_a_help_text_that_cannot_be_written_is_a_failure(usable: Callable[[Any], None]) -> None:
    def program() -> int:
        print("usage")
        raise SystemExit(0)

    usable(FULL)
    assert streams.guarded(program, ["--help"]) == 1
    assert said() == "kafka-pixy: standard output: No space left on device\n"


@pytest.mark.parametrize("text", ["a line", MANY])
def test_results_for_a_closed_output_are_a_failure(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``consume -g`` acknowledged what nobody saw. A daemon does without its log."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for results, code, shown in (
        (True, 1, "kafka-pixy consume: standard output: Bad file descriptor\n"),
        (False, 0, ""),
    ):
        monkeypatch.setattr(sys, "stdout", None)  # as the interpreter has it
        streams.prepare(results=results)
        sys.stderr = io.StringIO()
        assert streams.guarded(printing(text), ["consume"]) == code and said() == shown
        sys.stdout.flush()  # as at the interpreter's end


def test_another_error_is_not_taken_for_one_of_output(usable: Callable[[Any], None], tmp_path: Path) -> None:
    def program() -> int:
        print("before")
        raise OSError(28, "No space left on device", "somewhere else")

    usable(tmp_path / "out")
    with pytest.raises(OSError, match="somewhere else"):
        streams.guarded(program, ["keys"])
    assert (tmp_path / "out").read_text() == "before\n" and said() == ""


def test_an_output_that_lacks_characters_gets_escapes_and_json_stays_json(
    usable: Callable[..., None], tmp_path: Path
) -> None:
    usable(tmp_path / "out", "ascii")
    print(WORDS)
    Output("json").document({"text": WORDS})
    Output("yaml").document({"text": WORDS})
    sys.stdout.flush()
    plain, line, _, document, *_ = (tmp_path / "out").read_bytes().splitlines()
    assert plain == rb"Gr\xfc\xdfe, \u4e16\u754c"
    assert json.loads(line) == {"text": WORDS}
    assert document == rb'text: "Gr\xFC\xDFe, \u4E16\u754C"'


def test_utf_8_gets_the_characters_themselves() -> None:
    assert json_text({"a": WORDS}, "utf-8") == json_text({"a": WORDS}) == f'{{"a": "{WORDS}"}}'
    assert json_text(WORDS, "latin-1").isascii()


def test_the_tap_prints_json_that_any_output_takes(usable: Callable[..., None], tmp_path: Path) -> None:
    broken: list[Exception] = []
    usable(tmp_path / "out", "latin-1")
    printer = JsonPrinter(broken.append)
    printer._print({"client": WORDS})
    assert json.loads((tmp_path / "out").read_bytes()) == {"client": WORDS} and not broken


@needs_full
def test_the_tap_says_once_why_it_cannot_print(usable: Callable[[Any], None]) -> None:
    broken: list[Exception] = []
    usable(FULL)
    printer = JsonPrinter(broken.append)
    for _ in range(3):
        printer._print({"event": "x"})
    assert [str(each) for each in broken] == ["[Errno 28] No space left on device"]


@needs_full
def test_a_log_that_cannot_be_written_is_one_line_at_the_end(usable: Callable[[Any], None]) -> None:
    usable(FULL)
    with configured([Logger()]):
        for at in range(50):
            logging.getLogger("pixy").info("record %d", at)
    assert said() == (
        "kafka-pixy: standard output: No space left on device; 50 log records were not written\n"
    )
    assert streams.guarded(lambda: 0, ["serve"]) == 0, "a clean drain stays one"


class Started:
    """An engine that has started."""

    def __init__(self, _app: App) -> None:
        self.addresses: dict[str, str] = {}

    async def start(self, _listeners: Any) -> None:
        pass


async def test_a_sandbox_whose_words_nobody_reads_serves(
    usable: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def served(_daemon: Any, _engine: Any) -> int:
        return 0

    monkeypatch.setattr(serve, "Engine", Started)
    monkeypatch.setattr(serve, "listeners", lambda *_: [])
    monkeypatch.setattr(serve.Daemon, "_serve", served)
    usable(broken_pipe())
    app = App(proxies={"default": Proxy()})
    daemon = serve.Daemon(app, lambda _code: None, Reloader(app, lambda: app, ""), announce=True)
    assert await daemon.run() == 0


class Terminal:
    """A terminal to write to; after the block, what it showed.

    The kernel hands written text over in its own time: only after the writer has closed is all of it there.
    """

    def __enter__(self) -> Terminal:
        self._controller, terminal = pty.openpty()
        self.stream = open(terminal, "w", encoding="utf-8")
        self.shown = ""
        return self

    def __exit__(self, *_raised: object) -> None:
        self.stream.close()
        shown = b""
        while True:
            try:
                read = os.read(self._controller, 65536)
            except OSError:  # EIO: closed at the other end, and all read
                break
            shown += read
        os.close(self._controller)
        self.shown = shown.decode()


def shown_on(stdout: Any, stderr: Any, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)
    for name in ("tune_process", "allow_open_files"):
        monkeypatch.setattr(serve, name, lambda: -1)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _seconds: None)
    return start.run(["--kafkaPeers=127.0.0.1:1", "--pidFile=/none/pid", *more])


def test_a_start_error_is_told_once_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """And in the log as well where standard output is not the same terminal, or is for programs."""
    text = "pidFile /none/pid: the directory /none does not exist"
    with Terminal() as terminal:
        assert shown_on(terminal.stream, terminal.stream, monkeypatch) == 1
    shown = terminal.shown
    assert shown.count(text) == 1 and shown.startswith("Failed to initialize: err=("), shown
    with Terminal() as terminal:
        both = terminal.stream
        assert shown_on(both, both, monkeypatch, '--logging=[{"name": "json"}]') == 1
    log, said_last = terminal.shown.splitlines()
    assert json.loads(log)["message"].startswith("failed to start: ")
    assert said_last.startswith("Failed to ini")
    out, err = io.StringIO(), io.StringIO()
    assert shown_on(out, err, monkeypatch) == 1
    assert text in out.getvalue() and text in err.getvalue()


def test_records_of_other_kinds_stay_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with Terminal() as terminal:
        monkeypatch.setattr(sys, "stdout", terminal.stream)
        monkeypatch.setattr(sys, "stderr", terminal.stream)
        with configured([Logger()]):
            logging.getLogger("pixy").error("told twice", extra={ON_STDERR: True})
            logging.getLogger("pixy").error("told here")
    assert "told here" in terminal.shown and "told twice" not in terminal.shown


@pytest.mark.slow
def test_the_program_itself_with_streams_closed_and_full() -> None:
    """One interpreter for each: here the streams are those of the system."""
    program = f"{sys.executable} -m pixy.cli.main"
    line = " ; ".join(
        f"{program} {command}; echo $? >&3"
        for command in (
            "version >&- 2>&- <&-",
            *(["config init - > /dev/full"] if FULL.exists() else []),
            "--help >&-",
            "produce foo <&-",
            "wire batch <&-",
        )
    )
    done = subprocess.run(
        ["bash", "-c", f"exec 3>&1; {line}"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    wanted = ["1", "1"] if FULL.exists() else ["1"]
    assert done.stdout.split() == [*wanted, "1", "1", "1"], done.stderr
    assert done.stderr == (
        "kafka-pixy config: standard output: No space left on device\n"
        * FULL.exists()
        + "kafka-pixy: standard output: Bad file descriptor\n"
        "kafka-pixy produce: standard input: Bad file descriptor; stopped: 0 messages written to foo; go on with --skip 0\n"
        "kafka-pixy wire batch: standard input: Bad file descriptor\n"
    )

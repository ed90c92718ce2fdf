"""Run the programs in the runtime's manual, and the examples of actors.

In docs/actors.md and docs/migrating-from-pykka.md each block fenced as ``python`` is a complete
program; a ``text`` block right after it is the program's output. A block fenced as ``py`` is a fragment and is not run.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

import actors
from actors import Actor, ActorSystem, Backoff, Intensity, ProcessActor, _threaded
from actors._core import accounting, mailbox, turns, waiting
from actors.testing import SimLoop
from tests.in_process import run_file, run_source
from tests.unit.actors.virtual_time import START_NS

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    "docs/actors.md",
    "docs/migrating-from-pykka.md",
    "README.md",
    "docs/wire.md",
    "docs/actors-beyond.md",
    "docs/actors-with-kafka.md",
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


def programs(page: str) -> list[tuple[str, str, str | None]]:
    """(where, program, expected output or None) of each program of a page."""
    text = (ROOT / page).read_text()
    found = []
    for fence in _FENCE.finditer(text):
        if fence[1] != "python" or (page == "README.md" and "from actors" not in fence[2]):
            continue
        output = _FENCE.match(text, fence.end() + len("\n\n"))
        expected = output[2] if output is not None and output[1] == "text" else None
        heading = [each[1] for each in _HEADING.finditer(text, 0, fence.start())][-1]
        found.append((f"{Path(page).stem}: {heading}", fence[2], expected))
    return found


PROGRAMS = [program for page in PAGES for program in programs(page)]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_in_virtual_time(main: Coroutine[Any, Any, Any]) -> Any:
    """Stands for ``asyncio.run``: a sleep ends when nobody else has anything to do, however slow the machine is."""
    defaults = ActorSystem.__init__.__kwdefaults__
    assert defaults is not None
    with asyncio.Runner(loop_factory=SimLoop) as runner, pytest.MonkeyPatch.context() as patched:
        loop = runner.get_loop()
        assert isinstance(loop, SimLoop)
        patched.setitem(defaults, "clock", lambda: START_NS + loop.clock())
        return runner.run(main)


def test_the_pages_have_programs() -> None:
    counts = [len(programs(page)) for page in PAGES]
    assert counts[0] >= 24 and counts[1] >= 9 and counts[2] == 1, counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "expected"),
    [each[1:] for each in PROGRAMS],
    ids=[each[0] for each in PROGRAMS],
)
def test_a_program_of_the_manual(
    program: str, expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if "ProcessActor" in program:  # its workers import the program from a file
        (tmp_path / "program.py").write_text(program)
        process = run(str(tmp_path / "program.py"))
        assert (process.returncode, process.stdout, process.stderr) == (0, expected, "")
        return
    monkeypatch.setattr(_threaded, "_numbers", itertools.count())  # threads are numbered in each process
    if "asyncio.sleep(" in program and "hread" not in program:
        monkeypatch.setattr(asyncio, "run", run_in_virtual_time)
    done = run_source(program)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    if expected is not None:
        assert done.stdout.decode() == expected


@pytest.mark.parametrize("page", PAGES)
def test_the_first_program_of_a_page_as_a_process(page: str) -> None:
    _, program, expected = programs(page)[0]
    done = run("-c", program)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    if expected is not None:
        assert done.stdout == expected


def test_the_manual_names_what_exists() -> None:
    """Links within the manual lead somewhere, and the table of bounds has the real defaults."""
    text = (ROOT / "docs/actors.md").read_text()
    headings = {re.sub(r"[^\w -]", "", each[1]).lower().replace(" ", "-") for each in _HEADING.finditer(text)}
    assert {each[1] for each in re.finditer(r"\]\(#([\w-]+)\)", text)} <= headings

    system = inspect.signature(ActorSystem).parameters
    assert system["mailbox_capacity"].default == waiting.MAX_WAITING == Actor.max_tasks == 10_000
    assert (Actor.stash_capacity, mailbox.PRIORITY_FACTOR, turns.THROUGHPUT, accounting.RECENT) == (
        1000,
        16,
        64,
        20,
    )
    assert [system[name].default for name in ("stop_grace", "stop_timeout", "slow_handler")] == [
        5.0,
        60.0,
        0.1,
    ]
    assert system["turn_time"].default == 0.001 and Actor.turn_time is None
    assert (ProcessActor.memory_limit, ProcessActor.max_message) == (None, 256 << 20)
    assert (ProcessActor.start_timeout, ProcessActor.stop_timeout) == (60.0, 5.0)
    assert Backoff() == Backoff(0.05, 2.0, 10.0, 0.2, 60.0) and Intensity() == Intensity(5, 30.0)


def test_the_api_page_lists_what_public_classes_inherit_from_private_ones() -> None:
    """mkdocstrings leaves inherited methods out otherwise, and the private class has no section of its own."""
    page = (ROOT / "docs/api/actors.md").read_text()
    whole = set(
        re.findall(r"^::: actors\.(\w+)\n    options:\n      inherited_members: true$", page, re.MULTILINE)
    )
    public = {value for name in actors.__all__ if isinstance(value := getattr(actors, name), type)}
    halves = {
        each.__name__
        for each in public
        if any(
            base.__module__.startswith("actors.")
            and base not in public
            and not issubclass(base, BaseException)
            for base in each.__bases__
        )
    }
    assert {"Actor", "ActorRef", "ActorSystem", "Future"} <= halves == whole
    (rest,) = re.findall(r"^::: actors\n    options:\n      filters: .*\^\(([\w|]+)\)\$", page, re.MULTILINE)
    assert set(rest.split("|")) == whole, "no class is listed twice"


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("actors_*.py")))
def test_an_example_of_actors(example: str) -> None:
    done = run_file(
        ROOT / "examples" / example,
        *(["--self-test"] if example in {"actors_aiohttp.py", "actors_console.py"} else []),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == b"Good news everyone!", done.stdout


def test_the_player_works_on_threads_and_survives_a_crash() -> None:
    done = run_file(ROOT / "examples" / "actors_player.py")
    lines = done.stdout.decode().splitlines()
    assert "found ['local:1', 'local:2', 'stream:1']" in lines
    assert "found ['local:2'] after a crash" in lines and "playing local:1 at 80 and local:1" in lines
    assert lines[-2:] == ["left: []", "Good news everyone!"]


async def test_the_aiohttp_service_answers_503_for_an_actor_that_is_gone() -> None:
    spec = importlib.util.spec_from_file_location("actors_aiohttp", ROOT / "examples/actors_aiohttp.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    async with ActorSystem() as system:
        app = web.Application()
        app[example.ROOT] = ref = system.spawn(example.Squarer)
        await ref.stop(block=False)
        request = make_mocked_request("GET", "/square/3", app=app, match_info={"number": "3"})
        assert (await example.square(request)).status == 503


def test_the_aiohttp_service_stops_on_a_signal() -> None:
    service = subprocess.Popen(
        [sys.executable, str(ROOT / "examples/actors_aiohttp.py"), "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        url = service.stdout.readline().split()[-1]
        answer = urllib.request.urlopen(f"{url}/square/12", timeout=10)
        assert json.load(answer) == {"square": 144}
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{url}/square/x", timeout=10)
        service.send_signal(signal.SIGTERM)
        rest, _ = service.communicate(timeout=60)
        assert service.returncode == 0 and "stopped: clean" in rest
    finally:
        service.kill()
        service.wait()


@pytest.mark.parametrize("example", ["grpc_sync.py", "grpc_asyncio.py"])
def test_an_example_without_a_daemon_says_so_in_a_line(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC", "localhost:1")
    done = run_file(ROOT / "examples" / example)
    assert done.returncode == 1 and done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("UNAVAILABLE: "), done.stderr
    assert lines[0].endswith("(start a daemon first: make run)")


@pytest.mark.parametrize("example", ["grpc_sync", "grpc_asyncio", "worker"])
def test_ctrl_c_ends_an_example_quietly(example: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
        silent.settimeout(60)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        waiting = subprocess.Popen(
            [sys.executable, str(ROOT / f"examples/{example}.py")],
            env={**os.environ, "PYTHONPATH": str(ROOT), "GRPC": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A shell's background job, which the tests may run in, ignores it, and so would the example.
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        try:
            connection, _ = silent.accept()
            with connection:
                waiting.send_signal(signal.SIGINT)
                printed, _ = waiting.communicate(timeout=60)
        finally:
            waiting.kill()
            waiting.wait()
    assert (waiting.returncode, printed) == (130, b"")


def test_ctrl_c_ends_the_embedded_engine_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixy.engine.engine.Engine.__aenter__", mock.AsyncMock(side_effect=KeyboardInterrupt))
    done = run_file(ROOT / "examples/embedded.py")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_the_embedded_engine_without_a_broker_says_so_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", "localhost:1")
    done = run_file(ROOT / "examples/embedded.py")
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1 and len(lines) == 1, done.stderr
    assert "[localhost:1: connection refused]" in lines[0]


@pytest.mark.parametrize("example", ["actors_aiohttp.py", "actors_console.py"])
def test_a_service_whose_port_is_wrong_or_in_use_says_so_in_a_line(example: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run_file(ROOT / "examples" / example, "--port", str(port))
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1 and not done.stdout and len(lines) == 1, done.stderr
    assert lines[0].startswith(f"{example}: port {port}: ") and "address already in use" in lines[0]

    done = run_file(ROOT / "examples" / example, "--port", "70000")
    assert done.returncode == 2 and done.stderr.endswith(b"70000 is not a port: 0 to 65535\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["wire_fetch_partition.py", "localhost:70000", "foo", "0"], "not an address: 'localhost:70000'"),
        (["wire_joingroup.py", "/nodir/x"], "/nodir/x: No such file or directory"),
        (["wire_compressed_batch.py", "--output", "/nodir/x"], "/nodir/x: No such file or directory"),
    ],
    ids=["address", "capture", "output"],
)
def test_an_example_of_wire_names_the_wrong_argument_in_a_line(arguments: list[str], says: str) -> None:
    done = run_file(ROOT / "examples" / arguments[0], *arguments[1:])
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1 and len(lines) == 1 and says in lines[0], done.stderr


@pytest.mark.parametrize(
    ("example", "library", "extra"),
    [
        ("pipeline_datasource.py", "pyspark.sql", "pipeline"),
        ("pipeline_query_pyarrow.py", "pyarrow.compute", "lake"),
        ("pipeline_query_spark.py", "pyspark.sql", "pipeline"),
    ],
)
def test_an_example_of_the_pipeline_names_the_extra_that_is_missing(
    example: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    done = run_file(ROOT / "examples" / example, "lake", "topic")
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1 and len(lines) == 1, done.stderr
    assert lines[0].startswith(f"this example needs the extra {extra}: pip install '.[{extra}]'")


def test_the_examples_for_a_shell_can_be_executed() -> None:
    scripts = list((ROOT / "examples").rglob("*.sh"))
    assert scripts and all(os.access(each, os.X_OK) for each in scripts)

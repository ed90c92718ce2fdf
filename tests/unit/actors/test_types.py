"""What mypy and pyright understand: a right program has no error, a wrong one has an error in each wrong line.

What people paste is right: mypy checks each program of the pages about actors, too, in the same run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RIGHT = ROOT / "examples" / "actors_typed.py"
PAGES = sorted([*(ROOT / "docs").glob("actors*.md"), ROOT / "docs" / "migrating-from-pykka.md"])

_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

WRONG = """
import asyncio

from actors import Actor, ActorRef, ActorSystem, Broadcast, Future, Router
from actors.patterns import CircuitBreaker, ask_with_retry
from actors.remote import RemoteRef, Transport
from actors_typed import Account, Bank, GetBalance, Meter, Shouter


class Loud(Shouter):
    pass


def greet(ref: ActorRef[Shouter]) -> Future[str]:
    return ref.ask("hello", block=False)


def stop(refs: list[ActorRef]) -> None:
    for ref in refs:
        ref.tell(1)
        ref.stop(block=False)


async def covariance(system: ActorSystem) -> None:
    loud, meter = system.spawn(Loud, "!"), system.spawn(Meter)
    shouters: list[ActorRef[Shouter]] = [loud, system.spawn(Shouter, "!")]
    anyone: list[ActorRef[Actor]] = [loud, meter]
    stop([loud, meter, *shouters, *anyone])
    print(await greet(loud))
    greet(meter)  # wrong: no Shouter
    louder: ActorRef[Loud] = shouters[0]  # wrong: perhaps another Shouter
    shouters[0].tell(1)  # wrong: takes a str
    print(louder)


async def main(system: ActorSystem, bank: Bank) -> None:
    system.spawn(Shouter)  # wrong: no mark
    system.spawn(Shouter, 1)  # wrong: not a str
    system.spawn(Shouter, "!", time=1)  # wrong: no such argument
    bank.spawn(Shouter)  # wrong: no mark
    shouter = system.spawn(Shouter, "!")
    shouter.tell(1)  # wrong: takes a str
    shouter.notify(1)  # wrong
    await shouter.send(1)  # wrong
    shouter.ask(1, block=False)  # wrong
    a: int = await shouter.ask("x", block=False)  # wrong: answers a str
    meter = system.spawn(Meter, name="meter")
    meter.tell(1.0)  # wrong: takes text
    b: str = await meter.ask("x", block=False)  # wrong: answers an int
    c: str = meter.ask("x")  # wrong: answers an int
    account = system.spawn(Account)
    balance = await account.ask(GetBalance(), block=False)  # (with "d: str" here, mypy would take Any)
    d: str = balance  # wrong: answers an int
    account.call(Account.interest)  # wrong: no percent
    account.call(Account.interest, "2")  # wrong: not a float
    account.call(Account.interest, 2.0, years="2")  # wrong: not an int
    e: str = await account.call(Account.interest, 2.0)  # wrong: answers a float
    account.call(Meter.on_receive, "x")  # wrong: the method of another class
    f: list[str] = await asyncio.gather(meter.ask("x", block=False))  # wrong: ints
    async with asyncio.TaskGroup() as group:
        g: asyncio.Task[str] = group.create_task(meter.ask("x", block=False).as_coroutine())  # wrong: an int
    h: str = await account.stop(block=False)  # wrong: a bool
    account.stop().bit_count().upper()  # wrong: a bool, not a future or Any
    print(a, b, c, d, e, f, g, h)


async def routed(system: ActorSystem, bank: Bank, account: ActorRef[Account]) -> None:
    shouters = system.spawn_pool(Shouter, "!")
    shouters.tell(1)  # wrong: takes a str
    shouters.notify(1)  # wrong
    shouters.broadcast(1)  # wrong
    await shouters.send(1)  # wrong
    shout = await shouters.ask("x", block=False)
    a: int = shout  # wrong: answers a str
    everyone = bank.spawn_pool(Shouter, "!", routing=Broadcast())
    everyone.tell(1)  # wrong: takes a str
    shouts = await everyone.ask("x", block=False)
    b: str = shouts  # wrong: a list
    balances = await Router.of([account], Broadcast()).ask(GetBalance(), block=False)
    c: int = balances  # wrong: a list
    breaker = CircuitBreaker()
    guarded = await breaker.ask(account, GetBalance())
    d: str = guarded  # wrong: an int
    await breaker.ask(shouters.refs[0], 1)  # wrong: takes a str
    repeated = await ask_with_retry(account, GetBalance())
    e: str = repeated  # wrong: an int
    await ask_with_retry(shouters.refs[0], 1)  # wrong: takes a str
    elsewhere = await RemoteRef(transport(), "a").ask(GetBalance(), block=False)
    f: str = elsewhere  # wrong: an int
    anyone: list[Router[Actor]] = [shouters, everyone]
    only: Router[Shouter] = anyone[0]  # wrong: perhaps others
    g: str = await everyone.stop(block=False)  # wrong: a bool
    shouters.stop().bit_count().upper()  # wrong: a bool, not a future or Any
    print(a, b, c, d, e, f, g, only)


def transport() -> Transport: ...  # type: ignore[empty-body]
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "wrong.py"
    path.write_text(WRONG)
    return path


@pytest.fixture(scope="module")
def pasted(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The programs of the pages, a file each; its lines have the numbers that they have on the page."""
    folder, files = tmp_path_factory.mktemp("pasted"), []
    for page in PAGES:
        text = page.read_text()
        for program in _PROGRAM.finditer(text):
            line = text.count("\n", 0, program.start(1))
            files.append(folder / f"{page.stem.replace('-', '_')}_{line + 1}.py")
            files[-1].write_text("\n" * line + program[1])
    return files


def expected() -> set[int]:
    return {number for number, line in enumerate(WRONG.splitlines(), 1) if "# wrong" in line}


@pytest.mark.slow
@pytest.mark.timeout(600)  # ten seconds of a processor, on a machine that may be busy
def test_mypy_strict(wrong: Path, pasted: list[Path], tmp_path: Path) -> None:
    assert len(pasted) >= 45, "programs of the pages about actors"
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, str(RIGHT), str(wrong), *map(str, pasted)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": f"{ROOT}{os.pathsep}{RIGHT.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = re.findall(r"^(.*?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    elsewhere = [error for error in errors if error[0] != str(wrong)]
    assert not elsewhere, done.stdout + done.stderr  # actors_213.py:220 is line 220 of docs/actors.md
    assert {int(line) for _, line, _ in errors} == expected(), done.stdout + done.stderr


def pyright(folder: Path, mode: str, *names: str) -> list[tuple[Path, int, str]]:
    """Check files of a folder, as pyright ignores others; return the errors with file and line."""
    found = shutil.which(
        "pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    if found is None or shutil.which("node") is None:
        missing = "pyright (pip install pyright)" if found is None else "node"
        pytest.skip(f"pyright was NOT run: this machine has no {missing}; mypy has checked the same programs")
    project = folder / "pyrightconfig.json"
    project.write_text(
        json.dumps({"typeCheckingMode": mode, "extraPaths": [str(ROOT)], "include": list(names)})
    )
    done = subprocess.run(
        [found, "--outputjson", "--pythonpath", sys.executable, "-p", str(project)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        report = json.loads(done.stdout)
        diagnostics, checked = report["generalDiagnostics"], report["summary"]["filesAnalyzed"]
    except (ValueError, KeyError):
        pytest.skip(f"pyright was NOT run: it does not start here: {(done.stdout + done.stderr)[-500:]}")
    assert checked >= len(names), done.stdout
    return [
        (Path(each["file"]), each["range"]["start"]["line"] + 1, each["message"])
        for each in diagnostics
        if each["severity"] == "error"
    ]


@pytest.mark.slow
def test_pyright(wrong: Path) -> None:
    right = Path(shutil.copy(RIGHT, wrong.parent))
    errors = pyright(wrong.parent, "strict", right.name, wrong.name)
    elsewhere = [error for error in errors if error[0] != wrong]
    assert not elsewhere, elsewhere
    assert {line for _, line, _ in errors} == expected(), [
        error for error in errors if error[1] not in expected()
    ]


@pytest.mark.slow
def test_pyright_in_an_editor_s_mode_finds_nothing_in_the_pages(pasted: list[Path]) -> None:
    errors = pyright(pasted[0].parent, "standard", *(path.name for path in pasted))
    assert not errors, errors  # actors_213.py:220 is line 220 of docs/actors.md

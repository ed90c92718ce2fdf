"""Run the plugin in a separate pytest, whose conftest also runs unmarked coroutine tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import asyncio, inspect, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True

@pytest.fixture
def system():
    return "somebody else's"
"""

TESTS = """
import asyncio, pytest
from actors import Actor
ran = []

class Echo(Actor):
    def on_receive(self, message):
        return message

@pytest.mark.simulate(seeds=7, mode="pct")
async def test_marked(system, tmp_path):
    assert tmp_path.exists() and asyncio.get_running_loop().time() < 1
    assert await system.spawn(Echo).ask(1, block=False) == 1
    await asyncio.sleep(3600)
    ran.append(1)

@pytest.mark.simulate
@pytest.mark.parametrize("number", [1, 2])
async def test_whole(sim, number):
    ran.append(sim.seed)
    assert sim.seed != 3 or number == 1

def test_count():
    print("RAN", ran)

async def test_unmarked(system):
    assert system == "somebody else's"

def test_fixture(sim):
    assert sim.run(sim.system.spawn(Echo).ask(2, block=False)) == 2
    print("SEED", sim.seed)
"""


def run(where: Path, *arguments: str) -> str:
    (where / "conftest.py").write_text(CONFTEST)
    (where / "test_it.py").write_text(TESTS)
    (where / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[4])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "actors.testing.plugin",
            "-p",
            "no:cacheprovider",
            "-s",
            *arguments,
        ],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_marked_tests_are_simulated_and_others_left_alone(tmp_path: Path) -> None:
    text = run(tmp_path)
    assert "5 passed" in text and "1 failed" in text, text
    assert "RAN [1, 1, 1, 1, 1, 1, 1, 0, 1, 2," in text and "SEED 0" in text
    assert "replay: pytest 'test_it.py::test_whole[2]' --actors-seed 3" in text
    assert "failing seed: 3 (mode actors)" in text


@pytest.mark.slow
def test_the_options_choose_one_seed_or_many(tmp_path: Path) -> None:
    text = run(tmp_path, "--actors-seed", "9")
    assert "6 passed" in text and "RAN [1, 9, 9]" in text and "SEED 9" in text, text
    text = run(tmp_path, "--actors-seeds", "2")
    assert "6 passed" in text and "RAN [1, 1, 0, 1, 0, 1]" in text, text

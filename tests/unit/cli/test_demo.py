"""Ctrl-C during ``make demo``: exit code 130, and nothing on standard error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

PROGRAM = """
import asyncio, os, signal, sys

from pixy.cli import demo, demo_round

place, times = sys.argv[1], int(sys.argv[2])


def interrupt():
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)


class Engine(demo_round.Engine):
    async def start(self, listeners):
        if place == "start":
            asyncio.get_running_loop().call_soon(interrupt)
        await super().start(listeners)

    async def stop(self):
        if place == "stop":
            asyncio.get_running_loop().call_soon(interrupt)
        result = await super().stop()
        print("stopped", result.clean)
        return result


async def rest(base):
    if place == "round":
        interrupt()
        await asyncio.Event().wait()


async def grpc(address):
    pass


demo_round.Engine, demo_round._rest, demo_round._grpc = Engine, rest, grpc
sys.exit(demo.main())
"""


def interrupted(place: str, times: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, place, str(times)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("place", ["start", "round", "stop"])
def test_it_stops_whole_and_says_nothing(place: str) -> None:
    """While its engine stopped, the stop was cancelled, and Python reported the tasks that were left."""
    done = interrupted(place, 1)
    assert (done.returncode, done.stderr) == (130, "")
    assert ("stopped True" in done.stdout) is (place != "start")
    assert "Done" not in done.stdout


def test_a_second_one_does_not_wait_for_the_stop() -> None:
    done = interrupted("stop", 2)
    assert (done.returncode, done.stderr) == (130, "") and "stopped" not in done.stdout

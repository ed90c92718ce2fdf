"""The short form of ``make chaos``, and proof that it finds defects of the daemon itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.kit.links import Link
from tests.chaos.kit.plan import ACK_TIMEOUT
from tests.kafka.cluster import Unavailable, libs
from tests.support import ROOT


def run_kit(folder: Path, *args: str) -> tuple[int, str]:
    """Run the kit in a process of its own; return its exit code and its output."""
    try:
        libs(4)
    except Unavailable as error:
        pytest.skip(f"!!! NOT TESTED on real Kafka: {error} !!!")
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.kit", "--records", str(folder), *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.timeout(480)
def test_two_minutes_of_faults(tmp_path: Path) -> None:
    """No message is lost, no partition falls silent, each duplicate has its reason.

    Three other processes of tests share the processors with it: on a slow machine daemons of a good run were silent for 17 s.
    """
    code, output = run_kit(tmp_path, "--minutes", "2", "--seed", "1", "--rate", "80", "--silence", "60")
    assert code == 0, output
    assert "lost 0, stalls 0" in output


@pytest.mark.timeout(300)
def test_defects_of_the_daemons_are_found(tmp_path: Path) -> None:
    """Each of the three daemons has another defect, the third has two.

    So many deliveries meet each of them several times. The groups get longer than an ack timeout to catch up, so
    that only a silent partition stays behind.
    """
    plants = "loss,early-commit,reorder+stall"
    bounds = ("--minutes", "0.5", "--messages", "3500", "--drain", f"{ACK_TIMEOUT + 2:g}")
    code, output = run_kit(tmp_path, *bounds, "--rate", "300", "--plant", plants)
    assert code == 1, output
    for rule in ("loss", "commits", "order", "progress"):
        assert f"== {rule}: " in output, output


async def test_a_link_forwards_cuts_holds_and_slows() -> None:
    """A link between a client and an echo server."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def talk(link: Link, size: int, times: int = 3) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        for number in range(times):
            data = bytes([number % 256]) * size
            writer.write(data)
            assert await reader.readexactly(size) == data
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    link = Link("test")
    await link.listen()
    link.target = server.sockets[0].getsockname()[1]
    broken = (ConnectionError, asyncio.IncompleteReadError)
    try:
        await asyncio.gather(*(talk(link, 10 + 200_000 * number) for number in range(4)))
        link.hold()
        held = asyncio.ensure_future(talk(link, 300_000))
        await asyncio.wait((held,), timeout=0.2)
        assert not held.done()
        link.heal()
        await held
        link.slow(0.05, 1e6)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await talk(link, 100)
        assert loop.time() - began >= 0.3, "six times a latency of 50 ms"
        link.heal()
        endless = asyncio.ensure_future(talk(link, 100, times=10**9))
        await asyncio.wait((endless,), timeout=0.1)
        link.cut()
        with pytest.raises(broken):
            await endless
        with pytest.raises(broken):
            await talk(link, 10)
        link.heal()
        await talk(link, 10)
    finally:
        await link.close()
        server.close()

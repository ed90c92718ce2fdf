"""The event loop in virtual time."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from typing import Any

import pytest

from actors.testing.loop import Livelock, SimLoop


def test_timers_fire_after_years_of_virtual_time() -> None:
    async def main() -> float:
        await asyncio.sleep(30 * 365 * 86400)
        for _ in range(100):
            await asyncio.sleep(0.001)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(main()) == pytest.approx(30 * 365 * 86400 + 0.1, abs=0.01)


async def _reply(delay: float, patience: float) -> bytes:
    """Read from a peer that takes ``delay`` real seconds, with a timeout of ``patience``."""
    ours, theirs = socket.socketpair()

    def answer() -> None:
        time.sleep(delay)  # the peer's own slowness: no assertion waits for it
        theirs.sendall(b"late")

    reader, writer = await asyncio.open_connection(sock=ours)
    thread = threading.Thread(target=answer)
    thread.start()
    try:
        async with asyncio.timeout(patience):
            return await reader.readexactly(4)
    finally:
        writer.close()
        thread.join()
        theirs.close()


def test_no_timeout_fires_while_a_peer_may_still_answer_in_time() -> None:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(_reply(0.1, 30.0)) == b"late"


def test_a_timeout_fires_for_a_peer_that_does_not_answer() -> None:
    async def main() -> float:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.readexactly(4)
        writer.close()
        theirs.close()
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(main()) == pytest.approx(0.05, abs=0.001)


def test_silence_for_ever_ends_at_the_bound_of_real_time() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            await reader.readexactly(4)
        finally:
            writer.close()
            theirs.close()

    loop = SimLoop(wall=0.05)
    task = loop.create_task(main())
    with pytest.raises(Livelock, match="waited for IO"):
        loop.run_until_complete(task)
    task.cancel()
    loop.virtual.more(100)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_a_server_that_waits_for_connections_does_not_hold_time_up() -> None:
    async def main() -> float:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        await asyncio.sleep(3600)
        server.close()
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(main()) == pytest.approx(3600)


@pytest.mark.parametrize("pipes", [{}, {"stdout": asyncio.subprocess.PIPE}])
def test_no_timeout_fires_while_a_child_process_runs(pipes: Any) -> None:
    """Also if its pipes are closed: Python 3.11 hears of the end in a thread."""

    async def main() -> int | None:
        async with asyncio.timeout(30.0):
            child = await asyncio.create_subprocess_exec("sh", "-c", "exec >&-; sleep 0.1; exit 3", **pipes)
            await child.communicate()
            return child.returncode

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(main()) == 3


def test_a_child_process_that_has_ended_does_not_hold_time_up() -> None:
    async def main() -> float:
        child = await asyncio.create_subprocess_shell("exit 3")
        assert await child.wait() == 3
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - begun

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(main()) == pytest.approx(3600)


@pytest.mark.parametrize("seed", range(20))
def test_the_shuffled_loop_keeps_the_callbacks_of_connections_and_pipes_in_order(seed: int) -> None:
    wrong: list[dict[str, Any]] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(2))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hi")
        assert await reader.read() == b"hi"
        writer.close()
        await writer.wait_closed()
        server.close()
        child = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
        assert (await child.communicate())[0] == b"hi\n"

    with asyncio.Runner(loop_factory=lambda: SimLoop(shuffle=random.Random(seed))) as runner:
        runner.run(main())
    assert wrong == []

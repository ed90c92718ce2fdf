"""``python -m tests.fuzz.edge --part floods``: what floods of one address do to the latency of ``/_ping`` from another.

Each flood is a process of its own, and alternates with the same measure without it. Figures only: nothing is judged but
that each ping is answered, because on a machine with few cores the flood takes processor time of the daemon's.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tests.fuzz.daemons import WAIT, Attacked, Finding, attacked

_FROM: Final = "127.0.0.2"
"""The address that pings come from; floods come from 127.0.0.1."""
_PINGS = 300
_EVERY = 0.01
_ROUNDS = 3
_SETTLE = 1.0
_PING = b"GET /_ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_BOMB = gzip.compress(b'{"records":[' + b"{}," * 1_000_000 + b"{}]}", 9)

_ARRAYS = b'{"records":[{"value":[' + b"[]," * 5_000_000 + b"[]]}]}"
"""15 MB that are parsed in one piece."""

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Flood:
    """One that goes on.

    Args:
        address: of the daemon.
    """

    def __init__(self, address: str) -> None:
        self._host, port = address.rsplit(":", 1)
        self._port = int(port)
        self.done = 0
        """Connections or requests so far."""

    async def _open(self) -> Opened:
        return await asyncio.open_connection(self._host, self._port, local_addr=("127.0.0.1", 0))

    async def _slow_header(self) -> None:
        _, writer = await self._open()
        self.done += 1
        writer.write(b"GET /_ping HTTP/1.1\r\nHost: localhost\r\n")
        while True:
            writer.write(b"X-Slow: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.1)

    async def _bombs(self) -> None:
        head = (
            "POST /topics/flood HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/vnd.kafka.json.v2+json\r\n"
            f"Content-Encoding: gzip\r\nContent-Length: {len(_BOMB)}\r\n\r\n"
        )
        await self._ask_again(head.encode() + _BOMB)

    async def _arrays(self) -> None:
        head = (
            "POST /topics/flood HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/vnd.kafka.json.v2+json\r\n"
            f"Content-Length: {len(_ARRAYS)}\r\n\r\n"
        )
        await self._ask_again(head.encode() + _ARRAYS)

    async def _strangers(self) -> None:
        await self._ask_again(
            b"GET /topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer kp_no-such-key\r\n\r\n"
        )

    async def _ask_again(self, request: bytes) -> None:
        reader, writer = await self._open()
        with contextlib.closing(writer):
            while True:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                at = head.lower().index(b"content-length:") + 15
                await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
                self.done += 1

    async def _idle(self) -> None:
        reader, _ = await self._open()
        self.done += 1
        await reader.read()

    async def run(self, kind: str) -> None:
        """Flood until cancelled, with as many connections as the kind has."""
        _, count, _ = FLOODS[kind]
        once: Callable[[], Awaitable[None]] = getattr(self, f"_{kind}")

        async def again() -> None:
            while True:
                # The daemon ends what lasts too long, or is too large.
                with contextlib.suppress(OSError, EOFError):
                    await once()

        await asyncio.gather(*(again() for _ in range(count)), self._tell())

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            print(self.done, flush=True)


FLOODS: Final = {
    "slow_header": ("1,000 headers that trickle", 1000, False),
    "bombs": (f"{len(_BOMB):,} bytes of gzip that hold 1,000,001 records, over 16 connections", 16, False),
    "arrays": (
        f"{len(_ARRAYS):,} bytes of JSON that hold 5,000,001 empty arrays, over 4 connections",
        4,
        False,
    ),
    "idle": ("1,000 idle connections", 1000, False),
    "strangers": ("requests with a wrong key, over 64 connections", 64, True),
}
"""What each is, how many connections it has, and whether the daemon has ``auth`` on."""


async def pings(address: str) -> list[float]:
    """Ping on connections of their own; return how long each answer took, in milliseconds. Raises Finding."""
    host, port = address.rsplit(":", 1)
    took = []
    for _ in range(_PINGS):
        began = time.perf_counter()
        try:
            async with asyncio.timeout(WAIT):
                reader, writer = await asyncio.open_connection(host, int(port), local_addr=(_FROM, 0))
                writer.write(_PING)
                answer = await reader.read()
                writer.close()
        except (OSError, TimeoutError) as error:
            raise Finding(f"no answer to a ping: {error!r}") from None
        if not answer.endswith(b"pong"):
            raise Finding(f"a ping is answered {answer!r}")
        took.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(_EVERY)
    return took


async def flooded(address: str, kind: str) -> tuple[list[float], float]:
    """Ping during a flood; return also how many connections or requests a second it has made."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fuzz.floods", kind, address, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        await asyncio.sleep(_SETTLE)
        began = time.perf_counter()
        found = await pings(address)
        took = time.perf_counter() - began + _SETTLE
    finally:
        process.kill()
        told = (await process.stdout.read()).split()
        await process.wait()
    return found, int(told[-1]) / took if told else 0.0


async def measure(daemon: Attacked, kind: str) -> None:
    """Print the latencies with a flood and without, and the memory that it costs."""
    address, without, beside, rate = daemon.addresses["rest"], list[float](), list[float](), list[float]()
    before = daemon.memory()
    for _ in range(_ROUNDS):
        without += await pings(address)
        found, made = await flooded(address, kind)
        beside += found
        rate.append(made)
    what, _, _ = FLOODS[kind]
    print(what)
    print(f"  without  {_shown(without)}")
    print(f"  with     {_shown(beside)}; {statistics.median(rate):,.0f} a second", end="")
    print(f"; memory from {before / 1024:,.0f} to {daemon.memory() / 1024:,.0f} MiB", flush=True)


def _shown(took: list[float]) -> str:
    ordered = sorted(took)
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"median {statistics.median(ordered):7.2f} ms, p99 {p99:7.2f} ms, max {ordered[-1]:7.2f} ms"


async def run() -> None:
    """Measure all floods. Raises Finding: a ping is not answered."""
    files = Path("/proc/sys/net/ipv4/conf/lo")
    if not files.exists():
        raise Finding("this needs Linux, where all of 127.0.0.0/8 is this machine")
    print(f"{_ROUNDS} rounds of {_PINGS} pings from {_FROM}, each on a new connection", flush=True)
    for auth in (False, True):
        async with attacked(auth=auth) as daemon:
            for kind, (_, _, needs_auth) in FLOODS.items():
                if needs_auth is auth:
                    await measure(daemon, kind)


if __name__ == "__main__":
    KIND, ADDRESS = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Flood(ADDRESS).run(KIND))

"""``python -m tests.fuzz.edge``: send made-up bytes to a daemon on its sandbox, and watch it.

A finding is an answer 5xx other than 503, a ping that is not answered, an error or traceback in the log, a connection that the
daemon keeps, or memory that grows. It comes with the seed that makes its input again. Two daemons get the inputs: one serves anybody, the other
has ``auth`` on, and there nothing may happen: the sandbox would have a topic that somebody has named.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from pixy.auth.keys import make_key
from tests.fuzz.http_inputs import Input, make

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_PING = b"GET /_ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_TOPICS = b"GET /topics HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nConnection: close\r\n\r\n"
_TROUBLE = re.compile(r" error <|Traceback|Unhandled|never retrieved")
_SHORT = re.compile(r"the event loop has not turned for [0-3]\.")
"""Seconds by the clock, in which others may have had the processor."""
_AT_ONCE = 16
_WAIT = 30.0
_MAY_GROW = 200 * 1024
"""KiB of memory that the daemon may take beyond what it has after the first inputs: buffers, caches, topics."""


class Finding(Exception):
    """What the daemon must not do."""


async def send(address: str, made: Input) -> bytes:
    """Send an input and return what comes back until the connection is quiet or ends."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    found = b""
    try:
        for segment in made.segments:
            writer.write(segment)
            await asyncio.wait_for(writer.drain(), _WAIT)
            await asyncio.sleep(0)
        if made.aborts:
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(0.5):
            while chunk := await reader.read(1 << 16):
                found += chunk
    except (OSError, TimeoutError):  # the daemon has ended it
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), 1)
    return found


def judge(answers: bytes) -> None:
    """Raise Finding if the answers have a status that no request may cause."""
    for status in _STATUS.findall(answers):
        if status.startswith(b"5") and status != b"503":
            at = answers.index(b" " + status + b" ")
            raise Finding(f"status {status.decode()}: {answers[at : at + 600]!r}")


async def alive(address: str) -> None:
    """Raise Finding if the daemon does not answer a ping."""
    try:
        async with asyncio.timeout(_WAIT):
            host, port = address.rsplit(":", 1)
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(_PING)
            answer = await reader.read()
            writer.close()
    except (OSError, TimeoutError) as error:
        raise Finding(f"no answer to a ping: {error!r}") from None
    if not answer.endswith(b"pong"):
        raise Finding(f"a ping is answered {answer!r}")


async def attack(addresses: Mapping[str, str], seed: int) -> None:
    """Send the inputs of a seed at the same time, and check the daemon. Raises Finding."""
    inputs = [make(random.Random(f"{seed}.{number}")) for number in range(_AT_ONCE)]
    for number, answers in enumerate(
        await asyncio.gather(*(send(addresses[each.listener], each) for each in inputs))
    ):
        try:
            judge(answers)
        except Finding as finding:
            raise Finding(f"{finding}, after {b''.join(inputs[number].segments)[:2000]!r}") from None
    await alive(addresses["rest"])


def memory(pid: int) -> int:
    """The resident memory of a process, in KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


async def untouched(address: str, key: str) -> None:
    """Raise Finding if somebody has reached the topics of a daemon that recognizes nobody but the owner of a key."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(_TOPICS % key.encode())
    async with asyncio.timeout(_WAIT):
        answer = await reader.read()
    writer.close()
    if not answer.startswith(b"HTTP/1.1 200 ") or json.loads(answer.partition(b"\r\n\r\n")[2]):
        raise Finding(f"somebody without credentials has got in: {answer!r}")


async def run(minutes: float, seed: int) -> None:
    """Attack two daemon processes, each for half of some time. Raises Finding."""
    await run_one(minutes / 2, seed)
    with tempfile.TemporaryDirectory() as folder:
        key, stored = make_key("owner")
        keys, config = Path(folder, "keys"), Path(folder, "config.yaml")
        keys.write_text(f"{stored.name} sha256:{stored.digest}\n")
        config.write_text(
            f"auth: {{enabled: true, keys_file: {keys}, basic: true}}\nproxies: {{default: {{}}}}\n"
        )
        await run_one(minutes / 2, seed, config, key)


async def run_one(minutes: float, seed: int, config: Path | None = None, key: str = "") -> None:
    """Attack a daemon process for some time. Raises Finding.

    Args:
        minutes: for how long.
        seed: of the first inputs.
        config: turns ``auth`` on; None: anybody is served.
        key: the only one that the daemon recognizes then.
    """
    from tests.kafka.cluster import free_port

    addresses = {name: f"127.0.0.1:{free_port()}" for name in ("rest", "grpc")}
    with tempfile.TemporaryFile("w+", errors="backslashreplace") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pixy.cli.main", "--sandbox"),
            *(("--config", str(config)) if config is not None else ()),
            *(f"--tcpAddr={addresses['rest']}", f"--grpcAddr={addresses['grpc']}"),
            stdout=log,
            stderr=log,
        )
        try:
            until = time.monotonic() + minutes * 60
            for _ in range(300):
                with contextlib.suppress(Finding, OSError):
                    await alive(addresses["rest"])
                    break
                await asyncio.sleep(0.1)
            first = 0
            rounds = 0
            while time.monotonic() < until:
                await attack(addresses, seed + rounds)
                rounds += 1
                first = memory(process.pid) if rounds == 50 else first
                if first and memory(process.pid) > first + _MAY_GROW:
                    raise Finding(f"memory grew from {first} to {memory(process.pid)} KiB by {rounds} rounds")
                if rounds % 100 == 0:
                    print(f"{rounds * _AT_ONCE:,} inputs, {memory(process.pid):,} KiB", flush=True)
            if key:
                await untouched(addresses["rest"], key)
        except Finding as finding:
            raise Finding(f"seed {seed + rounds}: {finding}") from None
        finally:
            if process.returncode is None:
                process.terminate()
            code = await process.wait()
        log.seek(0)
        trouble = [line for line in log if _TROUBLE.search(line) and not _SHORT.search(line)]
        if trouble or code:
            raise Finding(f"exit code {code}, in the log: {''.join(trouble[:20])}")
        auth = "with auth" if key else "without auth"
        print(f"{rounds * _AT_ONCE:,} inputs {auth}, nothing found (seed {seed})")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    try:
        asyncio.run(run(options.minutes, options.seed))
    except Finding as finding:
        sys.exit(f"{finding}")


if __name__ == "__main__":
    main()

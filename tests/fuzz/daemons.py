"""Daemon processes on their sandbox, to be attacked; what they must not do is a finding."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pixy.auth.keys import make_key
from tests.kafka.cluster import free_port

WAIT = 30.0
"""Seconds within which anything must be answered."""
_PING = b"GET /_ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_TOPICS = b"GET /topics HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nConnection: close\r\n\r\n"
_TROUBLE = re.compile(r" error <|Traceback|Unhandled|never retrieved")
_SHORT = re.compile(r"the event loop has not turned for [0-3]\.")
"""Seconds by the clock, in which others may have had the processor."""
_FEW = """
    instances: {max_instances: 20, read_timeout: 50ms, max_read_timeout: 50ms, join_timeout: 50ms}
    consumer: {max_groups: 20, long_polling_timeout: 50ms, join_timeout: 50ms}
rest: {fetch_timeout: 20ms, max_fetch_timeout: 20ms}
"""
"""Short waits, and few clients of Kafka, whose memory is not the edge's."""


class Finding(Exception):
    """What the daemon must not do."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """A daemon that runs.

    Attributes:
        addresses: of its listeners, by ``rest`` and ``grpc``.
        pid: of its process.
        key: the only API key that it knows; empty: it serves anybody.
    """

    addresses: Mapping[str, str]
    pid: int
    key: str = ""

    def memory(self) -> int:
        """The resident memory of the process, in KiB."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])


@contextlib.asynccontextmanager
async def attacked(*, auth: bool) -> AsyncIterator[Attacked]:
    """Run a daemon for the time of the block, and look at its log and its exit code then. Raises Finding.

    Args:
        auth: whether it recognizes callers, and serves nobody else.
    """
    addresses = {name: f"127.0.0.1:{free_port()}" for name in ("rest", "grpc")}
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+", errors="replace") as log:
        config, key = Path(folder, "config.yaml"), ""
        text = f"proxies:\n  default:{_FEW}"
        if auth:
            key, stored = make_key("owner")
            Path(folder, "keys").write_text(f"{stored.name} sha256:{stored.digest}\n")
            text += f"auth: {{enabled: true, keys_file: {folder}/keys, basic: true}}\n"
        config.write_text(text)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pixy.cli.main", "--sandbox", "--config", str(config)),
            *(f"--tcpAddr={addresses['rest']}", f"--grpcAddr={addresses['grpc']}"),
            stdout=log,
            stderr=log,
        )
        try:
            await _starts(addresses["rest"], process)
            yield Attacked(addresses, process.pid, key)
        finally:
            if process.returncode is None:
                process.terminate()
            code = await process.wait()
        log.seek(0)
        trouble = [line for line in log if _TROUBLE.search(line) and not _SHORT.search(line)]
        if trouble or code:
            raise Finding(f"exit code {code}, in the log: {''.join(trouble[:20])}")


async def _starts(address: str, process: asyncio.subprocess.Process) -> None:
    for _ in range(300):
        if process.returncode is not None:
            raise Finding(f"the daemon does not start: exit code {process.returncode}")
        with contextlib.suppress(Finding):
            await alive(address)
            return
        await asyncio.sleep(0.1)
    raise Finding("the daemon does not start")


async def ask(address: str, request: bytes) -> bytes:
    """Send a request on a connection of its own, and return all that comes back. Raises OSError or TimeoutError."""
    host, port = address.rsplit(":", 1)
    async with asyncio.timeout(WAIT):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


async def alive(address: str) -> None:
    """Raise Finding if the daemon does not answer a ping."""
    try:
        answer = await ask(address, _PING)
    except (OSError, TimeoutError) as error:
        raise Finding(f"no answer to a ping: {error!r}") from None
    if not answer.endswith(b"pong"):
        raise Finding(f"a ping is answered {answer!r}")


async def untouched(daemon: Attacked) -> None:
    """Raise Finding if somebody has reached the topics of a daemon that recognizes nobody but the owner of its key.

    The sandbox makes topics that are named: it would have one.
    """
    answer = await ask(daemon.addresses["rest"], _TOPICS % daemon.key.encode())
    if not answer.startswith(b"HTTP/1.1 200 ") or json.loads(answer.partition(b"\r\n\r\n")[2]):
        raise Finding(f"somebody without credentials has got in: {answer!r}")


__all__ = ["WAIT", "Attacked", "Finding", "alive", "ask", "attacked", "untouched"]

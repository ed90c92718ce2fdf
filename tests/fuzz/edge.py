"""``python -m tests.fuzz.edge``: send made-up bytes and requests to daemons on their sandbox, and watch them.

A finding is an answer 5xx other than 503, one that the OpenAPI document does not describe, a ping that is not answered, an
error or traceback in the log, a connection that the daemon keeps, or memory that grows. It comes with the seed that makes
its input again. Two daemons get the inputs: one serves anybody, the other has ``auth`` on, and there nothing may happen
until its key is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import random
import re
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from tests.fuzz import floods
from tests.fuzz.daemons import WAIT, Attacked, Finding, alive, ask, attacked, untouched
from tests.fuzz.http_inputs import Input, make

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_AT_ONCE = 16
_EXAMPLES = 8
"""Requests of an operation, made from one seed."""
_WARM = 50
"""Rounds after which the daemon has its buffers and caches."""
_MAY_GROW = 200 * 1024
"""KiB of memory that the daemon may take from then on: more of these, and topics."""
_GROUP: Final = "fuzz-group"
_KNOWN: Final = {"topic": "fuzz", "cluster": "default", "consumerGroup": _GROUP, "instance": "i"}
PARTS: Final = ("bytes", "contract", "floods")

Attack = Callable[[int], Awaitable[None]]
"""Sends the inputs of a seed at the same time, and checks the daemon. Raises Finding."""


async def send(address: str, made: Input) -> bytes:
    """Send an input and return what comes back until the connection is quiet or ends."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    found = b""
    try:
        for segment in made.segments:
            writer.write(segment)
            await asyncio.wait_for(writer.drain(), WAIT)
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


async def attack(addresses: Mapping[str, str], seed: int) -> None:
    """Send made-up bytes; see :data:`Attack`."""
    inputs = [make(random.Random(f"{seed}.{number}")) for number in range(_AT_ONCE)]
    for number, answers in enumerate(
        await asyncio.gather(*(send(addresses[each.listener], each) for each in inputs))
    ):
        try:
            judge(answers)
        except Finding as finding:
            raise Finding(f"{finding}, after {b''.join(inputs[number].segments)[:2000]!r}") from None
    await alive(addresses["rest"])


async def contract_of(address: str, key: str = "", *, shows: bool = False) -> Attack:
    """Return an attack by requests that are made from a daemon's OpenAPI document.

    Args:
        address: of its REST listener.
        key: that it knows; empty: it serves anybody.
        shows: whether they show the key.
    """
    from tests.fuzz.contract import DESCRIBED, Contract, no_error_of_ours, nobody_is_served

    # schemathesis takes long to import, and the other parts need none of it.
    headers = {"X-API-Key": key} if key else {}
    shown = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    wanted = f"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n{shown}Connection: close\r\n\r\n"
    document = json.loads((await ask(address, wanted.encode())).partition(b"\r\n\r\n")[2])
    checks = (no_error_of_ours, *DESCRIBED, *((nobody_is_served,) if key and not shows else ()))
    contract = Contract(address, document, _KNOWN, checks=checks, headers=headers if shows else {})

    async def made(seed: int) -> None:
        try:
            await asyncio.to_thread(contract.attack, seed, _EXAMPLES)
        except (Exception, BaseExceptionGroup) as error:  # schemathesis raises groups
            each = getattr(error, "exceptions", (error,))
            raise Finding("; ".join(f"{type(one).__name__}: {one}" for one in each)) from error
        await alive(address)

    return made


async def keep_on(daemon: Attacked, attack: Attack, minutes: float, seed: int, what: str) -> None:
    """Attack a daemon for some time. Raises Finding.

    Args:
        daemon: it.
        attack: what is done, with one seed after the other.
        minutes: for how long.
        seed: the first one.
        what: the attack's part and whom it hits, for the command that repeats a finding.
    """
    until, first, rounds = time.monotonic() + minutes * 60, 0, 0
    try:
        while time.monotonic() < until:
            await attack(seed + rounds)
            rounds += 1
            first = daemon.memory() if rounds == _WARM else first
            if first and daemon.memory() > first + _MAY_GROW:
                raise Finding(f"memory grew from {first} to {daemon.memory()} KiB by {rounds} rounds")
            if rounds % 100 == 0:
                print(f"{what}: {rounds:,} rounds, {daemon.memory():,} KiB", flush=True)
    except Finding as finding:
        raise Finding(f"{what}, seed {seed + rounds}: {finding}") from None
    print(f"{what}: {rounds:,} rounds, nothing found (seed {seed})", flush=True)


async def run(minutes: float, seed: int, parts: Sequence[str]) -> None:
    """Attack two daemon processes in turn. Raises Finding.

    Args:
        minutes: for all of it.
        seed: of the first inputs of each attack.
        parts: those of :data:`PARTS` that are attacks.
    """
    share = minutes / 2 / len(parts)
    async with attacked(auth=False) as daemon:
        if "bytes" in parts:
            await keep_on(
                daemon, functools.partial(attack, daemon.addresses), share, seed, "bytes, without auth"
            )
        if "contract" in parts:
            made = await contract_of(daemon.addresses["rest"])
            await keep_on(daemon, made, share, seed, "contract, without auth")
    async with attacked(auth=True) as daemon:
        if "bytes" in parts:
            await keep_on(
                daemon, functools.partial(attack, daemon.addresses), share, seed, "bytes, with auth"
            )
        if "contract" in parts:
            made = await contract_of(daemon.addresses["rest"], daemon.key)
            await keep_on(daemon, made, share / 2, seed, "contract, with auth and without the key")
        await untouched(daemon)
        if "contract" in parts:
            made = await contract_of(daemon.addresses["rest"], daemon.key, shows=True)
            await keep_on(daemon, made, share / 2, seed, "contract, with auth and its key")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--part", choices=PARTS, help="default: bytes and contract; floods only measures")
    options = parser.parse_args()
    try:
        if options.part == "floods":
            asyncio.run(floods.run())
        else:
            parts = (options.part,) if options.part else PARTS[:2]
            print(f"seed {options.seed}", flush=True)
            asyncio.run(run(options.minutes, options.seed, parts))
    except Finding as finding:
        sys.exit(f"{finding}")


if __name__ == "__main__":
    main()

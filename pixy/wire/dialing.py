"""Connect to a name that has several addresses: one that does not answer must not use up the time of the others.

The asynchronous side follows "happy eyeballs" (RFC 8305): it starts with the next address when the last one has failed or
has been silent for :data:`STAGGER`, and takes the first that accepts. The blocking side gives each address a share of
the time.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Sequence
from typing import Any, Final

STAGGER: Final = 0.25
"""Seconds after which the next address is tried as well, as RFC 8305 recommends."""

Address = tuple[int, int, int, str, Any]
"""One result of :func:`socket.getaddrinfo`."""


async def open_socket(host: str, port: int) -> socket.socket:
    """Connect to the first address of a name that accepts; return the socket, non-blocking.

    It has no time limit of its own: the caller sets one, and may cancel.

    Raises:
        OSError: no address accepts; the error of the first one that was tried.
    """
    loop = asyncio.get_running_loop()
    waiting = interleaved(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    running: set[asyncio.Task[socket.socket]] = set()
    failed: OSError | None = None
    try:
        while waiting or running:
            if waiting:
                running.add(loop.create_task(_open_one(waiting.pop(0))))
            done, running = await asyncio.wait(
                running, timeout=STAGGER if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                error = each.exception()
                if error is None:
                    _close_all(done - {each})
                    return each.result()
                if not isinstance(error, OSError):
                    raise error
                failed = failed or error
    finally:
        for each in running:
            each.cancel()
            each.add_done_callback(_close)
    raise failed or OSError(f"{host} has no address")


def open_blocking(host: str, port: int, timeout: float | None) -> socket.socket:
    """Connect to the first address of a name that accepts, within ``timeout`` seconds in all; None for no limit.

    Raises:
        OSError: no address accepts; the error of the last one.
        TimeoutError: the time is over.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    waiting = interleaved(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    failed: OSError | None = None
    while waiting:
        share = None if deadline is None else max((deadline - time.monotonic()) / len(waiting), 0.001)
        family, kind, proto, _, address = waiting.pop(0)
        made = socket.socket(family, kind, proto)
        try:
            made.settimeout(share)
            made.connect(address)
            return made
        except OSError as error:
            made.close()
            failed = error
        except BaseException:
            made.close()
            raise
    raise failed or OSError(f"{host} has no address")


def interleaved(found: Sequence[Address]) -> list[Address]:
    """Order addresses so that the families alternate, beginning with that of the first (RFC 8305, section 4)."""
    families: dict[int, list[Address]] = {}
    for each in found:
        families.setdefault(each[0], []).append(each)
    return [each for row in itertools.zip_longest(*families.values()) for each in row if each is not None]


async def _open_one(found: Address) -> socket.socket:
    family, kind, proto, _, address = found
    made = socket.socket(family, kind, proto)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


def _close_all(done: set[asyncio.Task[socket.socket]]) -> None:
    for each in done:
        _close(each)


def _close(task: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that came second."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


__all__ = ["STAGGER", "interleaved", "open_blocking", "open_socket"]

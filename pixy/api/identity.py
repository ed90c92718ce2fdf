"""Recognize callers: the part that all transports share."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence

from pixy.auth.principal import Caller, Credentials, current
from pixy.auth.tokens import UnknownTokenKey
from pixy.engine.guard import Guard
from pixy.errors import Unauthenticated

API_KEY = "X-API-Key"

Later = Callable[[], Awaitable[None]]
"""A function to call and await."""


def single(values: Sequence[str], name: str) -> str | None:
    """Return the value of a header that may occur once; None if it does not.

    Args:
        values: all of them.
        name: of the header.

    Raises:
        Unauthenticated: it occurs several times. Another reader of the request might take another one.
    """
    if len(values) > 1:
        raise Unauthenticated(f"{name} was sent {len(values)} times", "ambiguous")
    return values[0] if values else None


def enter(guard: Guard, collect: Callable[[], Credentials], address: str) -> Later | None:
    """Recognize a caller, and remember him for the rest of this task.

    No coroutine, because hardly a caller has to wait: its frames took 2 us of each request.

    Args:
        guard: recognizes him.
        collect: what the transport has seen of him. Raises Unauthenticated.
        address: of the peer.

    Returns:
        None: he is recognized. Otherwise what this task must call and await, because the issuer of his token may have newer
        keys; that raises Unauthenticated, too.

    Raises:
        Unauthenticated: he is not recognized.
    """
    current.set(None)
    seen: Credentials | None = None
    try:
        seen = collect()
        principal, until = guard.authenticator.identify(seen)
    except UnknownTokenKey:
        assert seen is not None
        return functools.partial(_enter_later, guard, seen, address)
    except Unauthenticated as error:
        guard.unknown(address, "" if seen is None else seen.trace, error)
        raise
    current.set(Caller(principal, address, seen.trace, until, guard.authenticator.generation, seen))
    return None


async def _enter_later(guard: Guard, seen: Credentials, address: str) -> None:
    try:
        principal, until = await guard.authenticator.look_again(seen)
    except Unauthenticated as error:
        guard.unknown(address, seen.trace, error)
        raise
    current.set(Caller(principal, address, seen.trace, until, guard.authenticator.generation, seen))


def leave_nobody() -> None:
    """Forget the caller of an earlier request of this task: the present one needs none."""
    current.set(None)


__all__ = ["API_KEY", "Later", "enter", "leave_nobody", "single"]

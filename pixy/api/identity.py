"""What the transports share in recognizing a caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pixy.auth.principal import Caller, Credentials, current
from pixy.engine.guard import Guard
from pixy.errors import Unauthenticated

API_KEY = "X-API-Key"


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


async def enter(guard: Guard, collect: Callable[[], Credentials], address: str) -> None:
    """Recognize a caller, and remember him for the rest of this task.

    Args:
        guard: recognizes him.
        collect: what the transport has seen of him. Raises Unauthenticated.
        address: of the peer.

    Raises:
        Unauthenticated: he is not recognized.
    """
    current.set(None)
    seen = Credentials()
    try:
        seen = collect()
        principal = await guard.authenticator.identify(seen)
    except Unauthenticated as error:
        guard.unknown(address, seen.trace, error)
        raise
    current.set(Caller(principal, address, seen.trace))


def leave_nobody() -> None:
    """This task answers a request that needs no caller; forget the one of an earlier request."""
    current.set(None)


__all__ = ["API_KEY", "enter", "leave_nobody", "single"]

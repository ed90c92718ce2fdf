"""What the transports share in recognizing a caller."""

from __future__ import annotations

from collections.abc import Sequence

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


async def enter(guard: Guard, seen: Credentials) -> None:
    """Recognize a caller, and remember him for the rest of this task. Raises Unauthenticated."""
    current.set(None)
    principal = await guard.authenticator.identify(seen)
    current.set(Caller(principal, seen.address, seen.trace))


def leave_nobody() -> None:
    """This task answers a request that needs no caller; forget the one of an earlier request."""
    current.set(None)


__all__ = ["API_KEY", "enter", "leave_nobody", "single"]

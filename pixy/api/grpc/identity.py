"""Find the credentials of a gRPC call's caller."""

from __future__ import annotations

from typing import Any, Final

from pixy.api.identity import API_KEY, Later, enter, single
from pixy.auth.authenticator import Authenticator
from pixy.auth.principal import Credentials
from pixy.engine.guard import Guard

_API_KEY: Final = API_KEY.lower()


def credentials(context: Any, authenticator: Authenticator) -> Credentials:
    """Collect what a call and its connection show of the caller.

    Args:
        context: of the call.
        authenticator: says what it looks at; asking the core for certificates takes 3 us of each call.

    Raises:
        Unauthenticated: one of the names was sent several times.
    """
    authorization: list[str] = []
    keys: list[str] = []
    trace: list[str] = []
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            authorization.append(_text(value))
        elif name == _API_KEY:
            keys.append(_text(value))
        elif name == "traceparent":
            trace.append(_text(value))
    certificates = context.auth_context().get("x509_pem_cert", ()) if authenticator.sees_certificates else ()
    return Credentials(
        single(authorization, "authorization"),
        single(keys, _API_KEY),
        certificates[0] if certificates else None,
        None,
        trace[0] if trace else "",
    )


def recognize(guard: Guard, context: Any, peer: str) -> Later | None:
    """Recognize the caller of a call.

    Args:
        guard: recognizes him.
        context: of the call.
        peer: the connection's, as gRPC names it.

    Returns:
        What the call must call and await; None: the caller is recognized.

    Raises:
        Unauthenticated: he is not, also while it waits.
    """
    return enter(guard, lambda: credentials(context, guard.authenticator), peer)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


__all__ = ["credentials", "recognize"]

"""The caller of a request, the same for all transports.

The caller travels in a context variable from the transport to the engine's entrance. An argument of every handler
would do the same, but a handler that forgets it would have to be noticed; without a caller the entrance refuses.

What each request makes or looks up is a named tuple: hashing and comparing it takes no Python code, and making it a third
of the time of a frozen dataclass.
"""

from __future__ import annotations

import math
import re
from contextvars import ContextVar
from typing import Final, NamedTuple

from pixy.errors import Unauthenticated

MAX_NAME: Final = 255
"""Characters of a name without its kind."""


_TRACEPARENT: Final = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)


def traceparent(text: str) -> str:
    """Return a W3C ``traceparent`` for a log; empty if a client has sent another text in its place."""
    return text if text and _TRACEPARENT.fullmatch(text) else ""


class Principal(NamedTuple):
    """Somebody who was recognized.

    Attributes:
        name: the kind of credential and the name in it, such as ``key:billing``, ``jwt:alice``, ``cert:app-1`` or
            ``uid:1000``; so a token cannot name whom a key names. ``anonymous`` has shown no credential.
        groups: the groups that the credential itself names.
    """

    name: str
    groups: frozenset[str] = frozenset()


ANONYMOUS: Final = Principal("anonymous")


class Credentials(NamedTuple):
    """The evidence of who a caller is, as a transport saw it.

    Attributes:
        authorization: the Authorization header, or metadata ``authorization``.
        api_key: the header or metadata ``X-API-Key``.
        certificate: the client certificate that the TLS handshake has verified, in PEM or DER.
        uid: the peer's user id, on a unix socket.
        trace: the caller's W3C ``traceparent``.
        principal: whom a peer has recognized, and proves to have; nothing else counts then.
    """

    authorization: str | None = None
    api_key: str | None = None
    certificate: bytes | None = None
    uid: int | None = None
    trace: str = ""
    principal: Principal | None = None

    def __repr__(self) -> str:
        """Show no secret: a caller has his credentials with him, wherever he is printed."""
        return "Credentials(...)"


class Caller(NamedTuple):
    """A principal and where he calls from.

    Attributes:
        principal: who.
        address: of the peer.
        trace: his W3C ``traceparent``, or empty.
        until: seconds since 1970 at which his credential ends, if nobody takes it back before.
        generation: of the keys that he was recognized with (:attr:`pixy.auth.authenticator.Authenticator.generation`).
        seen: his credentials; None if another process has recognized him.
    """

    principal: Principal
    address: str = ""
    trace: str = ""
    until: float = -math.inf
    generation: int = -1
    seen: Credentials | None = None

    @property
    def known(self) -> bool:
        """Whether he has shown a credential."""
        return self.principal != ANONYMOUS


current: ContextVar[Caller | None] = ContextVar("pixy_caller", default=None)
"""The caller of the request that this task answers."""


def checked_name(kind: str, name: object) -> str:
    """Make a principal's name.

    Args:
        kind: of the credential.
        name: from the credential; 1 to 255 printable characters.

    Raises:
        Unauthenticated: it is not.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise Unauthenticated(
            f"the credential's name must be 1 to {MAX_NAME} printable characters", "bad_name"
        )
    return f"{kind}:{name}"


__all__ = ["ANONYMOUS", "Caller", "Credentials", "Principal", "checked_name", "current", "traceparent"]

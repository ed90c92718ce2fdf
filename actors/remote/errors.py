"""Errors of remote actors, and how an error travels: by the name of its class and its text.

The runtime's own errors, which a caller treats by their class, arrive as themselves. All others arrive as a
:class:`RemoteError`, so an answer never runs code of the other side.
"""

from __future__ import annotations

from typing import Any

from pykka import ActorDeadError, Timeout

from actors._core.error_text import words_of
from actors._errors import ActorError, MailboxFull, NoAnswer


class RemoteError(ActorError):
    """A handler elsewhere raised an error that stays there.

    Args:
        kind: the name of the error's class.
        text: the error's text.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.text), self.__dict__


class ConnectionLost(ActorError):
    """There is no connection, or it was lost before the reply: whether the message was handled is unknown."""


_AS_THEMSELVES: dict[str, type[Exception]] = {
    each.__name__: each for each in (ActorDeadError, NoAnswer, MailboxFull, Timeout, ConnectionLost)
}


def error_to_text(error: BaseException) -> str:
    """Return the text that :func:`error_from_text` reads."""
    return words_of(error)


def error_from_text(text: str) -> Exception:
    """Make the error of the other side."""
    kind, _, rest = text.partition(": ")
    known = _AS_THEMSELVES.get(kind)
    return RemoteError(kind, rest) if known is None else known(rest)

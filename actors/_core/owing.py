"""Replies that handlers take over: kept until they are settled, and no longer, as they have their values then."""

from __future__ import annotations

from typing import Any, cast

from actors._core.promise import PENDING, Callback
from actors._future import Future


class Unowed(Future[Any]):
    """What ``take_reply`` returns where nobody waits: for a tell, or when the reply has been taken already.

    It can be forwarded, awaited and settled as any other; settling says whether somebody awaits it.
    """

    def try_set(self, value: Any) -> bool:
        """Set the value, unless the future is settled; tell whether somebody waited for it."""
        waited = self.is_awaited()
        return super().try_set(value) and waited

    def try_fail(self, error: BaseException) -> bool:
        """Set an exception, unless the future is settled; tell whether somebody waited for it."""
        waited = self.is_awaited()
        return super().try_fail(error) and waited


class _Forgets:
    """Takes a reply out of the owed ones, in the place of a :class:`Callback`: at once, on whatever thread settles it.

    Args:
        owed: the replies that an actor has taken over.
    """

    __slots__ = ("_owed",)

    function = loop = timer = None

    def __init__(self, owed: dict[Future[Any], None]) -> None:
        self._owed = owed

    def schedule(self, future: Future[Any]) -> None:
        """Forget the future; it may be forgotten already, if Ctrl-C has come between."""
        self._owed.pop(future, None)


def owe(owed: dict[Future[Any], None], reply: Future[Any]) -> None:
    """Note a reply that an actor has taken over, until it is settled.

    Args:
        owed: the actor's.
        reply: the future.
    """
    owed[reply] = None
    reply._observers += 1  # it does not wait for the value
    reply.__dict__.setdefault("_callbacks", []).append(cast("Callback", _Forgets(owed)))
    if reply._state != PENDING:  # the asker has given up meanwhile, in his thread
        owed.pop(reply, None)

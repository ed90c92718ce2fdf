"""Errors of the runtime. ``ActorDeadError`` and ``Timeout`` are pykka's own."""

from __future__ import annotations

from typing import Any

from pykka import ActorDeadError


class ActorError(Exception):
    """Base of the errors that this runtime adds to pykka's."""


class NoAnswer(ActorDeadError):
    """The actor began to handle the message, and ended before it answered: nobody knows what it has done.

    Also if it had put the message aside (``stash``), if its handler has raised a plain ``ActorDeadError``, such as that of
    an actor that it has asked, and if it was elsewhere, and whether it had begun is unknown. A message that
    never reached a handler fails with a plain ``ActorDeadError``; it can be sent to another actor.
    """


class SpawnRefused(ActorDeadError):
    """The system, or the parent, is ending its actors: it takes no more of them until that is done.

    Whoever replaces actors that stop (a subscriber of ``ActorStopped``, for example) would otherwise keep a stop from
    ever ending.
    """


class MailboxFull(ActorError):
    """The actor's mailbox is at its bound: the message was refused, or dropped later. Or an instrument has dropped it."""


class StashFull(ActorError):
    """The actor has stashed as many messages as its ``stash_capacity`` allows."""


class TooManyTasks(ActorError):
    """The actor has as many unfinished tasks as its ``max_tasks`` allows."""


class Interrupted(ActorError):
    """An actor's code was cancelled or interrupted by Ctrl-C, or awaited something that was cancelled.

    It stands for the exception, which is its ``__cause__``: an asker that got a ``CancelledError`` would be
    cancelled itself.
    """


class WouldDeadlock(ActorError):
    """A blocking call was made on the event loop's own thread.

    The reply could never arrive: the thread that would deliver it is the one that waits.
    """


class AskCycle(WouldDeadlock):
    """An actor waits for a reply that cannot come before its own handler has ended.

    ``paths`` are those of the actors that wait for each other, with the first one again at the end.

    Args:
        paths: see there.
        text: the error's; None says that they wait for each other's replies.
    """

    def __init__(self, paths: tuple[str, ...], text: str | None = None) -> None:
        super().__init__(
            text
            or "these actors wait for each other's replies: "
            + " -> ".join(paths)
            + "; answer later with take_reply(), or use tell() or pipe_to_self() instead of waiting"
        )
        self.paths = paths


class Escalated(ActorError):
    """A child failed more often than its supervision allows (or its directive was to escalate).

    ``path`` is the child's, ``__cause__`` the child's last failure.

    Args:
        path: the child's.
        reason: what was decided, for the text.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self._reason = path, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self._reason)

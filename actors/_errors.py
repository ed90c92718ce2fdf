"""Errors of the runtime. ``ActorDeadError`` and ``Timeout`` are pykka's own."""

from __future__ import annotations


class ActorError(Exception):
    """Base of the errors that this runtime adds to pykka's."""


class MailboxFull(ActorError):
    """The actor's mailbox is at its bound; the message was not accepted."""


class WouldDeadlock(ActorError):
    """A blocking call was made on the event loop's own thread.

    The reply could never arrive, because the thread that would deliver it is the one that waits.
    """


class Escalated(ActorError):
    """A child failed more often than its supervision allows (or its directive was to escalate).

    ``path`` is the child's path, ``__cause__`` the child's last failure.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path

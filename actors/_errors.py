"""Errors of the runtime. ``ActorDeadError`` and ``Timeout`` are pykka's own."""

from __future__ import annotations


class ActorError(Exception):
    """Base of the errors that this runtime adds to pykka's."""


class MailboxFull(ActorError):
    """The actor's mailbox is at its bound; the message was not accepted, or was dropped later."""


class StashFull(ActorError):
    """The actor has put aside as many messages as its ``stash_capacity`` allows."""


class TooManyTasks(ActorError):
    """The actor has as many tasks beside its mailbox as its ``max_tasks`` allows."""


class WouldDeadlock(ActorError):
    """A blocking call was made on the event loop's own thread.

    The reply could never arrive, because the thread that would deliver it is the one that waits.
    """


class AskCycle(WouldDeadlock):
    """An actor waits for a reply that can not come before its own handler has ended.

    ``paths`` are the actors that wait for each other, the first one repeated at the end.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(
            "these actors wait for each other's replies: "
            + " -> ".join(paths)
            + "; answer later with take_reply(), or use tell() or pipe_to_self() instead of waiting"
        )
        self.paths = paths


class Escalated(ActorError):
    """A child failed more often than its supervision allows (or its directive was to escalate).

    ``path`` is the child's path, ``__cause__`` the child's last failure.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path

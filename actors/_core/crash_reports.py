"""Crash reports: a failure of an actor in the log, and as an ``ActorFailed`` event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors._core.error_fields import exc_info_of, is_a
from actors._core.error_text import words_of
from actors._core.inspection import recent_headers
from actors._core.lifecycle import logger
from actors._core.log_safely import log_safely
from actors._errors import Escalated
from actors._events import ActorFailed

if TYPE_CHECKING:
    from actors._core.cell import Cell

IGNORED = "ignored"
"""The directive of a failure that changes nothing: the actor is between lives or stops anyway."""


def report(cell: Cell, error: BaseException, where: str, directive: str = IGNORED, failures: int = 0) -> None:
    """Log and publish a failure.

    Args:
        cell: the actor that failed.
        error: the exception.
        where: the hook that raised it, ``on_receive`` or ``task``.
        directive: the supervisor's decision.
        failures: how many lie in the window of the supervision's intensity.
    """
    extra = {"where": where}
    if is_a(error, Escalated):
        # Its causes are in the log: each level below has written its own. With them again, each level would write all.
        log_safely(logger.error, "Unhandled exception in %s: %s", cell.ref, words_of(error), extra=extra)
    else:
        log_safely(
            logger.error, "Unhandled exception in %s:", cell.ref, exc_info=exc_info_of(error), extra=extra
        )
    events = cell.system.events
    if not events.wants(ActorFailed):
        return
    message = None if directive == IGNORED else cell.failed_message
    events.publish(
        ActorFailed(
            cell.path,
            cell.actor_class.__name__,
            where,
            error,
            directive,
            failures,
            None if message is None else type(message).__name__,
            len(cell.mailbox),
            recent_headers(cell),
        )
    )

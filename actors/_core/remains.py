"""The remains of a stopped actor: its ref still works, but keeps no object of the actor's life in memory.

A ref, or the record of a living actor's recent senders, may be kept for as long as the program runs. It must
hold neither the instance, nor the constructor's arguments, nor, through the tracebacks of the last failure, the
locals of handlers, nor further dead actors.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from actors._core.error_fields import CAUSE, MEMBERS, is_a
from actors._core.error_text import words_of
from actors._core.interruption import failed_itself
from actors._core.lifecycle import NO_CHILDREN, NO_KWARGS
from actors._errors import ActorError

if TYPE_CHECKING:
    from actors._core.cell import Cell


def forget(cell: Cell) -> None:
    """Let go of what only a living actor needs. Called once, when all have heard of its end."""
    dead: Any = cell
    dead.actor = None
    cell.args, cell.kwargs = (), NO_KWARGS
    cell.context = cell.own = (
        contextvars.Context()
    )  # that of its life has the spawner's variables, and what hooks have set
    cell.born = cell.handling = None
    cell.children = NO_CHILDREN
    if cell.error is not None:
        cell.error = without_traceback(cell.error)
    cell.recent = cell.failed_message = cell.handler = cell.reply = cell.trace = cell.carried = None
    cell.receive = cell.behaviours = cell.stashed = cell.stashed_last = cell.tasks = cell.owed = None
    cell.subscriptions = cell.watching = cell.watchers = cell.history = cell.children_history = None
    if cell.standby is not None:
        cell.standby.dismiss()
        cell.standby = None
    if not cell.threaded:  # an abandoned thread's handler may be there yet
        cell.envelope = None


def without_traceback(error: BaseException) -> BaseException:
    """Copy an exception, its causes, and the members of groups without their tracebacks; the original is in the log, and its holders'."""
    return _stripped(error, set())


def _stripped(error: BaseException, seen: set[int]) -> BaseException:
    first = last = _copy(error, seen)
    # Not by recursion: a chain of causes may have any length, and may lead back to one of its members.
    while (cause := CAUSE.__get__(error)) is not None and id(cause) not in seen:
        made = _copy(cause, seen)
        CAUSE.__set__(last, made)
        error, last = cause, made
    return first


def _copy(error: BaseException, seen: set[int]) -> BaseException:
    seen.add(id(error))
    try:
        args = error.args
        if is_a(
            error, BaseExceptionGroup
        ):  # whose depth is bounded by the recursion limit: beyond it stands the text
            members = [_stripped(each, seen) for each in MEMBERS.__get__(error) if id(each) not in seen]
            args = (args[0], members)
        made = type(error).__new__(type(error), *args)
        made.args = args
        vars(made).update(vars(error))
        return made
    except BaseException as failure:  # an exception with a constructor of its own
        failed_itself(failure)
        return ActorError(words_of(error))

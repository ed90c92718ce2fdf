"""The handling of messages: the hot loop, and what becomes of a message whose handler fails.

The clock is read once before the first message and once after each: one message begins when the
message before it ends.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from actors._core.accounting import account, begin_recent, count_long, report_slow
from actors._core.closing import lost_stop
from actors._core.context import handle
from actors._core.error_fields import exc_info_of, is_a, traceback_of
from actors._core.interruption import as_failure, failed_itself, interrupted
from actors._core.lifecycle import RUNNING, pykka_logger
from actors._core.log_safely import log_safely
from actors._core.pykka_names import ActorStop
from actors._core.stats import SHIFT
from actors._core.system_messages import SPECIAL, handle_special
from actors._errors import NoAnswer

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope


def work(  # noqa: PLR0915 - one loop, for its speed
    cell: Cell, limit: int, until: int = 0
) -> CoroutineType[Any, Any, Any] | None:
    """Handle up to ``limit`` messages; stop at the first coroutine handler and return its coroutine.

    Ends earlier when the actor's turn is over: at the time ``until``, in ns, which is compared with the
    clock that is read after each message (0: ``turn_ns`` from now). The comparison took 10 ns a message.

    One loop in place of a call per message, and one look at what does not change between
    messages, brought a message from 770 ns to 560.

    Args:
        cell: the actor's.
        limit: the most messages to handle, 1 or more.
        until: when the turn is over, in ns of the system's clock; 0: ``turn_ns`` from now.
    """
    mailbox, clock, slow_ns = cell.mailbox, cell.clock, cell.system.slow_ns
    normal, waits, runs, recent = mailbox.normal, cell.waits, cell.runs, cell.recent or begin_recent(cell)
    cell.began = began = clock()
    until = until or began + cell.turn_ns
    handling: Any = cell.handling
    own = cell.own if cell.furnished else None
    while (limit := limit - 1) >= 0 and began < until and len(handling) == 1 and cell.state is RUNNING:
        envelope = normal.popleft() if normal and not mailbox.rare else mailbox.get()
        if envelope is None:
            break
        message, reply, sent, sender, trace, context = envelope
        kind = type(message)
        if reply is not None and reply._state and kind is not ActorStop:
            cell.abandoned += 1  # the asker gave up before its message's turn
            continue
        # Looked up for each message, so that replacing the method on the class (a mock) works.
        receive = cell.receive or cell.actor.on_receive
        try:
            runtimes_own = kind in SPECIAL
        except BaseException as failure:  # a class whose metaclass cannot be hashed
            runtimes_own = False
            failed_itself(failure)
        if runtimes_own:
            special = handle_special(cell, envelope)
            if special is None:
                continue
            receive, message = special
            if message is not envelope[0]:
                envelope = (message, reply, sent, sender, trace, context)
        cell.envelope, cell.reply, cell.trace = envelope, reply, trace
        hooks = cell.hooks
        error: BaseException | None = None
        try:
            if hooks is not None and (fault := hooks.began(cell, envelope)) is not None:
                raise fault
            result = (
                receive(message)
                if context is own
                else (context := context or cell.own.copy()).run(handle, cell, receive, message)
            )
            if type(result) is CoroutineType:
                cell.left, cell.carried = limit, context
                return result
            if cell.reply is not None:
                cell.reply.try_set(result)
        except BaseException as failure:
            error = failure
        cell.began = cell.ended = ended = clock()
        run = ended - began
        try:
            waits[((began - sent) >> SHIFT).bit_length()] += 1
        except IndexError:
            count_long(waits, began - sent)
        try:
            runs[(run >> SHIFT).bit_length()] += 1
        except IndexError:
            count_long(runs, run)
        recent.append((kind, sender, sent))
        if hooks is not None:
            hooks.ended(cell, envelope, began, ended, error)
        began = ended
        if error is not None or run > slow_ns:
            _slow_or_failed(cell, envelope, error, run)
    cell.envelope = cell.reply = cell.trace = None  # an idle actor does not keep what it has answered
    return None


def _slow_or_failed(cell: Cell, envelope: Envelope, error: BaseException | None, run: int) -> None:
    if run > cell.system.slow_ns:
        report_slow(cell, type(envelope[0]), run)
    if error is not None:
        cell.handler_failed(envelope, error)


def broken_off(cell: Cell, error: BaseException) -> None:
    """Answer for a message whose handling ``error`` has ended outside of the actor's code.

    Args:
        cell: the actor's.
        error: what has ended the handling.
    """
    if not is_a(error, Exception):
        error = interrupted(cell, error)
    handler, cell.handler = cell.handler, None
    if handler is not None:
        handler.close()
    envelope, cell.envelope = cell.envelope, None
    if envelope is not None:
        account(cell, envelope, cell.began, error)
        cell.handler_failed(envelope, error)
    if cell.task is None and cell.state is RUNNING:
        cell.wake()
        if lost_stop(cell.mailbox):
            cell.request_stop()


def handler_failed(cell: Cell, envelope: Envelope, error: BaseException) -> None:
    """Tell the asker, or let supervision decide, about a handler's failure.

    Args:
        envelope: the message that was handled.
        error: what the handler has raised.
    """
    cell.failed += 1
    cell.reply = cell.envelope = cell.trace = None
    try:
        error = as_failure(cell, error)
        if envelope[1] is not None:
            if (
                type(error) is ActorDeadError
            ):  # another actor's, or the handler's own: this message was handled
                error = _of_another(error)
            envelope[1].try_fail(error)  # also if the handler had taken the reply over
    except BaseException as another:  # Ctrl-C: nobody else knows the asker
        if envelope[1] is not None:
            envelope[1].try_fail(interrupted(cell, another))
        raise
    if envelope[1] is not None and is_a(error, Exception):
        # As in pykka: the asker gets the error, the actor lives on.
        log_safely(
            pykka_logger.info,
            f"Exception returned from {cell.ref} to caller:",
            exc_info=exc_info_of(error),
        )
        return
    cell.failed_message = envelope[0]
    cell.fail(error, "on_receive", resumable=True)


def _of_another(error: ActorDeadError) -> NoAnswer:
    """The error of a handler for its asker, to whom a plain ``ActorDeadError`` would say that there was no handler."""
    made = NoAnswer(*error.args)
    made.__cause__, made.__traceback__ = error, traceback_of(error)
    return made

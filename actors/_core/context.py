"""Context variables: the actor whose code runs, and the program's own, which travel with messages.

Each life of an actor has a ``contextvars.Context`` of its own, a copy of its spawner's, for constructor and hooks. A
message carries a copy of its sender's, and its handler runs in that, so that what one handler sets is seen by no
other. ``current`` tells in either whose code runs: finding the sender of a message takes one
``ContextVar.get``, and no set and reset around each handler (180 ns per message).

Most programs set no variables. Then a message carries nothing, and all handlers of an actor share one context
with nothing in it but ``current``; its length, 12 ns, shows whether a handler has left something there. A copy
of a context takes 20 ns, entering one for a handler 40, setting ``current`` in it 40 (primitives, by timeit).
"""

from __future__ import annotations

import contextvars
import types
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from actors._trace import TraceContext, ambient

if TYPE_CHECKING:
    from actors._core.cell import Cell

current: contextvars.ContextVar[Cell | None] = contextvars.ContextVar("actors_cell", default=None)
"""The cell whose actor's code runs; None outside of actors."""

building: contextvars.ContextVar[Cell | None] = contextvars.ContextVar("actors_building", default=None)
"""The cell whose actor is being constructed."""


NOBODY = (None, None, None)


def origin() -> tuple[Cell | None, TraceContext | None, contextvars.Context | None]:
    """Describe the code that sends a message now: the sender, its trace, and a context for the message to carry.

    The last is None if no variables are set but ``current``.
    """
    context = contextvars.copy_context()
    if not context:
        return NOBODY
    sender, trace = current.get(), ambient.get()
    if trace is None and sender is not None:
        trace = sender.trace
    return sender, trace, context if len(context) > (sender is not None) else None


def enter(cell: Cell) -> None:
    """Make the current context one of this actor's code: it has the variables of a sender or spawner."""
    current.set(cell)
    if ambient.get() is not None:  # the message's trace is in its envelope
        ambient.set(None)
    if building.get() is not None:
        building.set(None)


def handle(cell: Cell, receive: Callable[[Any], Any], message: Any) -> Any:
    """Handle a message in the context that it carries.

    Args:
        cell: the actor's.
        receive: the function that handles messages now.
        message: for it.
    """
    enter(cell)
    return receive(message)


def of_spawner(cell: Cell) -> contextvars.Context:
    """Copy the current context for a new actor."""
    context = contextvars.copy_context()
    context.run(enter, cell)
    return context


def bare(cell: Cell) -> contextvars.Context:
    """Make a context without the program's variables."""
    context = contextvars.Context()
    context.run(current.set, cell)
    return context


@types.coroutine
def within(
    context: contextvars.Context, handler: types.CoroutineType[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    """Await a coroutine with each of its steps in a context: a task has only one, for all its messages.

    Args:
        context: where each step runs.
        handler: the coroutine.
    """
    step: Callable[[Any], Any] = handler.send
    value: Any = None
    while True:
        try:
            waited_for = context.run(step, value)
        except StopIteration as done:
            return done.value
        try:
            value = yield waited_for
            step = handler.send
        except GeneratorExit:
            context.run(handler.close)
            raise
        except BaseException as error:
            step, value = handler.throw, error

"""The envelope: a message in a mailbox, with its reply, sender, trace and context.

It is a plain tuple: an object with ``__slots__`` took 210 ns to make, a tuple takes 30, and each message
needs one.
"""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeAlias

from actors._messages import OfLife

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._future import Future
    from actors._trace import TraceContext

Envelope: TypeAlias = "tuple[Any, Future[Any] | None, int, Cell | None, TraceContext | None, Context | None]"
"""(message, reply or None, time of sending in ns, sender or None, trace context or None, context or None).

The context has the sender's context variables; the handler's code alone runs in it."""


class Outcome(tuple[Any, ...]):
    """The envelope of the outcome of piped work, as instruments see it: with the bare message.

    ``life`` is the instance that it is for: if an instrument holds it back, it reaches no later life.
    """

    life: object

    def guarded(self) -> Envelope:
        """Make the envelope that the mailbox gets."""
        message, reply, sent, sender, trace, context = self
        return OfLife(self.life, message), reply, sent, sender, trace, context

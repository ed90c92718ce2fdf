"""A gRPC call as the handlers of :mod:`pixy.api.handlers` see it."""

from __future__ import annotations

from typing import Any

from pixy.api.edge.budget import Share
from pixy.api.edge.pace import Pace
from pixy.api.propagation import of_metadata
from pixy.engine.consume.long_polls import Delivery
from pixy.trace_context import Context


class GrpcCall:
    """A :class:`pixy.api.handlers.Call` on a gRPC context.

    Args:
        context: grpc's.
        share: of the byte budget, given back when the call ends; None: the request is too small to count.
        steps: gives the steps of long requests their turns.
        caller: whose step it is.
    """

    __slots__ = ("_caller", "_context", "_delivery", "_share", "_steps")

    def __init__(self, context: Any, share: Share | None, steps: Pace, caller: str) -> None:
        self._context = context
        self._share = share
        self._steps = steps
        self._caller = caller
        self._delivery: Delivery | None = None

    @property
    def traceparent(self) -> str | None:
        """The caller's W3C trace context, or None."""
        found = dict(self._context.invocation_metadata() or ()).get("traceparent")
        return found if isinstance(found, str) else None

    def trace_context(self) -> Context:
        """See :class:`pixy.api.handlers.Call`."""
        return of_metadata(self._context.invocation_metadata())

    def answer_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """See :class:`pixy.api.handlers.Call`."""
        self._context.set_trailing_metadata(metadata)

    def deliver(self, delivery: Delivery) -> None:
        """See :class:`pixy.api.handlers.Call`."""
        self._delivery = delivery
        self._context.add_done_callback(self._ended)

    async def write(self, answer: bytes) -> None:
        """Write the answer of a call whose end does not tell whether that has succeeded: grpc.aio hides it if the client has gone."""
        await self._context.write(answer)
        if (delivery := self._delivery) is not None:
            self._delivery = None
            delivery.sent()

    def _ended(self, context: Any) -> None:
        if (delivery := self._delivery) is None:
            return
        # After an abort a call is done, too; it has a code then.
        if context.done() and not context.code():
            delivery.sent()
        else:
            delivery.give_back()

    def hold(self, size: int) -> None:
        """See :class:`pixy.api.batch_handlers.LongCall`."""
        if self._share is not None:
            self._share.take(size)

    async def give_way(self) -> None:
        """See :class:`pixy.api.batch_handlers.LongCall`."""
        turn = self._steps.enter(self._caller)
        if turn is not None:
            await self._steps.wait(turn, self._caller)


__all__ = ["GrpcCall"]

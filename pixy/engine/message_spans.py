"""Spans of what clients do with messages, named as OpenTelemetry's messaging conventions say. Here is what makes none.

:mod:`pixy.engine.otel_spans` makes them, with ``tracing.export`` and the extra ``otel``.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from pixy.trace_context import Context


class MessageSpan:
    """The span of one request, and nothing if nobody wants one: each method does nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; an error is noted."""

    def carried(self, context: Context) -> Context:
        """Return the context that the request's messages get: the span's own, or that of the request."""
        return context

    def placed(self, partition: int, offset: int) -> None:
        """Note where a message is."""

    def received(
        self, partition: int, offset: int, size: int, headers: Iterable[tuple[str, bytes | None]]
    ) -> None:
        """Note the message that a consumer gets.

        Args:
            partition: of the message.
            offset: of the message.
            size: bytes of its value.
            headers: of the message: they have its creation context.
        """


NOTHING: Final = MessageSpan()


class MessageSpans:
    """Makes spans for requests; this one makes none."""

    on = False
    """Whether transports should read the context of requests that write nothing, too."""

    @property
    def lost(self) -> int:
        """The number of spans that no collector has got and none will."""
        return 0

    def send(self, cluster: str, topic: str, context: Context, count: int = 0, size: int = 0) -> MessageSpan:
        """Begin the span of a request that writes.

        Args:
            cluster: its configured name; empty for the default one.
            topic: where to.
            context: of the request.
            count: messages of a batch; 0: it is a single one.
            size: bytes of a single message's value.
        """
        del cluster, topic, context, count, size
        return NOTHING

    def receive(self, cluster: str, topic: str, group: str, context: Context) -> MessageSpan:
        """Begin the span of a request that consumes; arguments as in :meth:`send`."""
        del cluster, topic, group, context
        return NOTHING

    def settle(self, cluster: str, topic: str, group: str, context: Context) -> MessageSpan:
        """Begin the span of an acknowledgement; arguments as in :meth:`send`."""
        del cluster, topic, group, context
        return NOTHING

    async def stop(self) -> None:
        """Send what waits, and end."""


__all__ = ["NOTHING", "MessageSpan", "MessageSpans"]

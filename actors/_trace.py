"""W3C trace context: the trace that a message belongs to (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import contextlib
import contextvars
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span of a trace.

    ``trace_id`` and ``span_id`` have 32 and 16 lower-case hexadecimal digits; ``sampled`` tells whether
    the span is recorded.
    """

    trace_id: str
    span_id: str
    sampled: bool = True

    @classmethod
    def new(cls, rng: random.Random, *, sampled: bool = True) -> TraceContext:
        """Make the root span of a new trace, with ids from ``rng``.

        Args:
            rng: gives the ids.
            sampled: whether the span is recorded.
        """
        return cls(f"{rng.getrandbits(128) or 1:032x}", f"{rng.getrandbits(64) or 1:016x}", sampled)

    def child(self, rng: random.Random) -> TraceContext:
        """Make another span of the same trace, with an id from ``rng``."""
        return TraceContext(self.trace_id, f"{rng.getrandbits(64) or 1:016x}", self.sampled)

    @classmethod
    def parse(cls, header: str) -> TraceContext | None:
        """Parse a ``traceparent`` header; None if it is invalid (the standard: begin a new trace then)."""
        found = _HEADER.fullmatch(header.strip())
        if found is None:
            return None
        version, trace_id, span_id, flags, more = found.groups()
        invalid = version == "ff" or (version == "00" and more) or not int(trace_id, 16)
        if invalid or not int(span_id, 16):
            return None
        return cls(trace_id, span_id, bool(int(flags, 16) & 1))

    @property
    def header(self) -> str:
        """The context as a ``traceparent`` header."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}"


ambient: contextvars.ContextVar[TraceContext | None] = contextvars.ContextVar("actors_trace", default=None)
"""The trace set by :func:`trace_as`, such as that of a web request; it precedes the current message's."""


@contextlib.contextmanager
def trace_as(context: TraceContext | None) -> Iterator[None]:
    """Send messages with this context inside the ``with`` block.

    In an actor's code it takes precedence over the context of the message that is being handled.
    """
    token = ambient.set(context)
    try:
        yield
    finally:
        ambient.reset(token)

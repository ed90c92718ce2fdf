"""W3C trace context: which trace a message belongs to (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from actors._core.context import ambient

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span of a trace: 32 and 16 lower-case hexadecimal digits, and whether it is recorded."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @classmethod
    def new(cls, rng: random.Random, *, sampled: bool = True) -> TraceContext:
        """The root of a new trace."""
        return cls(f"{rng.getrandbits(128) or 1:032x}", f"{rng.getrandbits(64) or 1:016x}", sampled)

    def child(self, rng: random.Random) -> TraceContext:
        """Another span of the same trace."""
        return TraceContext(self.trace_id, f"{rng.getrandbits(64) or 1:016x}", self.sampled)

    @classmethod
    def parse(cls, header: str) -> TraceContext | None:
        """A ``traceparent`` header; None if it is not one (the standard says: begin a new trace)."""
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
        """As a ``traceparent`` header."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}"


@contextlib.contextmanager
def trace_as(context: TraceContext | None) -> Iterator[None]:
    """Messages sent inside carry this context, in an actor's code instead of its message's."""
    token = ambient.set(context)
    try:
        yield
    finally:
        ambient.reset(token)

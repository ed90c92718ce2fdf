"""W3C trace context on its way through: from a request into record headers, and from record headers into an answer. Pure.

OpenTelemetry's messaging conventions call what stands in a message its creation context, which no intermediary changes. So a record that
has a ``traceparent`` keeps it, and the one of the request is for records without. In Kafka the two are record headers of the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MOST: Final = 512
"""Bytes of each of the two; the standard asks to pass on as many of ``tracestate``. A longer one is left out."""
_VALID: Final = re.compile(
    "(?!ff)(?:00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    "|(?!00)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[ -~]*)?)",
    re.ASCII,
)
_PRINTABLE: Final = re.compile("[ -~]+", re.ASCII)

Headers = Sequence[tuple[str, bytes | None]]
Context = tuple[tuple[str, bytes], ...]
"""The record headers of a trace context; empty: there is none."""


class Record(Protocol):
    """The part of a record that carries a context."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None


def context_of(traceparent: str | None, tracestate: Iterable[str] = ()) -> Context:
    """Return the record headers of a request's trace context; none if it is not valid.

    Args:
        traceparent: the request's; None if it has none.
        tracestate: its values, in the order of the request.
    """
    if traceparent is None or len(traceparent) > MOST or _VALID.fullmatch(traceparent) is None:
        return ()
    parent = (TRACEPARENT, traceparent.encode("ascii"))
    state = ",".join(tracestate)
    if not state or len(state) > MOST or _PRINTABLE.fullmatch(state) is None:
        return (parent,)
    return parent, (TRACESTATE, state.encode("ascii"))


def has_context(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a record has a context of its own, in whatever case its name is written."""
    return any(len(name) == len(TRACEPARENT) and name.lower() == TRACEPARENT for name, _ in headers)


def carrying(
    key: bytes | None, value: bytes | None, headers: Headers, context: Context, most: int
) -> Headers:
    """Return a record's headers with a request's context, unless it has its own.

    Args:
        key: of the record; likewise ``value``.
        headers: that it has.
        context: of the request.
        most: bytes of key and value up to which there is certainly room: the context makes no record too large.
    """
    if len(key or b"") + len(value or b"") > most or has_context(headers):
        return headers
    return [*(each for each in headers if each[0].lower() != TRACESTATE), *context]


def carry_all(records: Iterable[Record], context: Context, most: int) -> None:
    """Add a request's context to records; arguments as in :func:`carrying`."""
    for record in records:
        record.headers = carrying(record.key, record.value, record.headers or (), context, most)


def of_record(headers: Iterable[tuple[str, bytes | None]]) -> tuple[tuple[str, str], ...]:
    """Return a record's trace context as headers of an answer; none if it has none that is valid."""
    found = {
        name.lower(): value
        for name, value in headers
        if value is not None and name.lower() in (TRACEPARENT, TRACESTATE)
    }
    parent = found.get(TRACEPARENT)
    if parent is None:
        return ()
    state = found.get(TRACESTATE)
    context = context_of(parent.decode("latin-1"), () if state is None else (state.decode("latin-1"),))
    return tuple((name, value.decode("ascii")) for name, value in context)


__all__ = [
    "TRACEPARENT",
    "TRACESTATE",
    "Context",
    "carry_all",
    "carrying",
    "context_of",
    "has_context",
    "of_record",
]

"""Where requests and answers of the APIs have their W3C trace context, and what of it goes into records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from multidict import CIMultiDict, istr

from pixy.config.model import Proxy
from pixy.kafka.settings import record_headers_unsupported
from pixy.trace_context import TRACEPARENT, TRACESTATE, Context, carry_all, carrying, context_of, of_record
from pixy.wire.types import RecordHeaders

_PARENT, _STATE = istr(TRACEPARENT), istr(TRACESTATE)
_ROOM: Final = 4096
"""Bytes below ``max_message_bytes`` at which a message gets no context: it would not fit with its headers."""


def of_request(headers: Any) -> Context:
    """Return the trace context of an HTTP request.

    Args:
        headers: aiohttp's.
    """
    parent = headers.get(_PARENT)
    return () if parent is None else context_of(parent, headers.getall(_STATE, ()))


def of_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> Context:
    """Return the trace context of a gRPC call."""
    parent: str | None = None
    state: list[str] = []
    for name, value in metadata or ():
        if name == TRACEPARENT and isinstance(value, str):
            parent = value
        elif name == TRACESTATE and isinstance(value, str):
            state.append(value)
    return () if parent is None else context_of(parent, state)


def with_context(
    proxy: Proxy, key: bytes | None, value: bytes | None, headers: RecordHeaders, context: Context
) -> RecordHeaders:
    """Return the headers of a message with the context of its request, if Kafka takes any, and the message has none of its own."""
    if record_headers_unsupported(proxy):
        return headers
    return carrying(key, value, headers, context, proxy.producer.max_message_bytes - _ROOM)


def add_context(proxy: Proxy, records: Sequence[Any], context: Context) -> None:
    """Add the context of a request to its records, if Kafka takes any; those that have their own keep it."""
    if not record_headers_unsupported(proxy):
        carry_all(records, context, proxy.producer.max_message_bytes - _ROOM)


def answer_headers(answer: CIMultiDict[str], headers: Iterable[tuple[str, bytes | None]]) -> None:
    """Give an HTTP answer the context of the message in it.

    Args:
        answer: its headers.
        headers: of the message.
    """
    for name, value in of_record(headers):
        answer[name] = value


__all__ = ["add_context", "answer_headers", "of_metadata", "of_request", "with_context"]

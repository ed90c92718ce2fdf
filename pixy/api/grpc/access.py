"""Write gRPC calls to the access log.

grpc's core reports none of its own refusals: connections above its bound, and metadata that is too large. It cancels a call
whose message is too large, as if the client had gone.
"""

from __future__ import annotations

from typing import Any, Final

import grpc

from pixy.api.grpc.gate import Gate
from pixy.auth.principal import current
from pixy.engine.access_log import AccessLog
from pixy.engine.meter import Meter

REFUSED: Final = frozenset(
    {"UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNIMPLEMENTED", "INTERNAL"}
)
"""The statuses that have a line whatever the sample."""
_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}


def recorded(log: AccessLog, listener: str, method: str, handler: Any) -> Any:
    """Return a handler of calls with one answer (:meth:`pixy.api.grpc.gate.Gate.unary`) that also leaves a line.

    Args:
        log: gets it.
        listener: its name.
        method: of the service.
        handler: answers the call.
    """
    answer, same_kind = _parts(handler)

    async def behaviour(requests: Any, context: Any) -> Any:
        current.set(None)
        began, ended = log.clock(), False
        try:
            found = await answer(requests, context)
            ended = True
            return found
        finally:
            code = context.code()
            _note(log, listener, method, _status(code, ended), context, began)

    return same_kind(behaviour, response_serializer=handler.response_serializer)


def metered(meter: Meter, listener: str, method: str, handler: Any) -> Any:
    """Return a handler of calls with one answer that also counts them.

    Args:
        meter: counts.
        listener: its name.
        method: of the service.
        handler: answers the call.
    """
    answer, same_kind = _parts(handler)

    async def behaviour(requests: Any, context: Any) -> Any:
        began, ended = meter.clock(), False
        try:
            found = await answer(requests, context)
            ended = True
            return found
        finally:
            sent = context.invocation_metadata() or ()  # pairs; over ASGI without names
            trace = next((value for name, value in sent if name == "traceparent"), "")
            status = _status(context.code(), ended)
            meter.note(listener, method, status, began, trace if isinstance(trace, str) else "")

    return same_kind(behaviour, response_serializer=handler.response_serializer)


def _parts(handler: Any) -> tuple[Any, Any]:
    """Return what a handler calls, and what makes another one of its kind."""
    if handler.stream_unary is not None:
        return handler.stream_unary, grpc.stream_unary_rpc_method_handler
    return handler.stream_stream, grpc.stream_stream_rpc_method_handler


def _status(code: Any, ended: bool) -> str:
    """Name the status of a call: None or 0 unless it was aborted. One that ends without an answer was cancelled."""
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _NAMES.get(number, str(code)) if number else "OK" if ended else "CANCELLED"


class UnknownMethods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers calls of methods that there are not as grpc does, and counts and notes these refusals.

    Args:
        gate: counts them.
        log: gets the lines; None: there is no access log.
        listener: its name.
    """

    def __init__(self, gate: Gate, log: AccessLog | None, listener: str) -> None:
        self._gate = gate
        self._log = log
        self._listener = listener

    def service(self, details: Any) -> Any:
        """See :class:`grpc.GenericRpcHandler`."""
        method = str(details.method).removeprefix("/")

        async def refuse(_requests: Any, context: Any) -> None:
            current.set(None)
            if self._log is not None:
                _note(self._log, self._listener, method, "UNIMPLEMENTED", context, self._log.clock())
            with self._gate.refusing(context):
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

        return grpc.stream_stream_rpc_method_handler(refuse)


def _note(log: AccessLog, listener: str, method: str, status: str, context: Any, began: float) -> None:
    sent = dict(context.invocation_metadata() or ())
    trace = sent.get("traceparent", "")
    refused = status in REFUSED
    details = context.details() if refused else ""
    log.answered(
        listener,
        method,
        "",
        status,
        began,
        refused=refused,
        address=context.peer(),
        caller=current.get(),
        trace=trace if isinstance(trace, str) else "",
        error=details.decode(errors="replace") if isinstance(details, bytes) else details or "",
    )


__all__ = ["REFUSED", "UnknownMethods", "metered", "recorded"]

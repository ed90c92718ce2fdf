"""Bound gRPC calls that begin and do not go on: a call takes a place with its first frame, long before its message arrives.

grpc hands a unary call to its handler once its message is there, and waits for it for ever; meanwhile the call has one of
``max_concurrent_requests``, and the core keeps what has come of the message. So here a call is a stream of one message,
which the daemon reads itself: after it knows the caller, with a deadline, and not too many at the same time. A stream
whose message nobody reads holds :data:`WINDOW` bytes at most; the core lets the rest come once it is read.

A client may also leave no room for the answer. grpcio has no way to end such a call: it lasts as long as its connection.
So a call keeps its place until its answer is taken, and those who take none fill their own share.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import grpc

from pixy import errors
from pixy.api.edge.callers import address_of_peer, caller_of_call
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.pace import PROBE, Pace
from pixy.api.grpc.identity import recognize
from pixy.api.grpc.open_places import OpenPlaces
from pixy.api.grpc.untaken import Untaken
from pixy.api.identity import Later
from pixy.engine import shares
from pixy.engine.guard import Guard
from pixy.engine.shares import Shares, Turns

WINDOW: Final = 16 * 1024
"""Bytes of a stream that may arrive before they are read."""
_GONE: Final = 0.1
"""Seconds in which the core says that the client has gone, if that is why there is no message; then this task is cancelled."""
_BUSY = "max_concurrent_requests"
_CHECKS: Final = 64
_WATCHES: Final = 64
"""Calls of one connection at the same time that need no caller. A proxy may bring those of many clients over one connection."""
_SHORT: Final = 4096
"""Bytes of a message that a health check or reflection may have: such a call may last, and what it holds counts nowhere."""

Behaviour = Callable[[bytes, Any, str], Awaitable[bytes]]
"""Answers a message of a call, for a caller: with the bytes of a message."""


class Gate:
    """Lets calls in, for one listener.

    Args:
        guard: recognizes callers; None: ``auth`` is off.
        most: calls at the same time (``max_concurrent_requests``). Those that need no caller, health checks and with
            ``auth`` off reflection, have a quarter as many places of their own.
        reads: messages that may be arriving at the same time.
        timeout: seconds in which a message must arrive (``body_timeout``).
        pace: says when a call may begin.
        end: ends the connections of some peers; see :class:`pixy.api.grpc.untaken.Untaken`.
    """

    def __init__(
        self,
        guard: Guard | None,
        most: int,
        reads: int,
        timeout: float,
        pace: Pace,
        end: Callable[[Collection[str]], object] = len,
    ) -> None:
        self._guard = guard
        self._pace = pace
        self._calls = Shares(most, total=True)
        self._begin = Shares(most, total=True)
        """Calls that wait for their turn to begin."""
        self._open = OpenPlaces(max(1, most // 4), _CHECKS)
        self._watches = OpenPlaces(max(1, most // 16), _WATCHES)
        self._untaken = Untaken(end, time.monotonic)
        self._reads = Turns(reads)
        self._timeout = timeout
        self._deadline = Deadline(timeout)
        self.begun = 0
        """Calls so far."""

    @property
    def held(self) -> int:
        """Calls under way."""
        return self._calls.held + self._open.held + self._watches.held

    @property
    def reading(self) -> int:
        """Messages that are arriving."""
        return self._reads.held

    def unary(self, behaviour: Behaviour, *, public: bool = False, writes: bool = False) -> Any:
        """Return a handler of calls with one message and one answer.

        Args:
            behaviour: answers them.
            public: whether they need no caller.
            writes: whether the behaviour also writes the answer. To the client it is the same.
        """

        async def call(_requests: Any, context: Any) -> bytes | None:
            caller = await self._enter(context, public)
            raw = await self._next(context, caller, short=public)
            if raw is None:
                await _refuse_empty(context)
            answer = await behaviour(raw, context, caller)  # type: ignore[arg-type]
            return None if writes else answer

        if writes:
            return grpc.stream_stream_rpc_method_handler(call)
        return grpc.stream_unary_rpc_method_handler(call)

    def server_stream(self, behaviour: Callable[[bytes, Any], Awaitable[None]]) -> Any:
        """Return a handler of calls with one message and a stream of answers, which need no caller."""

        async def call(_requests: Any, context: Any) -> None:
            raw = await self._next(context, await self._enter(context, True, watches=True), short=True)
            if raw is None:
                await _refuse_empty(context)
            await behaviour(raw, context)  # type: ignore[arg-type]

        return grpc.stream_stream_rpc_method_handler(call, response_serializer=_serialized)

    def stream(self, handler: Any) -> Any:
        """Return a handler of a stream like another one, for recognized callers."""
        answer = handler.stream_stream
        public = self._guard is None

        async def call(_requests: Any, context: Any) -> AsyncIterator[Any]:
            caller = await self._enter(context, public)
            async for each in answer(self._messages(handler, context, caller), context):
                yield each

        return grpc.stream_stream_rpc_method_handler(call, response_serializer=handler.response_serializer)

    async def _enter(self, context: Any, public: bool, *, watches: bool = False) -> str:
        """Take a place for a call, until its answer is taken or its connection has ended; return the caller."""
        self.begun += 1
        peer = context.peer()
        caller = address = address_of_peer(peer)
        who = PROBE + address if public else address
        turn = self._pace.enter(who)
        if turn is not None:
            await self._wait(context, functools.partial(self._pace.wait, turn, who), self._begin, address)
        if not public and self._guard is not None:
            try:
                later = recognize(self._guard, context, peer)
                if later is not None:
                    await self._wait(context, later, self._calls, address)
            except errors.Unauthenticated as error:
                with self._untaken.one(peer, address):
                    await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            caller = caller_of_call(peer)
        if public:
            leave = (self._watches if watches else self._open).enter(peer, address)
        else:
            leave = functools.partial(_leave, self._calls, caller) if self._calls.enter(caller) else None
        if leave is None:
            with self._untaken.one(peer, address):
                await _refuse(context)
        assert leave is not None
        context.add_done_callback(leave)
        shares.caller.set(caller)  # each call is a task of its own
        return caller

    def refusing(self, context: Any) -> AbstractContextManager[None]:
        """Count a call that is refused without a place, until its client has taken the refusal: for a ``with`` block."""
        peer = context.peer()
        return self._untaken.one(peer, address_of_peer(peer))

    async def _wait(self, context: Any, later: Later, places: Shares, address: str) -> None:
        """Await what a call needs before its caller is known. Those of one address may wait for a share only."""
        if not places.enter(address):
            with self.refusing(context):
                await _refuse(context)
        try:
            await later()
        finally:
            places.leave(address)

    async def _messages(self, handler: Any, context: Any, caller: str) -> AsyncIterator[Any]:
        while (raw := await self._next(context, caller, short=True)) is not None:
            yield handler.request_deserializer(raw)

    async def _next(self, context: Any, caller: str, *, short: bool = False) -> bytes | None:
        """Read a message; None: there is none. Aborts the call if it takes too long, or must be short and is not."""
        try:
            with self._deadline:
                if not self._reads.take(caller):
                    await self._reads.enter(caller)
                try:
                    raw = await context.read()
                finally:
                    self._reads.leave(caller)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"malformed request: it did not arrive within {self._timeout:g} s (`body_timeout`)",
            )
        if not isinstance(raw, bytes):
            return None
        if short and len(raw) > _SHORT:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"malformed request: it has more than {_SHORT} bytes"
            )
        return raw


async def _refuse(context: Any) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(errors.TooManyRequests(_BUSY)))


async def _refuse_empty(context: Any) -> None:
    await asyncio.sleep(_GONE)
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "malformed request: it has no message")


def _leave(places: Shares, caller: str, _context: Any) -> None:
    places.leave(caller)


class Gated:
    """Takes the handlers of a service of streams (reflection) on behalf of a server, and puts them behind a gate.

    Not an interceptor: with one, each call of every service costs some 40 microseconds more.

    Args:
        server: gets the handlers.
        gate: what they are put behind.
    """

    def __init__(self, server: Any, gate: Gate) -> None:
        self._server = server
        self._gate = gate

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """See :class:`grpc.aio.Server`."""
        self._server.add_generic_rpc_handlers(tuple(_Generic(each, self._gate.stream) for each in handlers))

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """See :class:`grpc.aio.Server`. They stay generic: of a registered method the core reads the message by itself."""
        del service, handlers


class _Generic(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handler: Any, gated: Callable[[Any], Any]) -> None:
        self._handler = handler
        self._gated = gated

    def service(self, details: Any) -> Any:
        found = self._handler.service(details)
        return None if found is None else self._gated(found)


def _serialized(answer: Any) -> bytes:
    return answer.SerializeToString()  # type: ignore[no-any-return]


__all__ = ["WINDOW", "Behaviour", "Gate", "Gated"]

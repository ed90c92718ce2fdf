"""NATS's client as :mod:`actors.nats` needs it: an error of the protocol does not end it, and no silent peer holds it up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, cast

import nats
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from actors._core.log_safely import log_safely
from actors.remote.codec import BadPayload

logger = logging.getLogger("actors.nats")

TRACE, TIMEOUT, ERROR, STATUS = "traceparent", "actors-timeout", "actors-error", "Status"
"""Headers of messages and replies."""

ENDS = ("authorization", "authentication", "permissions", "account", "user ", "stale connection")
"""Words of the server's errors that another connection does not help against, or that the client treats well."""


class _JoinedWrites(TcpTransport):
    """Writes pieces as one: ``writelines`` of asyncio has two bugs from Python 3.12 on, mended in its later releases.

    It does not pause who writes more than the other side takes (cpython issue 127655). On a connection that was dropped it
    still registers the socket's number, which the next connection may have by then: that one never comes about (136234).
    """

    def writelines(self, payload: list[bytes]) -> None:
        cast("Any", self).write(b"".join(payload))  # it has no annotations


class SteadyClient(Client):
    """Connects again, and subscribes again, where NATS's own client ends for good or waits for the other side."""

    def __init__(self) -> None:
        super().__init__()
        self._reconnections: set[asyncio.Task[None]] = set()
        """Those that run, with those that others have taken the place of."""

    async def _connect_to_server(self, s: Any) -> None:
        await super()._connect_to_server(s)
        if type(self._transport) is TcpTransport:  # not a WebSocket
            self._transport.__class__ = _JoinedWrites

    async def _process_err(self, err_msg: str) -> None:
        text = err_msg.lower()
        if any(word in text for word in ENDS) or not self.is_connected:
            await super()._process_err(err_msg)
            return
        await self._error_cb(nats.errors.Error(f"nats: {err_msg.strip(chr(39))}"))
        await self._process_op_err(nats.errors.ProtocolError())

    async def _process_op_err(self, e: Exception) -> None:
        # Before the next connection the client waits until the last one has written what it had: to a peer that has
        # fallen silent, as long as the kernel tries.
        if not (self.is_closed or self.is_reconnecting):
            self.abort()
            # The client would forget who waits for an answer to a ping, until flush() gives up.
            pongs, self._pongs = self._pongs, []
            for pong in pongs:
                if not pong.done():
                    pong.set_exception(nats.errors.Error(f"nats: the connection was lost: {e!r}"))
                    pong.exception()  # nobody waits for those of the client's own pings
        before = self._reconnection_task
        await super()._process_op_err(e)
        begun = self._reconnection_task
        if begun is not None and begun is not before:
            self._reconnections.add(begun)
            begun.add_done_callback(self._reconnected)

    def _reconnected(self, task: asyncio.Task[None]) -> None:
        self._reconnections.discard(task)
        error = None if task.cancelled() else task.exception()
        # Two that overlap tell of their end by the same future, which the second one finds set.
        if error is not None and not isinstance(error, asyncio.InvalidStateError):
            log_safely(logger.error, "NATS: the client does not connect again: %r", error)

    def abort(self) -> None:
        """Drop the connection, and what the other side has not taken."""
        writer = getattr(self._transport, "_io_writer", None)  # a WebSocket has none
        if writer is not None:
            writer.transport.abort()

    async def end_tasks(self) -> None:
        """End what is left of a closed client: a reconnection swallows its cancellation at some points, and goes on."""
        while left := [task for task in self._tasks() if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=0.1)
            self.abort()  # a connection that came about meanwhile

    def _tasks(self) -> Iterator[asyncio.Task[Any]]:
        own = (self._reading_task, self._ping_interval_task, self._flusher_task)
        served = (each._wait_for_msgs_task for each in self._subs.values())
        for task in (*self._reconnections, *own, *served):
            if task is not None:
                yield task

    def check_size(self, data: bytes, what: str) -> None:
        """Refuse what the server would hang up at.

        Args:
            data: what is to be published.
            what: names it in the error.

        Raises:
            BadPayload: it is too large.
        """
        if len(data) > self.max_payload:
            raise BadPayload(
                f"{what} has {len(data)} bytes, more than the server's max_payload ({self.max_payload})"
            )

    async def settled(self) -> None:
        """Wait until the server has taken what was written before."""
        # flush() sends its ping past what is buffered; once the pong is here, that is written.
        await self.flush()
        await self.flush()

    async def leave(self, subscription: Subscription) -> None:
        """Take no more messages of a subscription; handle those that are here."""
        try:
            await cast("Any", subscription).drain()  # it has no annotations
        except Exception:  # no connection; the next one must not subscribe again
            subscription._stop_processing()
            self._remove_sub(subscription._id)

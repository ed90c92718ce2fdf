"""Actors over NATS: ask and tell by name, wherever the actor is; queue groups share the work (extra ``nats``).

    transport = await NatsTransport.connect("nats://10.0.0.7:4222", codec=TypedCodec(Order))
    await transport.serve("orders", ref, group="workers")        # on each machine that has one
    await transport.ref("orders").ask(Order(1), block=False)     # on any machine

NATS delivers at most once. Messages of one transport to one name arrive in the order of sending as long as the
connection holds and one actor serves the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import threading
from collections import deque
from typing import Any

import nats
from nats.aio.msg import Msg
from pykka import ActorDeadError, Timeout

from actors._checks import count, one_of, ref_of, seconds
from actors._core.log_safely import log_safely
from actors._errors import MailboxFull
from actors._future import Future
from actors._ref import ActorRef
from actors._trace import TraceContext
from actors.remote.codec import Codec, codec_of
from actors.remote.errors import ConnectionLost, error_from_text
from actors.remote.nats_client import ERROR, STATUS, TIMEOUT, TRACE, SteadyClient
from actors.remote.nats_serving import Serving
from actors.remote.ref import RemoteRef, Transport

logger = logging.getLogger("actors.nats")

NO_RESPONDERS = "503"

MAX_SUBJECT = 3_800
"""Bytes of a subject (prefix and name), and of a queue group beside it. A server takes 4,096 for a whole line of the protocol by
default (``max_control_line``); a longer one is an error of the protocol, at which it hangs up."""

CLOSE_TIME = 1.0
"""Seconds for the server to take the last bytes of a connection that is closed."""


class NatsTransport(Transport):
    """One connection to NATS, on one event loop; make it with :meth:`connect`."""

    def __init__(
        self,
        client: SteadyClient,
        codec: Codec,
        prefix: str,
        max_pending: int,
        max_asks: int,
        ask_timeout: float,
    ) -> None:
        _check("prefix", prefix)
        codec_of(codec)
        count("max_pending", max_pending, 1)
        count("max_asks", max_asks, 1)
        seconds("ask_timeout", ask_timeout, above_zero=True)
        self.ask_timeout, self.max_pending, self.max_asks = ask_timeout, max_pending, max_asks
        self.dropped = 0
        """Messages to served actors that NATS's client dropped, because the actors were too slow."""
        self._codec, self._prefix = codec, prefix
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._serving = Serving(client, codec, ask_timeout, max_pending)
        self._outgoing: deque[tuple[str, bytes, str, dict[str, str]]] = deque()
        self._waiting: dict[str, tuple[Future[Any], asyncio.TimerHandle]] = {}
        self._lock = threading.RLock()  # a signal handler may send, too
        self._unwritten = self._unanswered = 0
        """Messages that wait to be written, and asks without a reply, with those that a thread has just submitted."""
        self._wake, self._room, self._written = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._written.set()
        self._inbox = ""
        self._last = 0
        self._sender: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        servers: str | list[str] = "nats://127.0.0.1:4222",
        *,
        codec: Codec,
        prefix: str = "actors",
        max_pending: int = 10_000,
        max_asks: int = 10_000,
        ask_timeout: float = 30.0,
        connect_timeout: float = 10.0,
        **options: Any,
    ) -> NatsTransport:
        """Connect to NATS.

        Args:
            servers: one or more URLs.
            codec: how messages are written; both sides use the same.
            prefix: begins all subjects: ``prefix.name``.
            max_pending: messages that wait to be written; and, for each served name, to be handled.
            max_asks: asks without a reply.
            ask_timeout: seconds for an ask without a timeout of its own.
            connect_timeout: seconds for the first connection; the client tries again until then.
            options: for ``nats.connect``, such as ``tls``, ``user_credentials``, ``max_reconnect_attempts``.

        Raises:
            ConnectionLost: there is no connection.
            ValueError: NATS cannot have such a prefix, or a number is too small.
            TypeError: ``codec`` is no codec, or a number is none.
        """
        made = cls(SteadyClient(), codec, prefix, max_pending, max_asks, ask_timeout)
        try:
            async with asyncio.timeout(connect_timeout):
                await made._client.connect(
                    servers,
                    disconnected_cb=made._lost,
                    closed_cb=made._lost,
                    error_cb=made._failed,
                    **options,
                )
                made._inbox = made._client.new_inbox()
                await made._client.subscribe(f"{made._inbox}.*", cb=made._answered)
        except BaseException as error:
            await made._disconnect()
            if not isinstance(error, Exception):  # a cancellation
                raise
            raise ConnectionLost(
                f"no connection to {_USER.sub('', str(servers))}: {made._why(error, connect_timeout)}"
            ) from error
        made._sender = made._loop.create_task(made._send())
        return made

    def _why(self, error: Exception, limit: float) -> str:
        if not isinstance(error, TimeoutError):
            return str(error) or type(error).__name__
        last = self._client.last_error
        return f"not within {limit:g} s" + (f" ({str(last) or type(last).__name__})" if last else "")

    async def __aenter__(self) -> NatsTransport:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    # -- sending ----------------------------------------------------------------------------------

    def ref(self, name: str) -> RemoteRef:
        """Return the ref of whoever serves a name.

        Raises:
            ValueError: NATS cannot have such a name, or it is too long (:data:`MAX_SUBJECT`).
        """
        self._check(name)
        return RemoteRef(self, name)

    def submit(
        self,
        address: str,
        message: Any,
        reply: Future[Any] | None,
        timeout: float,
        trace: TraceContext | None,
    ) -> None:
        """See :meth:`Transport.submit`. Order holds for messages of the loop's thread."""
        if not self._client.is_connected:
            raise ConnectionLost(f"no connection to NATS; the message to {address} is not sent")
        data = self._codec.encode(message)
        self._client.check_size(data, f"the {type(message).__name__} to {address}")
        headers = {} if trace is None else {TRACE: trace.header}
        here = asyncio._get_running_loop() is self._loop
        if not here and self._loop.is_closed():
            raise ConnectionLost(f"the event loop is closed; the message to {address} is not sent")
        with self._lock:
            if self._unwritten >= self.max_pending or (reply and self._unanswered >= self.max_asks):
                raise MailboxFull(f"the transport's queue for {address} is full")
            self._unwritten += 1
            self._unanswered += reply is not None
        if here:
            self._enqueue(address, data, reply, timeout, headers)
        else:
            self._loop.call_soon_threadsafe(self._enqueue, address, data, reply, timeout, headers)

    def _check(self, name: str, group: str = "") -> None:
        _check("name", name)
        size = len(f"{self._prefix}.{name}{group}".encode(errors="surrogatepass"))
        if size > MAX_SUBJECT:
            raise ValueError(
                f"{name[:20]!r}... is no name for NATS: with the prefix and the group it has {size} bytes, more than {MAX_SUBJECT}"
            )

    def _enqueue(
        self, address: str, data: bytes, reply: Future[Any] | None, timeout: float, headers: dict[str, str]
    ) -> None:
        inbox = ""
        if reply is not None:
            self._last += 1
            inbox = f"{self._inbox}.{self._last}"
            headers[TIMEOUT] = f"{timeout:.3f}"
            timer = self._loop.call_later(timeout, self._expire, inbox, timeout)
            self._waiting[inbox] = reply, timer
            reply.observe(functools.partial(self._given_up, inbox))
        self._outgoing.append((f"{self._prefix}.{address}", data, inbox, headers))
        self._written.clear()
        self._wake.set()
        if not self._client.is_connected:  # closed, perhaps: then nothing is written any more
            self._drop_unwritten()
            self._written.set()

    async def room(self) -> None:
        """See :meth:`Transport.room`."""
        while self._unwritten >= self.max_pending:
            self._room.clear()
            await self._room.wait()

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outgoing:
                if not self._client.is_connected:  # the client would keep it and send it later
                    self._drop_unwritten()
                    break
                subject, data, inbox, headers = self._take()
                if inbox and not self._is_waited_for(inbox):
                    continue
                try:
                    await self._client.publish(subject, data, reply=inbox, headers=headers or None)
                except Exception as error:
                    if inbox:
                        self._settle(
                            inbox, ConnectionLost(f"the message to {subject} was not sent: {error!r}")
                        )
                    else:
                        log_safely(logger.warning, "a message to %s is lost: %r", subject, error)
            self._written.set()

    def _take(self) -> tuple[str, bytes, str, dict[str, str]]:
        """Take the next message that waits to be written."""
        with self._lock:
            self._unwritten -= 1
        self._room.set()
        return self._outgoing.popleft()

    def _drop_unwritten(self) -> None:
        """Fail the asks that wait to be written, and report the tells."""
        tells = 0
        while self._outgoing:
            subject, _, inbox, _ = self._take()
            if inbox:
                error = ConnectionLost(f"no connection to NATS; the message to {subject} is not sent")
                self._settle(inbox, error)
            else:
                tells += 1
        if tells:
            log_safely(
                logger.warning, "NATS: no connection; %d messages that waited to be written are lost", tells
            )

    # -- replies ----------------------------------------------------------------------------------

    async def _answered(self, message: Msg) -> None:
        headers = message.headers or {}
        if headers.get(STATUS) == NO_RESPONDERS:
            self._settle(message.subject, ActorDeadError("nobody serves this name"))
        elif ERROR in headers:
            self._settle(message.subject, error_from_text(message.data.decode(errors="replace")))
        else:
            try:
                self._settle(message.subject, None, self._codec.decode(message.data))
            except Exception as error:  # a codec of the program's own may raise anything
                self._settle(message.subject, error)

    def _settle(self, inbox: str, error: BaseException | None, value: Any = None) -> None:
        reply, timer = self._waiting.pop(inbox, (None, None))
        if reply is None or timer is None:
            return
        with self._lock:
            self._unanswered -= 1
        timer.cancel()
        _ = reply.try_set(value) if error is None else reply.try_fail(error)

    def _given_up(self, inbox: str, _: Future[Any]) -> None:
        """Make room for another ask if the asker does not wait any more; nothing if it has its answer."""
        self._settle(inbox, None)

    def _is_waited_for(self, inbox: str) -> bool:
        entry = self._waiting.get(inbox)
        return entry is not None and not entry[0].done()

    def _expire(self, inbox: str, timeout: float) -> None:
        self._settle(inbox, Timeout(f"{timeout} seconds"))

    async def _lost(self) -> None:
        self._drop_unwritten()
        for inbox in tuple(self._waiting):
            self._settle(inbox, ConnectionLost("the connection to NATS was lost before the reply"))

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.dropped += 1
        log_safely(logger.warning, "NATS: %s", str(error) or type(error).__name__)

    # -- serving ----------------------------------------------------------------------------------

    async def serve(self, name: str, ref: ActorRef[Any], *, group: str = "actors") -> None:
        """Let an actor handle the messages to a name, until it has stopped for good or the transport is closed.

        A full mailbox answers an ask with ``MailboxFull``; tells wait for room, up to ``max_pending``, then NATS's client
        drops them (:attr:`dropped`).

        Args:
            name: without spaces and wildcards; dots make levels.
            ref: the actor.
            group: each message goes to one of those that serve the name in the same group.

        Raises:
            ActorDeadError: the actor has stopped.
            ConnectionLost: there is no connection.
            ValueError: NATS cannot have such a name or group, or they are too long (:data:`MAX_SUBJECT`).
            TypeError: ``ref`` is no actor's ref, but a router, a proxy or the like.
        """
        ref_of("what serves a name", ref)
        one_of("group", group, str)
        if not group or any(c.isspace() for c in group):
            raise ValueError(f"{group!r} is no group for NATS: it is empty or has a space")
        self._check(name, group)
        await self._serving.begin(name, f"{self._prefix}.{name}", ref, group)

    # -- the end ----------------------------------------------------------------------------------

    async def close(self, timeout: float = 5.0) -> None:
        """Stop serving, let the asks that are being handled be answered, write what waits, disconnect.

        Args:
            timeout: seconds for all of it; then the connection is closed as it is, and dropped if the server does not
                take the last bytes within ``CLOSE_TIME``.
        """
        with contextlib.suppress(TimeoutError, nats.errors.Error):
            async with asyncio.timeout(timeout):
                await self._serving.end()
                await self._written.wait()
                await self._client.settled()
        self._drop_unwritten()
        while self._sender is not None and not self._sender.done():
            self._sender.cancel()  # again: where the client waits for the server, it swallows a cancellation
            await asyncio.wait([self._sender], timeout=0.1)
        await self._disconnect()
        await self._lost()

    async def _disconnect(self) -> None:
        closing = self._loop.create_task(self._client.close())
        await asyncio.wait([closing], timeout=CLOSE_TIME)
        if not closing.done():
            self._client.abort()
        with contextlib.suppress(Exception):
            await closing
        await self._client.end_tasks()


_USER = re.compile(r"(?<=//)[^@/]*@")
"""In a URL, the user with his password, or the token."""


def _check(what: str, text: Any) -> None:
    one_of(what, text, str)
    if "" in text.split(".") or any(c in "*>" or c.isspace() for c in text):
        raise ValueError(f"{text!r} is no {what} for NATS: it has an empty level, a space or a wildcard")

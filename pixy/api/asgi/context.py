"""The context of a gRPC call over ASGI.

It has the part of :class:`grpc.aio.ServicerContext` that :mod:`pixy.api.grpc` uses, so that the gate, the methods, health
checks, reflection and the access log are the same ones over both servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NoReturn
from urllib.parse import quote

import grpc

from pixy.api.asgi.frames import BadFrame, Frames, framed
from pixy.api.asgi.types import ClientWatch, Receive, Scope, Send, certificate_of

_HEADERS: Final = ((b"content-type", b"application/grpc"),)
_OK: Final = ((b"grpc-status", b"0"),)
_SAFE: Final = "".join(chr(each) for each in range(0x20, 0x7F) if chr(each) != "%")
"""Characters of a status's message that are sent as they are (PROTOCOL-HTTP2, Percent-Encoded)."""


class Aborted(Exception):
    """The call has ended with a status; nothing more is done for it."""


class AsgiContext:
    """One call.

    Args:
        scope: of the request.
        receive: gives its body.
        send: takes its answer.
        most: bytes of the largest message.
        serialize: makes bytes of what :meth:`write` gets; None: it gets bytes.
        single: whether the client sends one message. Once that is read, the task of a client that goes is cancelled; of others
            :meth:`read` raises ConnectionResetError.
    """

    __slots__ = (
        "_answered",
        "_callbacks",
        "_code",
        "_details",
        "_ended",
        "_frames",
        "_metadata",
        "_most",
        "_peer",
        "_receive",
        "_scope",
        "_send",
        "_serialize",
        "_single",
        "_started",
        "_trailing",
        "_watch",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        most: int,
        serialize: Callable[[Any], bytes] | None = None,
        *,
        single: bool = True,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._most = most
        self._serialize = serialize
        self._single = single
        self._watch: ClientWatch | None = None
        self._frames: Frames | None = None
        self._ended = False
        self._started = False
        self._answered = False
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: tuple[tuple[str, str], ...] = ()
        self._metadata: tuple[tuple[str, str], ...] | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        client = scope.get("client")
        host, port = client if client else ("", 0)
        if ":" in host:
            self._peer = f"ipv6:{quote(f'[{host}]', safe='')}:{port}"
        else:
            self._peer = f"ipv4:{host}:{port}"

    # -- as grpc.aio.ServicerContext ----------------------------------------------------------------

    def peer(self) -> str:
        """Return the client's address as gRPC writes it."""
        return self._peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the request's headers."""
        if self._metadata is None:
            self._metadata = tuple(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in self._scope["headers"]
            )
        return self._metadata

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        """Return the client's certificate in PEM, if it has one."""
        found = certificate_of(self._scope)
        return {"x509_pem_cert": (found.encode("latin-1"),)} if found else {}

    def code(self) -> grpc.StatusCode | None:
        """Return the status of a call that was aborted; None for others."""
        return self._code

    def details(self) -> str:
        """Return the message of the status."""
        return self._details

    def done(self) -> bool:
        """Return whether the call has an answer, or a status, that the server has taken."""
        return self._answered

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call a function with this context when the call has ended."""
        self._callbacks.append(callback)

    def set_trailing_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Send metadata with the status."""
        self._trailing = metadata

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing: tuple[tuple[str, str], ...] = ()
    ) -> NoReturn:
        """End the call with a status."""
        self._code, self._details, self._trailing = code, details, trailing
        raise Aborted

    async def read(self) -> bytes | None:
        """Return the next message; None: there is no other."""
        frames = self._frames
        if frames is None:
            frames = self._frames = Frames(self._most, self._header(b"grpc-encoding") or "identity")
        try:
            while (message := frames.next()) is None:
                if self._ended:
                    if frames.unfinished:
                        raise BadFrame("malformed request: it ends within a message")
                    return None
                await self._more(frames)
        except BadFrame as error:
            await self.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED
                if error.too_large
                else grpc.StatusCode.UNIMPLEMENTED
                if error.unknown
                else grpc.StatusCode.INVALID_ARGUMENT,
                str(error),
            )
        if self._single and self._watch is None:
            task = asyncio.current_task()
            assert task is not None
            self._watch = ClientWatch(self._receive, task)
        return message

    async def _more(self, frames: Frames) -> None:
        found = await self._receive()
        if found["type"] == "http.disconnect":
            raise ConnectionResetError("the client has gone")
        frames.feed(found.get("body", b""))
        self._ended = not found.get("more_body", False)

    async def write(self, message: Any) -> None:
        """Send a message of a stream; wait until the server has taken it."""
        raw = message if self._serialize is None else self._serialize(message)
        await self._start()
        await self._send({"type": "http.response.body", "body": framed(raw), "more_body": True})

    # -- for whoever serves the call ----------------------------------------------------------------

    async def answer(self, raw: bytes | None, *, confirmed: bool) -> None:
        """End the call with status OK.

        Args:
            raw: the message of a unary call; None: there is none, or :meth:`write` has sent them.
            confirmed: wait until the server has taken the message; it costs two more changes of thread. Raises OSError if the client
                has gone.
        """
        await self._start()
        if raw is not None and confirmed:
            await self._send({"type": "http.response.body", "body": framed(raw), "more_body": True})
            raw = None
        await self._send({"type": "http.response.body", "body": b"" if raw is None else framed(raw)})
        trailers = (*_OK, *_encoded(self._trailing)) if self._trailing else _OK
        await self._send({"type": "http.response.trailers", "headers": trailers})
        self._answered = True

    async def refuse(self) -> None:
        """End the call with the status that :meth:`abort` has set."""
        assert self._code is not None
        number: int = self._code.value[0]
        trailers = [
            (b"grpc-status", b"%d" % number),
            (b"grpc-message", quote(self._details, safe=_SAFE).encode("ascii")),
            *_encoded(self._trailing),
        ]
        await self._start()
        await self._send({"type": "http.response.body", "body": b""})
        await self._send({"type": "http.response.trailers", "headers": trailers})
        self._answered = True

    @property
    def gone(self) -> bool:
        """True if the client has gone, and the task was cancelled for that."""
        return self._watch is not None and self._watch.gone

    def end(self) -> None:
        """Tell everybody who waits for it that the call has ended."""
        if self._watch is not None:
            self._watch.end()
        for callback in self._callbacks:
            callback(self)

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": _HEADERS, "trailers": True}
            )

    def _header(self, wanted: bytes) -> str:
        return next((value.decode("latin-1") for name, value in self._scope["headers"] if name == wanted), "")


def _encoded(metadata: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in metadata]


__all__ = ["Aborted", "AsgiContext"]

"""Run the steps of :mod:`pixy.wire.steps` with blocking sockets, in the caller's thread."""

from __future__ import annotations

import functools
import inspect
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from pixy.wire import srv
from pixy.wire.connection import Compute, LookUpSrv, Open, Receive, Resolve, Send, Step, Steps
from pixy.wire.dialing import open_blocking

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
CHUNK: Final = 256 * 1024
"""Bytes to read at most in one call."""


class SocketTransport:
    """A connected socket."""

    def __init__(self, step: Open) -> None:
        deadline = None if step.timeout is None else time.monotonic() + step.timeout
        raw = open_blocking(step.host, step.port, step.timeout)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = raw
            if step.tls is not None:
                if deadline is not None:
                    raw.settimeout(max(deadline - time.monotonic(), 0.001))
                self._socket = step.tls.wrap_socket(raw, server_hostname=step.host)
        except BaseException:
            raw.close()
            raise

    def send(self, data: bytes, timeout: float | None) -> None:
        """Send all of ``data`` within ``timeout`` seconds, None for no limit. Raises OSError."""
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    def receive(self, timeout: float | None) -> bytes:
        """Wait up to ``timeout`` seconds for bytes; empty at the end of the stream. Raises OSError."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(CHUNK)
        except ssl.SSLEOFError:
            return b""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def perform(step: Step) -> Any:
    """Do what one step asks for and return its outcome."""
    match step:
        case Send(transport, data, timeout):
            return transport.send(data, timeout)
        case Receive(transport, timeout):
            return transport.receive(timeout)
        case Open():
            return SocketTransport(step)
        case Resolve(function) | Compute(function):
            return function()
        case LookUpSrv(name, timeout):
            return srv.lookup(name, timeout=timeout)


def run(steps: Steps[T]) -> T:
    """Run a generator of steps to its end and return its result. Raises what the generator raises."""
    outcome, error = None, None
    while True:
        try:
            step = steps.send(outcome) if error is None else steps.throw(error)
        except StopIteration as stop:
            found: T = stop.value
            return found
        try:
            outcome, error = perform(step), None
        except BaseException as raised:
            error = raised


def blocking(steps: Callable[P, Steps[T]]) -> Callable[P, T]:
    """Turn a generator function of steps into a function, or method, that blocks until they are done."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(steps(*args, **kwargs))

    return described_by(call, steps)


def described_by(call: F, steps: Callable[..., Any]) -> F:
    """Give ``call`` the name, documentation and signature of ``steps``, whose result it returns."""
    functools.update_wrapper(call, steps)
    signature = inspect.signature(steps)
    result = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    call.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    return call

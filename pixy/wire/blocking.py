"""Performs the steps of :mod:`pixy.wire.connection` with blocking sockets, in the caller's thread."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any, Final, TypeVar

from pixy.wire.connection import Open, Receive, Resolve, Send, Step, Steps

T = TypeVar("T")
CHUNK: Final = 256 * 1024
"""Bytes to read at once."""


class SocketTransport:
    """A connected socket."""

    def __init__(self, step: Open) -> None:
        deadline = None if step.timeout is None else time.monotonic() + step.timeout
        raw = socket.create_connection((step.host, step.port), step.timeout)
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
        """Send everything."""
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    def receive(self, timeout: float | None) -> bytes:
        """What has come, or comes."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(CHUNK)
        except ssl.SSLEOFError:
            return b""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def perform(step: Step) -> Any:
    """Do what a client needs from the outside."""
    match step:
        case Send(transport, data, timeout):
            return transport.send(data, timeout)
        case Receive(transport, timeout):
            return transport.receive(timeout)
        case Open():
            return SocketTransport(step)
        case Resolve(function):
            return function()


def run(steps: Steps[T]) -> T:
    """Run a client's generator to its end, step by step."""
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

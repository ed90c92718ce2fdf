"""TLS of the tap: towards clients with a certificate of its own, towards brokers as their client.

In between the bytes are plaintext, so the tap reads them. The sockets stay non-blocking sockets, with OpenSSL inside, because
the relay works on sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

from pixy.config.certificates import client_context, server_context
from pixy.config.files import certificates_problem, pair_problem
from pixy.errors import StartError, reason_of
from pixy.tap.config import BrokerTls, TapConfig

NOT_READY = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""Exceptions of a socket that has nothing to read, or no room to write, now."""


class Certificates:
    """The certificates of a tap, which can be read again while it runs: new connections take what was read last.

    Args:
        config: names the files.

    Raises:
        StartError: they cannot be read, or do not fit.
    """

    def __init__(self, config: TapConfig) -> None:
        self._config = config
        self.for_clients: ssl.SSLContext | None = None
        """The context of connections from clients; None: they speak plaintext, or TLS that the tap cannot read."""
        self.for_brokers: ssl.SSLContext | None = None
        """The context of connections to brokers; None: plaintext."""
        self.load()

    def load(self) -> None:
        """Read the files. Blocks.

        Raises:
            StartError: they cannot be read, or do not fit; then the earlier ones stay in use.
        """
        clients, brokers = self._config.tls, self._config.broker_tls
        try:
            for_clients = server_context(clients) if clients is not None else None
            for_brokers = (
                client_context(brokers.ca, brokers.certificate, brokers.key) if brokers is not None else None
            )
        except Exception as error:  # whatever OpenSSL or the file system says, the files are the reason
            raise StartError(self._problem() or f"TLS: {error}") from error
        for each in (for_clients, for_brokers):
            if each is not None:
                # A renegotiation would make writing wait for reading.
                each.options |= getattr(ssl, "OP_NO_RENEGOTIATION", 0)
        self.for_clients, self.for_brokers = for_clients, for_brokers

    def _problem(self) -> str:
        clients, brokers = self._config.tls, self._config.broker_tls or BrokerTls()
        found = ""
        if clients is not None:
            found = pair_problem("--tls-cert", clients.certificate_path, "--tls-key", clients.key_path)
            if not found and clients.client_ca_path:
                found = certificates_problem("--client-ca", clients.client_ca_path)
        if not found and brokers.ca:
            found = certificates_problem("--broker-tls-ca", brokers.ca)
        if not found and brokers.certificate:
            key = brokers.key or brokers.certificate
            found = pair_problem("--broker-tls-cert", brokers.certificate, "--broker-tls-key", key)
        return found


async def shake_hands(
    made: socket.socket, context: ssl.SSLContext, server_name: str | None = None
) -> ssl.SSLSocket:
    """Begin TLS on a connected, non-blocking socket, and return the socket to use instead.

    It has no time limit of its own: the caller sets one, and may cancel. If it fails the socket is closed.

    Args:
        made: the socket.
        context: the certificates.
        server_name: the name or address that the server's certificate must have; None if this side is the server.

    Raises:
        OSError: the peer does not speak TLS, or one side refuses the other's certificate (:class:`ssl.SSLError`).
    """
    try:
        secured = context.wrap_socket(
            made,
            server_side=server_name is None,
            server_hostname=server_name,
            do_handshake_on_connect=False,
        )
    except ValueError as error:  # of a peer that has gone already, or a name that is none
        made.close()
        raise OSError(str(error)) from error
    except BaseException:
        made.close()
        raise
    loop = asyncio.get_running_loop()
    try:
        while True:
            try:
                secured.do_handshake()
                return secured
            except ssl.SSLWantReadError:
                await _ready(secured, loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await _ready(secured, loop.add_writer, loop.remove_writer)
    except BaseException:
        secured.close()
        raise


async def _ready(made: socket.socket, add: Callable[..., Any], remove: Callable[..., Any]) -> None:
    ready = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add(made, wake)
    try:
        await ready
    finally:
        remove(made)


def say_goodbye(made: socket.socket) -> None:
    """Tell the peer of a TLS connection that its end is no attack (``close_notify``). Waits for nothing, never raises."""
    if isinstance(made, ssl.SSLSocket):
        with contextlib.suppress(OSError, ValueError):
            made.unwrap()


def why_refused(error: OSError) -> str:
    """Say in a few words why a handshake or a connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return reason_of(error)


__all__ = ["NOT_READY", "Certificates", "say_goodbye", "shake_hands", "why_refused"]

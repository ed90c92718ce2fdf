"""TLS of the daemon's own listeners: one description for HTTP and gRPC, which can be read again while they serve.

Connections that stand keep the certificate that they began with; new ones get the new one. One that is not valid now never replaces
one that is: clients would refuse it, and somebody has confused two files, or has renewed too late.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Any

import grpc

from pixy.config.certificates import server_context
from pixy.config.files import open_regular, read_small, tls_problem
from pixy.config.model import Tls
from pixy.config.validity import Validity, validity_of
from pixy.errors import NotValidNow, StartError


class ServerTls:
    """The certificates of one listener.

    Args:
        config: the section ``tls``, with a certificate.
        wall: seconds since 1970.

    Raises:
        StartError: the files cannot be read, or do not fit.
    """

    def __init__(self, config: Tls, wall: Callable[[], float] = time.time) -> None:
        self._config = config
        self._wall = wall
        self._validity: Validity | None = None
        self._context: ssl.SSLContext
        self._grpc: Any
        self._generation = 0
        self.load()

    def load(self) -> None:
        """Read the files. Blocks.

        Raises:
            StartError: they cannot be read, or do not fit; then the earlier certificates stay in use, as with NotValidNow: the
                certificate has expired or is not valid yet, and the earlier one is.
        """
        config = self._config
        names = (config.key_path, config.certificate_path, config.client_ca_path)
        try:
            key, chain, ca = (read_small(name, open_regular) if name else None for name in names)
            context = server_context(config)
        except Exception as error:  # whatever OpenSSL or the file system says, the files are the reason
            reason = tls_problem(config) or f"tls: {', '.join(filter(None, names))}: {error}"
            raise StartError(reason) from error
        assert chain is not None
        validity = validity_of(chain)
        self._prefer_valid(validity)
        self._context, self._validity = context, validity
        self._grpc = grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=ca)
        self._generation += 1

    def _prefer_valid(self, new: Validity | None) -> None:
        """Raise NotValidNow if a new certificate is not valid now, and the one in use is."""
        now = self._wall()
        if not self._generation or new is None or not (problem := new.problem(now)):
            return
        if self._validity is None or not self._validity.problem(now):
            text = (
                f"tls.certificate_path {self._config.certificate_path} {problem}, and the one in use is valid"
            )
            raise NotValidNow(text, new.since if now < new.since else None)

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake over HTTP, of what was read last.

        Each reading has a context of its own, and so keys of its own for session tickets: nobody goes on with a session
        that a certificate of an earlier CA has begun.
        """
        return self._context

    def grpc_credentials(self) -> Any:
        """Return the credentials of a gRPC listener. Each handshake takes what was read last."""
        given = self._generation

        def latest() -> Any:
            # In a thread of grpc's core.
            nonlocal given
            if given == self._generation:
                return None
            given = self._generation
            return self._grpc

        required = bool(self._config.client_ca_path) and self._config.client_certificates == "required"
        return grpc.dynamic_ssl_server_credentials(self._grpc, latest, required)


__all__ = ["ServerTls"]

"""TLS of the daemon's own listeners: one description for HTTP and gRPC, which can be read again while they serve.

Connections that stand keep the certificate that they began with; new ones get the new one.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import grpc

from pixy.config.certificates import server_context
from pixy.config.files import tls_problem
from pixy.config.model import Tls
from pixy.errors import StartError


class ServerTls:
    """The certificates of one listener.

    Args:
        config: the section ``tls``, with a certificate.

    Raises:
        StartError: the files cannot be read, or do not fit.
    """

    def __init__(self, config: Tls) -> None:
        self._config = config
        self._context: ssl.SSLContext
        self._grpc: Any
        self._generation = 0
        self.load()

    def load(self) -> None:
        """Read the files. Raises StartError, and then the earlier certificates stay in use. Blocks."""
        config = self._config
        names = (config.key_path, config.certificate_path, config.client_ca_path)
        try:
            key, chain, ca = (Path(name).read_bytes() if name else None for name in names)
            context = server_context(config)
        except Exception as error:  # whatever OpenSSL or the file system says, the files are the reason
            reason = tls_problem(config) or f"tls: {', '.join(filter(None, names))}: {error}"
            raise StartError(reason) from error
        self._context = context
        self._grpc = grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=ca)
        self._generation += 1

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

"""TLS contexts from certificate files: the daemon's listeners and the tap make theirs here.

Both functions block and raise OSError (also ssl.SSLError), ValueError or PassPhraseNeeded; :mod:`pixy.config.files` says what is
wrong with the files.
"""

from __future__ import annotations

import ssl
from typing import Final

from pixy.config.files import refuse_pass_phrase
from pixy.config.model import Tls

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def server_context(config: Tls) -> ssl.SSLContext:
    """Make the context of a listener.

    Args:
        config: the files; ``certificate_path`` and ``key_path`` are set.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.min_version]
    if config.ciphers:
        context.set_ciphers(config.ciphers)
    context.load_cert_chain(config.certificate_path, config.key_path, password=refuse_pass_phrase)
    if config.client_ca_path:
        context.load_verify_locations(config.client_ca_path)
        required = config.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def client_context(ca_path: str = "", certificate_path: str = "", key_path: str = "") -> ssl.SSLContext:
    """Make the context of a client, which checks the server's certificate and name.

    Args:
        ca_path: the authorities that it trusts; empty for the system's.
        certificate_path: the client's own certificate; empty for none.
        key_path: its key; empty if the certificate's file has it.
    """
    context = ssl.create_default_context(cafile=ca_path or None)
    if certificate_path:
        context.load_cert_chain(certificate_path, key_path or None, password=refuse_pass_phrase)
    return context


__all__ = ["client_context", "server_context"]

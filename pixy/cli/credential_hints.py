"""Say what a command of the greeting needs to be let in: credentials, certificates, and a host that the certificate names."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509

from pixy.config.model import App

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class Access(NamedTuple):
    """What is added to a command; each text is empty, or ends in a blank."""

    curl: str
    """Options of curl."""
    shell: str
    """Options of ``kafka-pixy produce`` and the like."""
    notes: list[str]
    """What the capital words in them stand for: a line each."""


def access(app: App, over_tcp: bool) -> Access:
    """Return what callers have to add.

    Args:
        app: the daemon's configuration.
        over_tcp: False for the unix socket, which has no TLS and knows its peer's user.
    """
    curl, shell, notes = "", "", []
    tls = app.tls
    asked = bool(over_tcp and tls.client_ca_path)
    by_certificate = asked and app.auth.certificates
    if over_tcp and tls.certificate_path:
        curl, shell = "--cacert CA.pem ", "--ca CA.pem "
        notes.append("CA.pem stands for the certificate of the authority that has signed the daemon's.")
    if asked and (by_certificate or tls.client_certificates == "required"):
        curl += "--cert CLIENT.pem --key CLIENT.key "
        shell += "--cert CLIENT.pem --cert-key CLIENT.key "
        notes.append(f"CLIENT.pem stands for a certificate of {tls.client_ca_path}, CLIENT.key for its key.")
    if _lacks_credential(app, over_tcp, by_certificate):
        header, shell_option, note = _credential(app)
        curl, shell = curl + header, shell + shell_option
        notes.append(note)
    return Access(curl, shell, notes)


def _lacks_credential(app: App, over_tcp: bool, by_certificate: bool) -> bool:
    auth = app.auth
    known = auth.anonymous or by_certificate or (auth.peer_uid and not over_tcp)
    return auth.enabled and not known


def _credential(app: App) -> tuple[str, str, str]:
    auth = app.auth
    if auth.keys_file:
        header = "-H 'Authorization: Bearer KEY' "
        return header, "--token-file FILE ", f"KEY stands for an API key of {auth.keys_file}, FILE has it."
    if auth.jwt.jwks_file or auth.jwt.jwks_url:
        note = f"TOKEN stands for a JWT of {auth.jwt.issuer}, FILE has it."
        return "-H 'Authorization: Bearer TOKEN' ", "--token-file FILE ", note
    return "", "", "auth recognizes nobody on this listener: see docs/security.md."


def covered(certificate: str, host: str) -> tuple[str, str]:
    """Return a host that the daemon's certificate names and that leads to it, and a note if there is none.

    Args:
        certificate: the file of the daemon's certificate; empty for none. Blocks.
        host: where a client of this machine reaches the daemon.
    """
    names = _names(certificate) if certificate else []
    if not names or _among(host, names):
        return host, ""
    if host in _LOCAL:
        for other in ("localhost", "127.0.0.1") if host != "::1" else ("localhost",):
            if _among(other, names):
                return other, ""
    return host, f"The certificate is for {', '.join(names[:3])}: call that name, and have it lead to {host}."


def _among(host: str, names: list[str]) -> bool:
    parent = f"*.{host.partition('.')[2]}"
    return host.lower() in names or ("." in host and parent.lower() in names)


def _names(path: str) -> list[str]:
    """Return the names and addresses of a certificate; none if it cannot be read: the daemon says so itself."""
    try:
        found = x509.load_pem_x509_certificate(Path(path).read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    return [str(each.value).lower() for each in names if isinstance(each, x509.DNSName | x509.IPAddress)]


__all__ = ["Access", "access", "covered"]

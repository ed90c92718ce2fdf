"""Say when the daemon's own certificate is valid: the leaf alone, which is the first one of its file.

Nothing here refuses a certificate. OpenSSL serves with one that has expired, and the clients refuse it: who may say no depends on
whether there is a better one (:mod:`pixy.api.tls`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pixy.config.files import open_regular, read_small
from pixy.config.model import Tls

SOON: Final = 14 * 86_400.0
"""Seconds before the end of a certificate from which on ``config check`` notes it."""
_TRUSTED: Final = b"-----BEGIN TRUSTED CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Validity:
    """The time in which a certificate is valid, in seconds since 1970.

    Attributes:
        since: when it begins.
        until: when it ends.
    """

    since: float
    until: float

    def problem(self, now: float) -> str:
        """Say why it is not valid at a time, as the end of a sentence; empty if it is.

        Args:
            now: seconds since 1970.
        """
        if now < self.since:
            return f"is not valid before {_shown(self.since)}"
        return f"expired on {_shown(self.until)}" if now > self.until else ""


def validity_of(chain: bytes) -> Validity | None:
    """Read the validity of the first certificate in PEM; None if it cannot be read, though OpenSSL may use it.

    Args:
        chain: the content of the file.
    """
    from cryptography import x509  # here: a daemon without TLS does without it

    if (
        _TRUSTED in chain
    ):  # OpenSSL's own form, which the library passes over: the first one that it sees may be the CA's
        return None
    try:
        leaf = x509.load_pem_x509_certificate(chain)
        return Validity(leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp())
    except Exception:  # as in pixy.auth.certificates: a CA may sign what the library does not take
        return None


def invalid_note(tls: Tls) -> str:
    """Say that the daemon's certificate is not valid now; empty if it is, or there is none that can be read. Blocks."""
    found = _of_file(tls)
    problem = found.problem(time.time()) if found is not None else ""
    return f"{_named(tls)} {problem}: clients refuse it, replace it" if problem else ""


def expiry_note(tls: Tls) -> str:
    """Say that the daemon's certificate is not valid now, or not for :data:`SOON`; empty if it is. Blocks."""
    note, found = invalid_note(tls), _of_file(tls)
    if note or found is None or found.until - time.time() > SOON:
        return note
    return f"{_named(tls)} expires on {_shown(found.until)}: replace it before"


def _of_file(tls: Tls) -> Validity | None:
    try:
        return validity_of(read_small(tls.certificate_path, open_regular)) if tls.certificate_path else None
    except OSError:  # others say so
        return None


def _named(tls: Tls) -> str:
    return f"tls.certificate_path {tls.certificate_path}"


def _shown(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


__all__ = ["SOON", "Validity", "expiry_note", "invalid_note", "validity_of"]

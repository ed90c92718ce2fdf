"""Client certificates: TLS has verified them; this module finds the name in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from pixy.auth.principal import Principal, checked_name
from pixy.errors import Unauthenticated

_MAX_CACHED: Final = 10_000
_ALTERNATIVES: dict[str, type[x509.GeneralName]] = {
    "dns": x509.DNSName,
    "uri": x509.UniformResourceIdentifier,
    "email": x509.RFC822Name,
}


def _common_names(certificate: x509.Certificate) -> list[object]:
    return [each.value for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def _alternatives(kind: type[x509.GeneralName]) -> Callable[[x509.Certificate], list[object]]:
    def names(certificate: x509.Certificate) -> list[object]:
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return []
        return [each.value for each in found if isinstance(each, kind)]

    return names


class Certificates:
    """Names the principals of client certificates.

    Args:
        name: where the name stands: ``cn`` (the subject's common name), or a subject alternative name: ``dns``, ``uri``
            (as of SPIFFE) or ``email``. A certificate with none or several of it is refused.
    """

    def __init__(self, name: str) -> None:
        self._kind = name
        self._names = _alternatives(_ALTERNATIVES[name]) if name in _ALTERNATIVES else _common_names
        self._cache: dict[bytes, tuple[Principal, float]] = {}

    def principal(self, certificate: bytes, now: float) -> Principal:
        """Return whose certificate it is. See :meth:`find`."""
        return self.find(certificate, now)[0]

    def find(self, certificate: bytes, now: float) -> tuple[Principal, float]:
        """Return whose certificate it is, and when it ends, in seconds since 1970.

        Args:
            certificate: in PEM or DER, verified by the handshake.
            now: seconds since 1970. A connection may outlive its certificate; its requests are then refused.

        Raises:
            Unauthenticated: it has expired, or has no name or several.
        """
        known = self._cache.get(certificate)
        if known is None:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            known = self._cache[certificate] = self._read(certificate)
        if now >= known[1]:
            raise Unauthenticated("the client certificate has expired", "expired")
        return known

    def _read(self, data: bytes) -> tuple[Principal, float]:
        pem = data.startswith(b"-----")
        try:
            certificate = (
                x509.load_pem_x509_certificate(data) if pem else x509.load_der_x509_certificate(data)
            )
            names = self._names(certificate)
        except (
            Exception
        ):  # a CA may sign what the library does not take: names of other kinds, odd extensions
            raise Unauthenticated("the client certificate cannot be read", "bad_certificate") from None
        if len(names) != 1:
            raise Unauthenticated(
                f"the client certificate must have one {self._kind} name, it has {len(names)}",
                "bad_certificate",
            )
        return Principal(checked_name("cert", names[0])), certificate.not_valid_after_utc.timestamp()


__all__ = ["Certificates"]

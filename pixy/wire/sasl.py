"""SASL without IO: PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from pixy.wire.exceptions import WireError

MAX_ITERATIONS: Final = 1_000_000
"""Largest number of hash iterations accepted from a server, because each costs time."""

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

Exchange = Generator[bytes, bytes, None]
"""Yields tokens for the server, is sent the server's tokens, and returns once authentication succeeds."""


class AuthenticationError(WireError):
    """The broker refused the credentials, or did not prove that it knows them."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """Credentials for SASL.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        username: the user's name.
        password: the user's password.
        nonce: makes the client's part of SCRAM's nonce.

    Raises:
        ValueError: the mechanism is unknown.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)
    nonce: Callable[[], str] = field(default=lambda: secrets.token_urlsafe(24), repr=False)

    def __post_init__(self) -> None:
        if self.mechanism != "PLAIN" and self.mechanism not in _HASHES:
            raise ValueError(
                f"unknown SASL mechanism {self.mechanism!r} (there are PLAIN, {', '.join(_HASHES)})"
            )

    def exchange(self) -> Exchange:
        """Begin the exchange of tokens. It raises AuthenticationError."""
        return self._plain() if self.mechanism == "PLAIN" else self._scram(_HASHES[self.mechanism])

    def _plain(self) -> Exchange:
        yield f"\0{self.username}\0{self.password}".encode()

    def _scram(self, algorithm: str) -> Exchange:
        nonce = self.nonce()
        name = self.username.replace("=", "=3D").replace(",", "=2C")
        bare = f"n={name},r={nonce}"
        first = (yield f"n,,{bare}".encode()).decode(errors="replace")
        fields = _fields(first)
        if not fields.get("r", "").startswith(nonce):
            raise AuthenticationError("SCRAM: the server's nonce does not begin with the client's")
        salt, iterations = _salt(fields)
        salted = hashlib.pbkdf2_hmac(algorithm, self.password.encode(), salt, iterations)
        final = f"c=biws,r={fields['r']}"
        signed = f"{bare},{first},{final}".encode()
        key = hmac.digest(salted, b"Client Key", algorithm)
        signature = hmac.digest(hashlib.new(algorithm, key).digest(), signed, algorithm)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        last = _fields(
            (yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
        )
        if "e" in last:
            raise AuthenticationError(f"SCRAM: {last['e']}")
        expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
        if not hmac.compare_digest(last.get("v", "").encode(), base64.b64encode(expected)):
            raise AuthenticationError("SCRAM: the server does not know the password either")


def _fields(message: str) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in message.split(","))}


def _salt(fields: dict[str, str]) -> tuple[bytes, int]:
    try:
        salt, iterations = base64.b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError):
        raise AuthenticationError("SCRAM: not a server's first message") from None
    if not 4096 <= iterations <= MAX_ITERATIONS:
        raise AuthenticationError(f"SCRAM: the server asks for {iterations} iterations")
    return salt, iterations

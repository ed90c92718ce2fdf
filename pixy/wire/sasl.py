"""SASL without IO: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677) and OAUTHBEARER (RFC 7628, KIP-255)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pixy.wire.exceptions import WireError

MAX_ITERATIONS: Final = 100_000
"""Largest number of hash iterations accepted from a server, because each costs time: these take about 0.1 s. Kafka's
brokers allow 4,096 to 16,384."""

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"

_EXTENSION: Final = re.compile("[A-Za-z]+")
_VALUE: Final = re.compile("[\\x21-\\x7e \\t\\r\\n]+")
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

Exchange = Generator[bytes, bytes, None]
"""Yields tokens for the server, is sent the server's tokens, and returns once authentication succeeds."""


class AuthenticationError(WireError):
    """The broker refused the credentials, or did not prove that it knows them."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """Credentials for SASL.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        username: the user's name; not for OAUTHBEARER.
        password: the user's password; not for OAUTHBEARER.
        nonce: makes the client's part of SCRAM's nonce.
        token: returns the bearer token for OAUTHBEARER, such as a JWT. It is called for each authentication, the renewals
            of a session (KIP-368) too, and may block: :mod:`pixy.wire.aio` calls it in a thread.
        extensions: OAUTHBEARER's extensions (KIP-342), as ``{"logicalCluster": "lkc-1"}``.

    Raises:
        ValueError: the mechanism is unknown, has no token, or an extension cannot be sent.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    nonce: Callable[[], str] = field(default=lambda: secrets.token_urlsafe(24), repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mechanism not in {PLAIN, OAUTHBEARER, *_HASHES}:
            known = ", ".join((PLAIN, *_HASHES, OAUTHBEARER))
            raise ValueError(f"unknown SASL mechanism {self.mechanism!r} (there are {known})")
        if (self.mechanism == OAUTHBEARER) != (self.token is not None):
            raise ValueError(f"{OAUTHBEARER} needs a token, and no other mechanism takes one")
        for name, value in self.extensions.items():
            if not _EXTENSION.fullmatch(name) or name == "auth" or not _VALUE.fullmatch(value):
                raise ValueError(
                    f"extension {name!r} cannot be sent: a name has letters alone and is not auth"
                )

    def exchange(self) -> Exchange:
        """Begin the exchange of tokens. It raises AuthenticationError."""
        if self.mechanism == OAUTHBEARER:
            return self._bearer()
        return self._plain() if self.mechanism == PLAIN else self._scram(_HASHES[self.mechanism])

    def _bearer(self) -> Exchange:
        assert self.token is not None
        try:
            token = self.token()
        except Exception as error:  # of the caller's function: any
            raise AuthenticationError(f"no token: {error}") from error
        if not _VALUE.fullmatch(token) or " " in token:
            raise AuthenticationError("the token has characters that RFC 6750 does not allow")
        fields = {"auth": f"Bearer {token}", **self.extensions}
        answer = yield (
            "n,,\1" + "".join(f"{name}={value}\1" for name, value in fields.items()) + "\1"
        ).encode()
        if answer:
            # The server says why in JSON, and fails only after the client has acknowledged that (RFC 7628, 3.2.3).
            yield b"\1"
            raise AuthenticationError(
                f"the broker refused the token: {answer.decode(errors='replace')[:200]}"
            )

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

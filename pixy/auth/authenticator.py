"""Recognize callers: one way for all transports, from what they saw to a principal.

A credential that is sent must be right: a wrong key never falls back to a certificate, a peer's uid or ``anonymous``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import math
import time
from collections.abc import Callable, Iterator

from pixy.auth import jwks
from pixy.auth.certificates import Certificates
from pixy.auth.keys import PREFIX, Keys, load_keys
from pixy.auth.principal import ANONYMOUS, Caller, Credentials, Principal
from pixy.auth.tokens import Tokens, UnknownTokenKey
from pixy.config.security import Auth
from pixy.errors import ConfigError, Unauthenticated


class Authenticator:
    """Recognizes callers.

    Args:
        config: ``auth``.
        wall: seconds since 1970.

    Raises:
        ConfigError: a file cannot be read.
    """

    def __init__(self, config: Auth, wall: Callable[[], float] = time.time) -> None:
        self._config = config
        self.wall = wall
        """Seconds since 1970."""
        self._keys = Keys("")
        self._certificates = Certificates(config.certificate_name) if config.certificates else None
        jwt = config.jwt
        self.generation = 0
        """Raised whenever other keys count: whoever was recognized before must be recognized again."""
        self._watchers: dict[object, Callable[[], None]] = {}
        self._tokens = Tokens(jwt, self._changed) if jwt.jwks_file or jwt.jwks_url else None
        self._remote: jwks.RemoteKeys | None = None
        self._fresh: asyncio.Task[None] | None = None
        self.sees_certificates = config.certificates
        """True if :meth:`recognize` looks at client certificates; transports need not collect them otherwise."""
        self.sees_uids = config.peer_uid
        """The same for the peer's user id."""
        self.read()()

    def read(self) -> Callable[[], None]:
        """Read the files of keys. Blocks; any thread may call.

        Returns:
            A function that makes the keys count; it is to be called where callers are recognized.

        Raises:
            ConfigError: a file cannot be read, or that of API keys is empty and was not.
        """
        uses = self.read_api_keys(), self.read_token_keys()

        def use() -> None:
            for each in uses:
                each()

        return use

    def read_api_keys(self) -> Callable[[], None]:
        """Read ``keys_file``. See :meth:`read`."""
        keys = load_keys(self._config.keys_file) if self._config.keys_file else None
        if keys is not None and keys.blank and self._keys.stored:
            raise ConfigError(
                f"auth.keys_file: {self._config.keys_file}: empty; if no key shall be valid any more, leave a comment (#) in it"
            )

        def use() -> None:
            if keys is not None:
                self._keys = keys
                self._changed()

        return use

    def read_token_keys(self) -> Callable[[], None]:
        """Read ``jwks_file``. See :meth:`read`."""
        path = self._config.jwt.jwks_file
        public = jwks.load(path) if path else None

        def use() -> None:
            if public is not None and self._tokens is not None:
                self._tokens.use(public)

        return use

    def start(self) -> None:
        """Begin to fetch ``jwks_url``."""
        if self._config.jwt.jwks_url and self._tokens is not None:
            loop = asyncio.get_running_loop()
            self._remote = jwks.RemoteKeys(self._config.jwt, self._tokens.use, loop.time)
            self._fresh = asyncio.create_task(self._remote.keep_fresh())

    def stop(self) -> None:
        """Fetch no more."""
        if self._fresh is not None:
            self._fresh.cancel()

    @contextlib.contextmanager
    def watched(self, look: Callable[[], None]) -> Iterator[None]:
        """Call a function whenever other keys count, in a ``with`` block. It must not raise."""
        key = object()
        self._watchers[key] = look
        try:
            yield
        finally:
            del self._watchers[key]

    def _changed(self) -> None:
        self.generation += 1
        for look in tuple(self._watchers.values()):
            look()

    def holds(self, caller: Caller) -> bool:
        """Return whether a caller who was recognized would be recognized again by the same credential."""
        return caller.generation == self.generation and self.wall() < caller.until

    def again(self, caller: Caller) -> Caller | None:
        """Recognize a caller again, some time later, by what he showed. None if he would be another one now, or nobody."""
        if caller.seen is None or self.holds(caller):
            return caller
        try:
            principal, until = self.identify(caller.seen)
        except (Unauthenticated, UnknownTokenKey):
            return None  # one whose token has newer keys asks again
        if principal.name != caller.principal.name:
            return None
        return caller._replace(principal=principal, until=until, generation=self.generation)

    async def look_again(self, seen: Credentials) -> tuple[Principal, float]:
        """Do as :meth:`identify`, which has raised UnknownTokenKey, with the issuer's newer keys. Raises Unauthenticated."""
        if self._remote is None or not await self._remote.look_again():
            raise UnknownTokenKey
        return self.identify(seen)

    def recognize(self, seen: Credentials) -> Principal:
        """Return who calls. See :meth:`identify`."""
        return self.identify(seen)[0]

    def identify(self, seen: Credentials) -> tuple[Principal, float]:
        """Return who calls, as far as it is known without waiting, and when his credential ends.

        Args:
            seen: what the transport saw.

        Returns:
            The principal, and seconds since 1970: infinite without an end, and minus infinity for a credential that counts
            once.

        Raises:
            UnknownTokenKey: the token's issuer may have newer keys.
            Unauthenticated: the credential is wrong, or there is none and ``anonymous`` is off.
        """
        if seen.principal is not None:
            return seen.principal, -math.inf
        now = self.wall()
        if seen.api_key is not None:
            if seen.authorization is not None:
                raise Unauthenticated("send either Authorization or X-API-Key", "ambiguous")
            return self._key(seen.api_key, now)
        if seen.authorization is not None:
            return self._authorization(seen.authorization, now)
        if self._certificates is not None and seen.certificate is not None:
            return self._certificates.find(seen.certificate, now)
        if self.sees_uids and seen.uid is not None:
            return Principal(f"uid:{seen.uid}"), math.inf
        if self._config.anonymous:
            return ANONYMOUS, math.inf
        raise Unauthenticated("credentials are required")

    @property
    def challenges(self) -> list[str]:
        """The values of WWW-Authenticate (RFC 9110, section 11.6.1) in an answer 401."""
        return ["Bearer", 'Basic realm="kafka-pixy"'] if self._config.basic else ["Bearer"]

    def _authorization(self, header: str, now: float) -> tuple[Principal, float]:
        scheme, _, value = header.strip().partition(" ")
        scheme, value = scheme.lower(), value.strip()
        if scheme == "bearer" and value.startswith(PREFIX):
            return self._key(value, now)
        if scheme == "bearer" and self._tokens is not None:
            return self._tokens.find(value, now)
        if scheme == "basic" and self._config.basic:
            return self._basic(value, now)
        raise Unauthenticated("this kind of credentials is not accepted", "unknown_scheme")

    def _basic(self, value: str, now: float) -> tuple[Principal, float]:
        try:
            name, colon, key = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            colon = name = key = ""
        if not colon:
            raise Unauthenticated("the Authorization header is malformed", "malformed")
        return self._key(key, now, name)

    def _key(self, key: str, now: float, name: str | None = None) -> tuple[Principal, float]:
        if not self._config.keys_file:
            raise Unauthenticated("this kind of credentials is not accepted", "unknown_scheme")
        return self._keys.find_until(key, now, name)


__all__ = ["Authenticator"]

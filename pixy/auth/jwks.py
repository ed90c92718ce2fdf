"""The public keys of tokens (RFC 7517), from a file or a URL.

A URL is fetched every ``jwks_refresh``, and at once, but not more often than every ten seconds, when a token names a
key that is not there: so an issuer may begin to use a new key at any time, and a stranger's tokens cost it nothing.
While it does not answer, the last keys stay in use.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import aiohttp

from pixy.config.files import open_regular
from pixy.config.security import Jwt
from pixy.errors import ConfigError

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

logger = logging.getLogger("pixy.auth")

MAX_BYTES: Final = 1024 * 1024
MAX_KEYS: Final = 100
LOOK_AGAIN: Final = 10.0
"""Seconds between two fetches for the sake of unknown keys."""

Fetch = Callable[[str, float], Awaitable[bytes]]


def parse(data: bytes) -> KeySet:
    """Return the keys in a document. Raises ValueError."""
    from joserfc.jwk import KeySet  # a daemon without tokens does not pay for it

    if len(data) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    try:
        document = json.loads(data)
        if len(document["keys"]) > MAX_KEYS:
            raise ValueError(f"more than {MAX_KEYS} keys")
        # Keys that sign and verify alike would let whoever can read them make tokens.
        document["keys"] = [key for key in document["keys"] if key.get("kty") != "oct"]
        return KeySet.import_key_set(document)
    except ValueError:
        raise
    except Exception as error:  # the library's errors, and those of a document of another form
        raise ValueError(f"not a JWKS document: {type(error).__name__}") from None


def load(path: str) -> KeySet:
    """Read ``jwks_file``. Raises ConfigError."""
    try:
        with open_regular(path) as file:
            return parse(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise ConfigError(f"auth.jwt.jwks_file: {path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise ConfigError(f"auth.jwt.jwks_file: {path}: {error}") from None


async def fetch(url: str, timeout: float) -> bytes:
    """Read a URL, without redirects.

    Args:
        url: of the document.
        timeout: seconds.

    Raises:
        aiohttp.ClientError, TimeoutError, ValueError: it did not work.
    """
    limits = aiohttp.ClientTimeout(total=timeout)
    async with (
        aiohttp.ClientSession(timeout=limits) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        data = bytearray()
        async for chunk in answer.content.iter_any():
            data += chunk
            if len(data) > MAX_BYTES:
                raise ValueError(f"longer than {MAX_BYTES} bytes")
        return bytes(data)


class RemoteKeys:
    """Keeps the keys of a URL fresh.

    Args:
        config: ``auth.jwt``.
        found: called with each set of keys that was fetched.
        clock: seconds, of the event loop.
        get: fetches a URL within a time.
    """

    def __init__(
        self, config: Jwt, found: Callable[[KeySet], None], clock: Callable[[], float], get: Fetch = fetch
    ) -> None:
        self._config = config
        self._found = found
        self._clock = clock
        self._get = get
        self._fetching: asyncio.Task[None] | None = None
        self._fetched = -LOOK_AGAIN
        self._failing = False

    async def keep_fresh(self) -> None:
        """Fetch again and again, until cancelled."""
        while True:
            await self._fetch()
            await asyncio.sleep(self._config.jwks_refresh)

    async def look_again(self) -> bool:
        """Fetch because a key is unknown. Return whether that was done; not if it was done just now."""
        if self._fetching is None and self._clock() - self._fetched < LOOK_AGAIN:
            return False
        await self._fetch()
        return True

    async def _fetch(self) -> None:
        """Fetch once for all who wait."""
        if self._fetching is None:
            self._fetched = self._clock()
            self._fetching = asyncio.create_task(self._fetch_now())
        await asyncio.shield(self._fetching)

    async def _fetch_now(self) -> None:
        try:
            self._found(parse(await self._get(self._config.jwks_url, self._config.jwks_timeout)))
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            if not self._failing:
                logger.error("auth.jwt.jwks_url: cannot be read, the last keys stay in use: %s", error)
            self._failing = True
        else:
            if self._failing:
                logger.info("auth.jwt.jwks_url: answers again")
            self._failing = False
        finally:
            self._fetching = None


__all__ = ["RemoteKeys", "fetch", "load", "parse"]

"""API keys: how they are made, stored and found. Pure, but for :func:`load_keys`.

A key is ``kp_`` and 43 random characters (256 bits), so its plain SHA-256 is enough to store it: nobody guesses a key
whose hash he has, and a slow hash would let a stranger make the daemon work. The file has a line for each key::

    billing sha256:9f86d08...  expires=2027-01-31T00:00:00Z groups=ops,dev

Several lines may have the same name: add the new key, move the clients over, remove the old one.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pixy.auth.principal import Principal, checked_name
from pixy.config.files import open_regular
from pixy.errors import ConfigError, Unauthenticated

PREFIX: Final = "kp_"
MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of a file of keys."""
_MAX_KEY = 256
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}\Z")
_HASH = re.compile(r"sha256:([0-9a-f]{64})\Z")


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A line of the file.

    Attributes:
        name: whose key it is.
        digest: the SHA-256 of the key, in hex.
        expires: seconds since 1970; None: never.
        groups: of its principal.
    """

    name: str
    digest: str
    expires: float | None = None
    groups: frozenset[str] = frozenset()

    def line(self) -> str:
        """Return the key as a line of the file."""
        parts = [self.name, f"sha256:{self.digest}"]
        if self.expires is not None:
            parts.append(f"expires={datetime.fromtimestamp(self.expires, UTC):%Y-%m-%dT%H:%M:%SZ}")
        if self.groups:
            parts.append(f"groups={','.join(sorted(self.groups))}")
        return " ".join(parts)


def digest_of(key: str) -> str:
    """Return the SHA-256 of a key, in hex."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def make_key(name: str, expires: float | None = None, groups: Iterable[str] = ()) -> tuple[str, StoredKey]:
    """Make a key.

    Args:
        name: whose it is: letters, digits, ``.``, ``_``, ``@`` and ``-``.
        expires: seconds since 1970; None: never.
        groups: of its principal.

    Returns:
        The key for the client, and what to store of it.

    Raises:
        ConfigError: the name or a group cannot stand in the file.
    """
    wanted = frozenset(groups)
    for each in (name, *wanted):
        if not _NAME.match(each):
            raise ConfigError(f"bad name {each!r}: 1 to 128 letters, digits, '.', '_', '@' and '-'")
    key = PREFIX + secrets.token_urlsafe(32)
    return key, StoredKey(name, digest_of(key), expires, wanted)


class Keys:
    """The keys of a file.

    Args:
        text: the file's content.

    Raises:
        ConfigError: a line is wrong; the text has its number, and nothing of the line.
    """

    def __init__(self, text: str) -> None:
        self.blank = not text.strip()
        """True if the file has not even a comment, as one that is being written."""
        self.stored: list[StoredKey] = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                self.stored.append(_parse(line, number))
        self._by_digest = {each.digest: each for each in self.stored}
        self._principals = {
            each.digest: Principal(checked_name("key", each.name), each.groups) for each in self.stored
        }

    def find(self, key: str, now: float, name: str | None = None) -> Principal:
        """Return whose key it is. See :meth:`find_until`."""
        return self.find_until(key, now, name)[0]

    def find_until(self, key: str, now: float, name: str | None = None) -> tuple[Principal, float]:
        """Return whose key it is, and when it ends, in seconds since 1970.

        Args:
            key: as the client sent it.
            now: seconds since 1970.
            name: whose key it must be (the user name of basic authentication); None: anybody's.

        Raises:
            Unauthenticated: there is no such key, or it has expired.
        """
        # A look-up by hash tells an attacker at most how much of a hash is right, and that helps with no key.
        found = self._by_digest.get(digest_of(key)) if len(key) <= _MAX_KEY else None
        if found is None or (name is not None and name != found.name):
            raise Unauthenticated("the API key is not known", "unknown_key")
        if found.expires is not None and now >= found.expires:
            raise Unauthenticated("the API key has expired", "expired")
        return self._principals[found.digest], math.inf if found.expires is None else found.expires


def load_keys(path: str) -> Keys:
    """Read a file of keys. Raises ConfigError."""
    try:
        with open_regular(path) as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigError(f"auth.keys_file: {path}: {(error.strerror or str(error)).lower()}") from error
    if len(data) > MAX_FILE:
        raise ConfigError(f"auth.keys_file: {path}: longer than {MAX_FILE} bytes")
    try:
        return Keys(data.decode())
    except (ConfigError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, ConfigError) else "not UTF-8"
        raise ConfigError(f"auth.keys_file: {path}: {why}") from None


def _parse(line: str, number: int) -> StoredKey:
    name, _, rest = line.strip().partition(" ")
    stored, *options = rest.split() or [""]
    digest = _HASH.match(stored)
    if not _NAME.match(name) or digest is None:
        raise ConfigError(f"line {number}: not `NAME sha256:HASH [expires=TIME] [groups=A,B]`")
    expires, groups = None, frozenset[str]()
    for option in options:
        key, _, value = option.partition("=")
        if key == "groups" and all(map(_NAME.match, value.split(","))):
            groups = frozenset(value.split(","))
        elif key == "expires":
            expires = _time(value, number)
        else:
            raise ConfigError(f"line {number}: not `NAME sha256:HASH [expires=TIME] [groups=A,B]`")
    return StoredKey(name, digest[1], expires, groups)


def _time(text: str, number: int) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"line {number}: expires is not a time such as 2027-01-31T00:00:00Z") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


__all__ = ["Keys", "StoredKey", "digest_of", "load_keys", "make_key"]

"""Bearer tokens: JWTs (RFC 7519) with a signature that a public key verifies. joserfc does the cryptography."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pixy.auth.principal import Principal, checked_name
from pixy.config.security import Jwt
from pixy.errors import Unauthenticated

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

MAX_TOKEN: Final = 16 * 1024
"""Characters of a token."""
MAX_GROUPS: Final = 200
_SHORT: Final = 2048
"""Characters of a token that is remembered itself, because its hash would take 2 us of each request; of others the SHA-256 is."""


class UnknownTokenKey(Unauthenticated):
    """No key that we have may have signed the token; the issuer may have a newer one."""

    def __init__(self) -> None:
        super().__init__("the token is signed with an unknown key", "unknown_key")


class Tokens:
    """Verifies tokens, and remembers those that it has verified until they expire.

    Args:
        config: ``auth.jwt``.
        changed: called when other keys count, so that tokens may not be known any more.
    """

    def __init__(self, config: Jwt, changed: Callable[[], None] = lambda: None) -> None:
        import joserfc.jwt  # noqa: F401 (here, not in the first request: it takes a moment, and a daemon without tokens does without)

        self._config = config
        self._changed = changed
        self._keys: KeySet | None = None
        self._cache: dict[str | bytes, tuple[Principal, float]] = {}

    def use(self, keys: KeySet) -> None:
        """Verify with these keys from now on; a token that another key has signed is not known any more."""
        if self._keys is None or self._keys.as_dict() != keys.as_dict():
            self._keys = keys
            self._cache.clear()
            self._changed()

    def verify(self, token: str, now: float) -> Principal:
        """Return whose token it is. See :meth:`find`."""
        return self.find(token, now)[0]

    def find(self, token: str, now: float) -> tuple[Principal, float]:
        """Return whose token it is, and when it ends, in seconds since 1970.

        Args:
            token: as the client sent it.
            now: seconds since 1970.

        Raises:
            UnknownTokenKey: it may be signed with a newer key.
            Unauthenticated: it is not valid, or not for us, or not at this time.
        """
        if len(token) > MAX_TOKEN:
            raise Unauthenticated("the token is too long", "bad_token")
        key: str | bytes = token
        if len(token) > _SHORT:
            key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._cache.get(key)
        if known is not None and now < known[1]:
            return known
        claims = self._claims(token, now)
        found = self._principal(claims), _end(claims["exp"]) + self._config.clock_skew
        if len(self._cache) >= self._config.max_cached:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = found
        return found

    def _claims(self, token: str, now: float) -> dict[str, Any]:
        from joserfc import errors, jwt

        if self._keys is None:
            raise UnknownTokenKey
        config = self._config
        checks = jwt.JWTClaimsRegistry(
            now=int(now),
            leeway=int(config.clock_skew),
            exp={"essential": True},
            iss={"essential": True, "value": config.issuer},
            aud={"essential": True, "value": config.audience},
        )
        try:
            claims = jwt.decode(token, self._keys, algorithms=config.algorithms).claims
            checks.validate(claims)
        except errors.InvalidKeyIdError:
            raise UnknownTokenKey from None
        except errors.ExpiredTokenError:
            raise Unauthenticated("the token has expired", "expired") from None
        except errors.InvalidClaimError as error:
            raise Unauthenticated(
                f"the token's claims do not fit: {error.description}", "bad_claims"
            ) from None
        except errors.MissingClaimError as error:
            raise Unauthenticated(f"the token lacks claims: {error.description}", "bad_claims") from None
        except Exception:  # whatever a stranger's bytes may raise in the library: not a token of ours
            raise Unauthenticated("the token is not valid", "bad_token") from None
        return dict(claims)

    def _principal(self, claims: dict[str, Any]) -> Principal:
        name = checked_name("jwt", claims.get(self._config.name_claim))
        found = claims.get(self._config.groups_claim) if self._config.groups_claim else None
        groups = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
        if len(groups) > MAX_GROUPS:
            raise Unauthenticated(f"the token names more than {MAX_GROUPS} groups", "bad_claims")
        return Principal(name, frozenset(each for each in groups if isinstance(each, str)))


def _end(claim: Any) -> float:
    """Return the end of a token in seconds since 1970; a number of JSON may be larger than any float. Raises Unauthenticated."""
    try:
        end = float(claim)
    except (OverflowError, TypeError, ValueError):
        end = math.inf
    if not math.isfinite(end):
        raise Unauthenticated("the token's claims do not fit: exp is no time", "bad_claims")
    return end


__all__ = ["MAX_TOKEN", "Tokens", "UnknownTokenKey"]

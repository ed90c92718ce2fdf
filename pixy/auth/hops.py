"""Proofs that a request was forwarded by a peer, and for whom. Pure: the time and the nonces are arguments.

A proof is ``PAYLOAD.MAC``, both in base64url. The payload is JSON: from which node to which, when, a nonce that counts once,
the caller, and the SHA-256 of the body. The MAC is HMAC-SHA-256 with the secret that all peers share, over the payload,
the method and the target of the request. So a proof is worth nothing for another request, another peer, or a second time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pixy.auth.principal import Principal
from pixy.errors import Unauthenticated

PROOF_HEADER: Final = "X-Kafka-Pixy-Hop"
LIFETIME: Final = 30.0
"""Seconds that a proof is good for, before and after its time: clocks of peers may differ by that much."""
MAX_NONCES: Final = 200_000
"""Nonces that are remembered. More requests than that within two lifetimes are refused."""
_MAX_PROOF: Final = 64 * 1024
_CONTEXT: Final = b"kafka-pixy hop 1"


@dataclass(frozen=True, slots=True)
class Hop:
    """A request that a peer has forwarded.

    Attributes:
        node: the peer's.
        principal: for whom; None: the peer recognizes nobody (``auth`` is off there).
        body: the SHA-256 of the body, in hex.
    """

    node: str
    principal: Principal | None
    body: str

    def check_body(self, body: bytes) -> None:
        """Raise Unauthenticated unless this is the body that the peer has sent."""
        if not hmac.compare_digest(self.body, hashlib.sha256(body).hexdigest()):
            raise Unauthenticated("the request was changed on its way from a peer", "bad_hop")


class Hops:
    """Makes and checks proofs.

    Args:
        secret: shared by all peers; at least 32 characters.
        node: this daemon's.
        peers: the other nodes.
        wall: seconds since 1970.
        nonce: makes a nonce.
    """

    def __init__(
        self,
        secret: str,
        node: str,
        peers: Iterable[str],
        wall: Callable[[], float] = time.time,
        nonce: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._secret = secret.encode()
        self._node = node
        self._peers = frozenset(peers) - {node}
        self._wall = wall
        self._nonce = nonce
        self._seen: dict[str, float] = {}

    def sign(self, to: str, method: str, target: str, principal: Principal | None, body: bytes) -> str:
        """Make the proof of a request that is forwarded.

        Args:
            to: the peer's node.
            method: of HTTP.
            target: path and query, as sent.
            principal: for whom it is forwarded.
            body: of the request, as sent.
        """
        document = {
            "from": self._node,
            "to": to,
            "at": self._wall(),
            "nonce": self._nonce(),
            "who": principal.name if principal is not None else None,
            "groups": sorted(principal.groups) if principal is not None else [],
            "body": hashlib.sha256(body).hexdigest(),
        }
        payload = base64.urlsafe_b64encode(json.dumps(document).encode())
        return b".".join((payload, self._mac(payload, method, target))).decode()

    def verify(self, proof: str, method: str, target: str) -> Hop:
        """Check the proof of a request, which then counts no more.

        Args:
            proof: as received.
            method: of HTTP.
            target: path and query, as received.

        Raises:
            Unauthenticated: it is not a peer's, or not for this request, this daemon or this time, or was used.
        """
        payload, _, mac = proof.encode("utf-8", "surrogateescape").partition(b".")
        if len(proof) > _MAX_PROOF or not hmac.compare_digest(mac, self._mac(payload, method, target)):
            raise _refused()
        document: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload))
        now, at = self._wall(), float(document["at"])
        if document["to"] != self._node or document["from"] not in self._peers:
            raise _refused()
        if abs(now - at) > LIFETIME:
            raise Unauthenticated(
                "the request was forwarded too long ago, or clocks of peers differ", "bad_hop"
            )
        self._use(document["nonce"], at + LIFETIME, now)
        who = document["who"]
        principal = None if who is None else Principal(who, frozenset(document["groups"]))
        return Hop(document["from"], principal, document["body"])

    def _use(self, nonce: str, until: float, now: float) -> None:
        if nonce in self._seen:
            raise _refused()
        if len(self._seen) >= MAX_NONCES:
            self._seen = {each: end for each, end in self._seen.items() if end >= now}
            if len(self._seen) >= MAX_NONCES:
                raise _refused()
        self._seen[nonce] = until

    def _mac(self, payload: bytes, method: str, target: str) -> bytes:
        signed = b"\n".join((_CONTEXT, method.encode(), target.encode("utf-8", "surrogateescape"), payload))
        return base64.urlsafe_b64encode(hmac.digest(self._secret, signed, "sha256"))


def _refused() -> Unauthenticated:
    return Unauthenticated("the request says that a peer has forwarded it, but does not prove it", "bad_hop")


__all__ = ["LIFETIME", "PROOF_HEADER", "Hop", "Hops"]

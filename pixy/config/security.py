"""The sections of the configuration about who may do what, and who did: ``auth``, ``rules``, ``limits``, ``audit``, ``access_log``.

:mod:`pixy.auth` gives them their meaning; docs/security.md explains them with worked set-ups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from msgspec import Meta

from pixy.config.kinds import (
    AnyDuration,
    AnyInt,
    Duration,
    PositiveDuration,
    PositiveInt,
    seconds as _seconds,
)

VERBS: Final = ("produce", "consume", "ack", "describe", "admin", "console")
"""The verbs that a rule may allow."""
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA",
)  # fmt: skip
"""Signatures of tokens: with a public key only, so that a daemon that checks tokens cannot make any."""
OWN: Final = "own"
OTHERS: Final = (OWN, "refuse")
"""For callers without a Kafka identity: use the daemon's own one, or refuse them."""
CERTIFICATE_NAMES: Final = ("cn", "dns", "uri", "email")


@dataclass(slots=True)
class Jwt:
    """``auth.jwt``"""

    issuer: str = ""
    audience: str = ""
    jwks_file: str = ""
    jwks_url: str = ""
    jwks_refresh: PositiveDuration = _seconds(300)
    jwks_timeout: PositiveDuration = _seconds(5)
    algorithms: list[str] = field(default_factory=lambda: ["RS256", "PS256", "ES256", "Ed25519", "EdDSA"])
    clock_skew: AnyDuration = _seconds(30)
    name_claim: str = "sub"
    groups_claim: str = ""
    max_cached: PositiveInt = 10_000


@dataclass(slots=True)
class Auth:
    """``auth``: who a caller is."""

    enabled: bool = False
    keys_file: str = ""
    basic: bool = False
    jwt: Jwt = field(default_factory=Jwt)
    certificates: bool = False
    certificate_name: str = "cn"
    peer_uid: bool = False
    anonymous: bool = False
    groups: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Rule:
    """One element of ``rules``: what some principals may do."""

    who: list[str] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)
    clusters: list[str] = field(default_factory=lambda: ["*"])
    topics: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Limit:
    """One element of ``limits``: what each of some principals may use. 0: no limit."""

    who: list[str] = field(default_factory=list)
    requests_per_second: Annotated[float, Meta(ge=0)] = 0.0
    bytes_per_second: Annotated[float, Meta(ge=0)] = 0.0
    burst: PositiveDuration = _seconds(1)
    waiting_polls: AnyInt = 0
    groups: AnyInt = 0
    instances: AnyInt = 0
    new_topics_per_minute: AnyInt = 0


@dataclass(slots=True)
class Audit:
    """``audit``: the log of what callers do."""

    path: str = ""
    topic: str = ""
    cluster: str = ""
    delivery_timeout: Annotated[Duration, Meta(ge=1, le=86_400)] = _seconds(60)
    verbs: list[str] = field(default_factory=lambda: ["admin"])
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.0
    max_queued: Annotated[int, Meta(gt=0, le=10_000_000)] = 10_000

    @property
    def enabled(self) -> bool:
        """True if records are written anywhere."""
        return bool(self.path or self.topic)


@dataclass(slots=True)
class Identity:
    """One element of ``proxies.X.identities.users``: as whom some principals reach Kafka."""

    who: list[str] = field(default_factory=list)
    user: str = ""
    password: str = ""
    password_file: str = ""


@dataclass(slots=True)
class Identities:
    """``proxies.X.identities``: callers whom Kafka sees as somebody else than the daemon."""

    users: dict[str, Identity] = field(default_factory=dict)
    others: str = OWN
    max: PositiveInt = 16
    idle_timeout: Annotated[Duration, Meta(ge=60)] = _seconds(600)


@dataclass(slots=True)
class AccessLog:
    """``access_log``: a line for each request."""

    path: str = ""
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    max_queued: PositiveInt = 10_000

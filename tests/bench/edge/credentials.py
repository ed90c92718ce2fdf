"""Credentials for the measurements, and a configuration that accepts them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwk, jwt

from pixy.auth.keys import StoredKey, make_key

RULES = [
    {"who": ["key:audit", "group:auditors"], "verbs": ["describe"], "topics": ["*"], "groups": ["*"]},
    {"who": ["key:shop-*"], "verbs": ["produce"], "topics": ["orders.*", "payments"]},
    {"who": ["group:billing"], "verbs": ["consume", "ack"], "topics": ["orders.*"], "groups": ["billing-*"]},
    {"who": ["key:caller-*", "jwt:caller-*"], "verbs": ["produce"], "topics": ["*"]},
]
"""As a team might have them; the last one allows what is measured."""


@dataclass
class Credentials:
    """An API key, another one, and a JWT."""

    key: str
    other: str
    jwt: str


def make(folder: Path) -> Credentials:
    """Make credentials; the folder gets the files that the daemon reads."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = [make_key(f"caller-{number}") for number in range(2)]
    (folder / "keys").write_text("".join(_line(stored) for _, stored in keys))
    signer = jwk.ECKey.generate_key("P-256", {"kid": "1"})
    (folder / "jwks.json").write_text(json.dumps({"keys": [signer.as_dict(private=False)]}))
    now = int(time.time())
    claims = {"iss": "https://issuer.example", "aud": "kafka-pixy", "sub": "caller-0"}
    claims |= {"iat": now, "exp": now + 86400, "roles": ["developers", "operators", "billing-readers"]}
    token = jwt.encode({"alg": "ES256", "kid": "1"}, claims, signer)
    return Credentials(keys[0][0], keys[1][0], token)


def _line(key: StoredKey) -> str:
    return f"{key.name} sha256:{key.digest}\n"


def configuration(folder: Path, name: str, bootstrap: str, **more: Any) -> Path:
    """Write a configuration with ``auth``, and return its path."""
    jwt_section = {
        "issuer": "https://issuer.example",
        "audience": "kafka-pixy",
        "jwks_file": str(folder / "jwks.json"),
        "groups_claim": "roles",
    }
    document = {
        "auth": {"enabled": True, "keys_file": str(folder / "keys"), "jwt": jwt_section},
        "rules": RULES,
        "proxies": {"default": {"kafka": {"seed_peers": [bootstrap]}}},
        **more,
    }
    path = folder / f"{name}.yaml"
    path.write_bytes(msgspec.yaml.encode(document))
    return path


__all__ = ["Credentials", "configuration", "make"]

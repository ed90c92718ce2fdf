"""One way from credentials to a principal, whatever the transport."""

from __future__ import annotations

import base64
import datetime
import json
import math
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from pixy.auth.authenticator import Authenticator
from pixy.auth.certificates import Certificates
from pixy.auth.keys import make_key
from pixy.auth.principal import Caller, Credentials, Principal
from pixy.auth.tokens import UnknownTokenKey
from pixy.config.security import Auth, Jwt
from pixy.errors import ConfigError, Unauthenticated

NOW = 1_900_000_000.0
KEY, STORED = make_key("app", groups=["ops"])
SIGNER = ECKey.generate_key("P-256", {"kid": "a"})
CA = trustme.CA()


def certificate(name: str | None = "shop", *identities: str) -> bytes:
    issued = CA.issue_cert(*(identities or ("localhost",)), common_name=name)
    return issued.cert_chain_pems[0].bytes()


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def token(key: Any = SIGNER) -> str:
    claims = {"iss": "i", "aud": "a", "sub": "alice", "exp": NOW + 60}
    return "Bearer " + jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)


@pytest.fixture
def config(tmp_path: Path) -> Auth:
    keys, public = tmp_path / "keys", tmp_path / "jwks"
    keys.write_text(STORED.line())
    public.write_text(json.dumps({"keys": [SIGNER.as_dict(private=False)]}))
    return Auth(
        enabled=True,
        keys_file=str(keys),
        basic=True,
        jwt=Jwt(issuer="i", audience="a", jwks_file=str(public)),
        certificates=True,
        peer_uid=True,
        anonymous=True,
    )


def who(config: Auth, **seen: Any) -> str:
    return Authenticator(config, lambda: NOW).recognize(Credentials(**seen)).name


def test_each_credential_names_its_principal(config: Auth) -> None:
    assert who(config, api_key=KEY) == "key:app"
    assert who(config, authorization=f"Bearer {KEY}") == "key:app"
    assert who(config, authorization=f"bEaReR   {KEY} ") == "key:app"
    assert who(config, authorization=basic(f"app:{KEY}")) == "key:app"
    assert who(config, authorization=token()) == "jwt:alice"
    assert who(config, certificate=certificate()) == "cert:shop"
    assert who(config, uid=1000) == "uid:1000"
    assert who(config) == "anonymous"


def test_when_each_credential_ends(config: Auth) -> None:
    authenticator = Authenticator(config, lambda: NOW - 1)
    pem = certificate()
    end = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    for seen, until in (
        (Credentials(api_key=KEY), math.inf),
        (Credentials(authorization=token()), NOW + 60 + config.jwt.clock_skew),
        (Credentials(certificate=pem), end),
        (Credentials(uid=1000), math.inf),
        (Credentials(), math.inf),
        (Credentials(principal=Principal("key:of a peer")), -math.inf),
    ):
        principal, found = authenticator.identify(seen)
        assert found == until
        caller = Caller(principal, until=found, generation=authenticator.generation)
        assert authenticator.holds(caller) is (found > NOW - 1)
    for earlier in (Caller(principal), Caller(principal, until=math.inf)):
        assert not authenticator.holds(earlier)


@pytest.mark.parametrize(
    "error",
    [
        x509.UnsupportedGeneralNameType("x400Address"),
        x509.DuplicateExtension("twice", x509.OID_SUBJECT_ALTERNATIVE_NAME),
        x509.InvalidVersion("4", 4),
        ValueError("not DER"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_certificate_that_cannot_be_read_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_data: bytes) -> None:
        raise error

    monkeypatch.setattr(x509, "load_pem_x509_certificate", fail)
    with pytest.raises(Unauthenticated, match="cannot be read"):
        Certificates("dns").principal(certificate(), NOW)


def test_what_is_sent_counts_before_what_the_connection_shows(config: Auth) -> None:
    assert who(config, api_key=KEY, certificate=certificate(), uid=0) == "key:app"
    assert who(config, certificate=certificate(), uid=0) == "cert:shop"


@pytest.mark.parametrize(
    "sent",
    [
        {"api_key": ""},
        {"api_key": "kp_wrong"},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer kp_wrong"},
        {"authorization": "Bearer a.b.c"},
        {"authorization": "Digest x"},
        {"authorization": KEY},
        {"authorization": "Basic !"},
        {"authorization": "Basic " + base64.b64encode(b"\xff:\xff").decode()},
        {"authorization": basic("app")},
        {"authorization": basic(f"other:{KEY}")},
        {"authorization": basic(f":{KEY}")},
        {"authorization": f"Bearer {KEY}", "api_key": KEY},
    ],
)
def test_a_wrong_credential_never_falls_back_to_another(config: Auth, sent: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        who(config, **sent, certificate=certificate(), uid=0)


@pytest.mark.parametrize(
    ("off", "seen"),
    [
        ({"basic": False}, {"authorization": basic(f"app:{KEY}")}),
        ({"keys_file": ""}, {"api_key": KEY}),
        ({"jwt": Jwt()}, {"authorization": token()}),
        ({"certificates": False, "anonymous": False}, {"certificate": certificate()}),
        ({"peer_uid": False, "anonymous": False}, {"uid": 0}),
        ({"anonymous": False}, {}),
    ],
)
def test_what_is_off_recognizes_nobody(config: Auth, off: dict[str, Any], seen: dict[str, Any]) -> None:
    for name, value in off.items():
        setattr(config, name, value)
    with pytest.raises(Unauthenticated):
        who(config, **seen)


def test_loading_again_takes_new_keys_and_keeps_the_old_ones_if_it_fails(config: Auth) -> None:
    authenticator = Authenticator(config, lambda: NOW)
    second, stored = make_key("second")
    Path(config.keys_file).write_text(stored.line())
    use = authenticator.read()
    assert authenticator.recognize(Credentials(api_key=KEY)).name == "key:app"
    use()
    assert authenticator.recognize(Credentials(api_key=second)).name == "key:second"
    with pytest.raises(Unauthenticated):
        authenticator.recognize(Credentials(api_key=KEY))
    Path(config.keys_file).write_text("nonsense")
    with pytest.raises(ConfigError):
        authenticator.read()
    assert authenticator.recognize(Credentials(api_key=second)).name == "key:second"


async def test_a_token_of_a_new_key_makes_the_daemon_ask_its_issuer(config: Auth) -> None:
    authenticator = Authenticator(config, lambda: NOW)
    new = ECKey.generate_key("P-256", {"kid": "b"})

    class Remote:
        async def look_again(self) -> bool:
            assert authenticator._tokens is not None
            authenticator._tokens.use(KeySet([SIGNER, new]))
            return True

    seen = Credentials(authorization=token(new))
    for _ in range(2):
        with pytest.raises(UnknownTokenKey):
            authenticator.recognize(seen)
        with pytest.raises(UnknownTokenKey):
            await authenticator.look_again(seen)
    authenticator._remote = Remote()  # type: ignore[assignment]
    assert (await authenticator.look_again(seen))[0].name == "jwt:alice"


# -- certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "identities", "name"),
    [
        ("cn", ["localhost"], "cert:shop"),
        ("dns", ["shop.example"], "cert:shop.example"),
        ("email", ["shop@example.org"], "cert:shop@example.org"),
    ],
)
def test_where_the_name_stands(kind: str, identities: list[str], name: str) -> None:
    assert Certificates(kind).principal(certificate("shop", *identities), NOW).name == name


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("cn", certificate(None)),
        ("dns", certificate("shop", "a.example", "b.example")),
        ("uri", certificate("shop")),
        ("cn", certificate("a\nb")),
        ("cn", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("cn", b"\x30\x00"),
    ],
)
def test_a_certificate_without_one_name_names_nobody(kind: str, data: bytes) -> None:
    with pytest.raises(Unauthenticated):
        Certificates(kind).principal(data, NOW)


def test_pem_and_der_are_the_same_and_end_at_the_same_time() -> None:
    pem = certificate()
    read = x509.load_pem_x509_certificate(pem)
    end = read.not_valid_after_utc.timestamp()
    assert end > datetime.datetime.now(datetime.UTC).timestamp()
    found = Certificates("cn")
    for data in (pem, read.public_bytes(serialization.Encoding.DER)):
        assert found.principal(data, end - 1).name == "cert:shop"
        with pytest.raises(Unauthenticated, match="has expired"):
            found.principal(data, end)

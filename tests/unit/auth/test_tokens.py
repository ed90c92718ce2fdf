"""Bearer tokens: whose they are, and why others are none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey

from pixy.auth import jwks
from pixy.auth.tokens import MAX_TOKEN, Tokens, UnknownTokenKey
from pixy.config.security import ALGORITHMS, Jwt
from pixy.errors import ConfigError, Unauthenticated

NOW = 1_000_000.0
KEYS = {
    "RS256": RSAKey.generate_key(2048, {"kid": "r"}),
    "PS256": RSAKey.generate_key(2048, {"kid": "p"}),
    "ES256": ECKey.generate_key("P-256", {"kid": "e"}),
    "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "d"}),
}
CLAIMS = {"iss": "https://issuer", "aud": "pixy", "sub": "alice", "exp": NOW + 60}


def public(*keys: Any) -> KeySet:
    return jwks.parse(json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode())


def verifier(**changed: Any) -> Tokens:
    tokens = Tokens(Jwt(issuer="https://issuer", audience="pixy", algorithms=list(ALGORITHMS), **changed))
    tokens.use(public(*KEYS.values()))
    return tokens


def token(alg: str = "ES256", key: Any = None, header: dict[str, Any] | None = None, **changed: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    key = key or KEYS[alg]
    return jwt.encode({"alg": alg, "kid": key.kid, **(header or {})}, claims, key, algorithms=[alg])


@pytest.mark.parametrize("alg", KEYS)
def test_a_token_of_each_kind_of_key_names_its_owner(alg: str) -> None:
    assert verifier().verify(token(alg), NOW).name == "jwt:alice"


@pytest.mark.parametrize("groups", [["ops", "dev"], "ops dev"])
def test_groups_and_another_name(groups: Any) -> None:
    found = verifier(groups_claim="roles", name_claim="client").verify(token(roles=groups, client="app"), NOW)
    assert (found.name, found.groups) == ("jwt:app", {"ops", "dev"})
    assert verifier().verify(token(groups=groups), NOW).groups == frozenset()


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "other"},
        {"aud": ["other", "more"]},
        {"aud": None},
        {"exp": None},
        {"exp": "soon"},
        {"exp": float("nan")},
        {"exp": True},
        {"exp": 10**400},
        {"exp": float("inf")},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a\nb"},
        {"sub": "x" * 300},
        {"nbf": NOW + 3600},
        {"iat": NOW + 3600},
    ],
)
def test_claims_that_do_not_fit(wrong: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        verifier().verify(token(**wrong), NOW)


def test_clocks_may_differ_by_the_skew_and_no_more() -> None:
    tokens = verifier(clock_skew=30.0)
    assert tokens.verify(token(exp=NOW - 29), NOW).name == "jwt:alice"
    assert tokens.verify(token(nbf=NOW + 30), NOW).name == "jwt:alice"
    with pytest.raises(Unauthenticated, match="has expired"):
        tokens.verify(token(exp=NOW - 30), NOW)
    with pytest.raises(Unauthenticated):
        tokens.verify(token(nbf=NOW + 32), NOW)


def test_a_cached_token_expires_like_any_other_and_is_not_verified_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, text = verifier(clock_skew=0.0), token(exp=NOW + 60)
    tokens.verify(text, NOW)
    verified: list[str] = []
    decode = jwt.decode
    monkeypatch.setattr(
        jwt, "decode", lambda *args, **named: (verified.append("x"), decode(*args, **named))[1]
    )
    assert tokens.verify(text, NOW + 59).name == "jwt:alice"
    assert verified == []
    with pytest.raises(Unauthenticated, match="has expired"):
        tokens.verify(text, NOW + 60)
    assert verified == ["x"]


def test_of_a_long_token_its_hash_is_remembered() -> None:
    tokens, short = verifier(), token()
    long = token(other="x" * 3000)
    assert tokens.verify(long, NOW) == tokens.verify(short, NOW)
    assert tokens.verify(long, NOW) is tokens.verify(long, NOW)
    assert [len(key) for key in tokens._cache] == [32, len(short)]


def test_the_cache_is_bounded() -> None:
    tokens = verifier(max_cached=3)
    for number in range(10):
        tokens.verify(token(sub=f"s{number}"), NOW)
    assert len(tokens._cache) == 3


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
def test_signatures_that_are_none() -> None:
    tokens = verifier()
    right = token()
    head, claims, signature = right.split(".")
    other = ECKey.generate_key("P-256", {"kid": "e"})
    secret = OctKey.import_key(json.dumps(KEYS["RS256"].as_dict(private=False)), {"kid": "r"})
    forged = jwt.encode({"alg": "HS256", "kid": "r"}, CLAIMS, secret, algorithms=["HS256"])
    unsigned = jwt.encode({"alg": "none"}, CLAIMS, secret, algorithms=["none"])
    for wrong in (
        "",
        ".",
        "a.b.c",
        "\udcff.b.c",
        f"{head}.{claims}.",
        f"{head}.{claims}.{signature[:-4]}AAAA",
        f"{head}.{token(sub='root').split('.')[1]}.{signature}",
        token(key=other),
        token("RS256", KEYS["PS256"], {"kid": "e"}),
        forged,
        unsigned,
        "x" * (MAX_TOKEN + 1),
        "." * MAX_TOKEN,
    ):
        with pytest.raises(Unauthenticated):
            tokens.verify(wrong, NOW)


def test_an_algorithm_that_is_not_listed_does_not_count() -> None:
    tokens = verifier()
    tokens._config.algorithms = ["ES256"]
    with pytest.raises(Unauthenticated):
        tokens.verify(token("RS256"), NOW)


def test_other_keys_end_what_earlier_ones_have_signed() -> None:
    tokens, text = verifier(), token()
    tokens.verify(text, NOW)
    tokens.use(public(KEYS["RS256"], KEYS["PS256"]))
    with pytest.raises(UnknownTokenKey):
        tokens.verify(text, NOW)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": [{"kty": "RSA"}]}', b'{"keys": []}']
)
def test_a_document_without_keys_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        jwks.parse(data)


def test_a_shared_secret_among_the_keys_is_left_out() -> None:
    secret = OctKey.generate_key(256, {"kid": "s"}).as_dict()
    keys = [secret, KEYS["ES256"].as_dict(private=False)]
    assert [key.kid for key in jwks.parse(json.dumps({"keys": keys}).encode())] == ["e"]
    with pytest.raises(ValueError):
        jwks.parse(json.dumps({"keys": [secret]}).encode())


def test_a_file_that_cannot_be_read_says_why(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"auth\.jwt\.jwks_file: .*no such file"):
        jwks.load(str(tmp_path / "none"))


class Issuer:
    """A URL of keys whose answers a test decides."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0
        self.answer: Callable[[], bytes] = lambda: b""
        self.found: list[KeySet] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.keys = jwks.RemoteKeys(Jwt(jwks_url="u"), self.found.append, lambda: self.now, self._get)

    async def _get(self, _url: str, _timeout: float) -> bytes:
        self.asked += 1
        await self.gate.wait()
        return self.answer()


def document(*keys: Any) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


async def test_strangers_cannot_make_the_daemon_ask_the_issuer_often() -> None:
    issuer = Issuer()
    issuer.answer = lambda: document(KEYS["ES256"])
    assert await issuer.keys.look_again() is True
    for _ in range(50):
        assert await issuer.keys.look_again() is False
    assert issuer.asked == 1
    issuer.now += jwks.LOOK_AGAIN
    assert await issuer.keys.look_again() is True
    assert issuer.asked == 2


async def test_all_who_wait_share_one_fetch() -> None:
    issuer = Issuer()
    issuer.answer = lambda: document(KEYS["ES256"])
    issuer.gate.clear()
    waiting = [asyncio.create_task(issuer.keys.look_again()) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting[0].cancel()
    issuer.gate.set()
    assert await asyncio.gather(*waiting[1:]) == [True] * 19
    assert issuer.asked == 1 and len(issuer.found) == 1


@pytest.mark.parametrize("answer", [b"<html>", b'{"keys": []}', b"x" * (jwks.MAX_BYTES + 1)])
async def test_while_the_issuer_answers_nonsense_the_last_keys_stay(answer: bytes) -> None:
    issuer = Issuer()
    issuer.answer = lambda: answer
    assert await issuer.keys.look_again() is True
    assert issuer.found == []


async def test_keys_come_over_http() -> None:
    from aiohttp import web

    async def serve(request: web.Request) -> web.Response:
        if request.path == "/keys":
            return web.Response(body=document(KEYS["ES256"]))
        if request.path == "/long":
            return web.Response(body=b" " * (jwks.MAX_BYTES + 1))
        raise web.HTTPFound("/keys")

    app = web.Application()
    app.router.add_get("/{tail:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        assert [key.kid for key in jwks.parse(await jwks.fetch(f"{base}/keys", 5.0))] == ["e"]
        for path, why in (("/long", "longer than"), ("/other", "status 302")):
            with pytest.raises(ValueError, match=why):
                await jwks.fetch(base + path, 5.0)
    finally:
        await runner.cleanup()

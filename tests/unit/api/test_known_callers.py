"""Callers who are recognized without verifying their credentials again: what ends a credential or a right ends it at once.

Each time it is the same connection and the same head.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from pixy.api.edge.connections import Slot
from pixy.api.rest.identity import again, remember
from pixy.auth import jwks
from pixy.auth.hops import PROOF_HEADER
from pixy.auth.keys import make_key
from pixy.auth.principal import Caller, Principal, current
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy, validate
from pixy.config.security import Rule
from pixy.engine.engine import Engine
from pixy.kafka.sandbox import Sandbox
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

NOW = 1_900_000_000.0
SKEW = 30.0
KEY, STORED = make_key("app")
OTHER, OTHER_STORED = make_key("other")
ENDING, ENDING_STORED = make_key("ending", NOW + 60 + SKEW)
SIGNER, NEXT = (ECKey.generate_key("P-256", {"kid": name}) for name in "ab")
MAY = [Rule(["key:*", "jwt:*"], ["produce"], topics=["t"])]


def token(key: Any = SIGNER, name: str = "alice") -> str:
    claims = {"iss": "i", "aud": "a", "sub": name, "exp": NOW + 60}
    return jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)


def document(key: Any) -> str:
    return json.dumps({"keys": [key.as_dict(private=False)]})


class Cluster:
    """Takes whatever the guard lets through."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

    async def produce_async(self, *_message: Any) -> None:
        pass


class Daemon:
    """An engine whose clock a test sets, and one connection to each of its APIs."""

    def __init__(self, engine: Engine, folder: Path, stack: contextlib.AsyncExitStack) -> None:
        self.engine = engine
        self._stack = stack
        self.folder = folder
        assert engine.guard is not None
        self.authenticator = engine.guard.authenticator
        self.now = NOW
        self.authenticator.wall = lambda: self.now

    async def connect(self, api: str, sent: dict[str, str]) -> Callable[[], Awaitable[str]]:
        """Return a function that produces, always by the same bytes, and returns the status."""
        if api == "grpc":
            channel = grpc.aio.insecure_channel(self.engine.addresses["grpc"])
            self._stack.push_async_callback(channel.close)
            stub = KafkaPixyStub(channel)

            async def call() -> str:
                try:
                    await stub.Produce(
                        pb.ProdRq(topic="t", message=b"m", async_mode=True),
                        metadata=tuple((name.lower(), value) for name, value in sent.items()),
                        timeout=20,
                    )
                except grpc.aio.AioRpcError as error:
                    return str(error.code().name)
                return "OK"

            return call
        ask = await self.rest()
        return lambda: ask(sent)

    async def rest(self) -> Callable[[dict[str, str]], Awaitable[str]]:
        """Return a function that produces with some headers, always over the same connection, and returns the status."""
        reader, writer = await asyncio.open_connection(*self.engine.addresses["rest"].rsplit(":", 1))
        self._stack.callback(writer.close)

        async def ask(sent: dict[str, str]) -> str:
            lines = {"Host": "localhost", "Content-Type": "text/plain", "Content-Length": "1", **sent}
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"POST /topics/t/messages HTTP/1.1\r\n{head}\r\nm".encode())
            answer = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode().lower()
            await reader.readexactly(int(answer.partition("content-length: ")[2].partition("\r\n")[0]))
            return {"200": "OK", "401": "UNAUTHENTICATED", "403": "PERMISSION_DENIED"}[answer[9:12]]

        return ask

    async def read_keys(self, file: str, text: str) -> None:
        (self.folder / file).write_text(text)
        (await self.engine.read_keys())()


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    (tmp_path / "keys").write_text("\n".join(each.line() for each in (STORED, OTHER_STORED, ENDING_STORED)))
    (tmp_path / "jwks").write_text(document(SIGNER))
    config = App(grpc_addr="127.0.0.1:0", tcp_addr="127.0.0.1:0")
    sandbox = Sandbox()
    config.proxies["default"] = Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))
    config.auth.enabled, config.auth.keys_file = True, str(tmp_path / "keys")
    config.auth.jwt.issuer, config.auth.jwt.audience = "i", "a"
    config.auth.jwt.jwks_file, config.auth.jwt.clock_skew = str(tmp_path / "jwks"), SKEW
    config.rules = MAY
    engine = Engine(validate(config))
    await engine.start(listeners(engine, config))
    engine._clusters["default"] = Cluster(config.proxies["default"])  # type: ignore[assignment]
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(engine.stop)
        yield Daemon(engine, tmp_path, stack)


KINDS = {
    "key": {"X-API-Key": KEY},
    "ending key": {"X-API-Key": ENDING},
    "jwt": {"Authorization": f"Bearer {token()}"},
}


async def change_keys(daemon: Daemon) -> None:
    await daemon.read_keys("keys", OTHER_STORED.line())


async def change_jwks(daemon: Daemon) -> None:
    await daemon.read_keys("jwks", document(NEXT))


async def fetch_jwks(daemon: Daemon) -> None:
    """As after a fetch of ``jwks_url``."""
    assert daemon.authenticator._tokens is not None
    daemon.authenticator._tokens.use(jwks.parse(document(NEXT).encode()))


async def expire(daemon: Daemon) -> None:
    daemon.now = NOW + 60 + SKEW


async def change_rules(daemon: Daemon) -> None:
    changed = App(proxies=daemon.engine.config.proxies, auth=daemon.engine.config.auth)
    changed.rules = [Rule(["key:*", "jwt:*"], ["produce"], topics=["u"])]
    daemon.engine.reload_rules(changed)


@pytest.mark.parametrize(
    ("kind", "change", "refused"),
    [
        ("key", change_keys, "UNAUTHENTICATED"),
        ("jwt", change_jwks, "UNAUTHENTICATED"),
        ("jwt", fetch_jwks, "UNAUTHENTICATED"),
        ("jwt", expire, "UNAUTHENTICATED"),
        ("ending key", expire, "UNAUTHENTICATED"),
        ("jwt", change_rules, "PERMISSION_DENIED"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
async def test_what_ends_a_credential_or_a_right_ends_it_at_once(
    daemon: Daemon, kind: str, change: Callable[[Daemon], Awaitable[None]], refused: str
) -> None:
    asks = [await daemon.connect(api, KINDS[kind]) for api in ("rest", "grpc")]
    daemon.now = NOW + 60 + SKEW - 0.001
    for ask in asks:
        assert [await ask() for _ in range(3)] == ["OK"] * 3
    await change(daemon)
    for ask in asks:
        assert await ask() == refused


async def test_two_heads_in_turn_on_a_connection_share_nothing(daemon: Daemon) -> None:
    ask = await daemon.rest()
    heads = [KINDS["key"], {}, {"X-API-Key": f"{KEY}x"}, KINDS["jwt"], {"X-API-Key": OTHER}]
    wanted = ["OK", "UNAUTHENTICATED", "UNAUTHENTICATED", "OK", "OK"]
    assert [await ask(head) for head in heads * 2] == wanted * 2


@pytest.mark.parametrize("more", [{}, {PROOF_HEADER: "x"}], ids=["alone", "with a peer's proof"])
def test_a_head_is_remembered_unless_it_has_a_proof_that_counts_once(more: dict[str, str]) -> None:
    slot = Slot("10.0.0.1", lambda _caller: None)
    request: Any = SimpleNamespace(
        protocol=SimpleNamespace(slot=slot), headers=more, raw_headers=tuple(more.items())
    )
    guard: Any = SimpleNamespace(authenticator=SimpleNamespace(holds=lambda _caller: True))
    before = current.set(Caller(Principal("key:a")))
    try:
        remember(request)
        assert again(guard, request) is (not more)
    finally:
        current.reset(before)


@pytest.mark.parametrize("api", ["rest", "grpc"])
async def test_a_token_of_a_new_key_waits_for_its_issuer(daemon: Daemon, api: str) -> None:
    class Remote:
        def __init__(self) -> None:
            self.asked = 0

        async def look_again(self) -> bool:
            self.asked += 1
            await asyncio.sleep(0)
            assert daemon.authenticator._tokens is not None
            daemon.authenticator._tokens.use(KeySet([SIGNER, NEXT]))
            return True

    remote = Remote()
    ask = await daemon.connect(api, {"Authorization": f"Bearer {token(NEXT)}"})
    assert await ask() == "UNAUTHENTICATED"
    daemon.authenticator._remote = remote  # type: ignore[assignment]
    assert [await ask() for _ in range(3)] == ["OK"] * 3
    assert remote.asked == 1

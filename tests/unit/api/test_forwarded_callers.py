"""Two daemons with ``auth``: a request for the other's consumer instance arrives there as its caller's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict

from pixy.api.edge.proxies import HOP_HEADER
from pixy.api.restv1.peers import Peers
from pixy.auth.hops import PROOF_HEADER, Hops
from pixy.auth.keys import make_key
from pixy.auth.principal import Principal
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy, load_text, validate
from pixy.config.model import Rest
from pixy.config.security import Rule
from pixy.engine import shares
from pixy.engine.engine import Engine
from pixy.errors import ConfigError, UnknownInstance
from pixy.kafka.sandbox import Sandbox
from tests.kafka.cluster import free_port

KEY, STORED = make_key("app")
G = "billing"
PATH = f"/consumers/{G}/instances"


class Instances:
    """Notes who asks for which instance."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.callers: list[str] = []

    async def find(self, _group: str, name: str, *, owner: str = "") -> Any:
        self.callers.append(shares.caller.get())
        self.asked.append((name, owner))
        raise UnknownInstance


class Pair:
    """The daemons ``a`` and ``b``, and what stands behind each."""

    def __init__(self, engines: dict[str, Engine]) -> None:
        self.engines = engines
        self.instances = {name: Instances() for name in engines}
        for name, engine in engines.items():
            engine._clusters["default"].instances = self.instances[name]  # type: ignore[assignment]

    async def delete(
        self, node: str, name: str, headers: Mapping[str, str], source: str = "127.0.0.1"
    ) -> int:
        url = f"http://{self.engines[node].addresses['rest']}{PATH}/{name}"
        connector = aiohttp.TCPConnector(local_addr=(source, 0))
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.delete(url, headers=headers) as answer,
        ):
            return answer.status


def owned_by(node: str) -> str:
    peers = Peers(Rest(node_id="a", peers={"a": "http://a", "b": "http://b"}))
    return next(f"n{at}" for at in range(100) if (peers.owner(G, f"n{at}") or "a") == node)


@contextlib.asynccontextmanager
async def pair(
    folder: Path,
    *,
    auth: bool = True,
    secret: str = "s" * 32,
    proxies: Sequence[str] = (),
    peers: bool = True,
) -> AsyncIterator[Pair]:
    (folder / "keys").write_text(STORED.line())
    sandbox = Sandbox()
    ports = {name: free_port() for name in "ab"}
    async with contextlib.AsyncExitStack() as stack:
        engines = {}
        for name, port in ports.items():
            config = App(grpc_addr="", tcp_addr=f"127.0.0.1:{port}")
            config.proxies["default"] = Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))
            config.trusted_proxies = list(proxies)
            if peers:
                config.rest.node_id = name
                config.rest.peers = {each: f"http://127.0.0.1:{at}" for each, at in ports.items()}
                config.rest.peer_secret = secret
            config.auth.enabled, config.auth.keys_file = auth, str(folder / "keys")
            config.rules = [Rule(["key:app"], ["consume"], groups=[G])] if auth else []
            engines[name] = engine = Engine(validate(config))
            await engine.start(listeners(engine, config))
            stack.push_async_callback(engine.stop)
        yield Pair(engines)
        del sandbox


async def test_the_caller_arrives_at_the_owner_without_his_credentials(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        for sent in (
            {"X-API-Key": KEY},
            {"Authorization": f"Bearer {KEY}"},
            {"X-API-Key": KEY, HOP_HEADER: "a"},
        ):
            assert await both.delete("a", owned_by("b"), sent) == 404
            assert both.instances["b"].asked == [(owned_by("b"), "key:app")]
            both.instances["b"].asked.clear()
        assert both.instances["a"].asked == [], "a client that calls itself a peer changes nothing"


async def test_a_client_that_says_to_be_forwarded_has_to_prove_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        name = owned_by("b")
        proof = "e30=.AAAA"
        for sent in ({PROOF_HEADER: proof}, {PROOF_HEADER: proof, "X-API-Key": KEY}, {HOP_HEADER: "a"}):
            assert await both.delete("b", name, sent) == 401
        hops, target, app = Hops("s" * 32, "a", "ab"), f"{PATH}/{name}", Principal("key:app")
        good = hops.sign("b", "DELETE", target, app, b"")
        assert await both.delete("b", name, {PROOF_HEADER: good}) == 404
        assert await both.delete("b", name, {PROOF_HEADER: good}) == 401, "it was overheard, and counts once"
        changed = hops.sign("b", "DELETE", target, app, b"another body")
        assert await both.delete("b", name, {PROOF_HEADER: changed}) == 401
        assert both.instances["b"].asked == [(name, "key:app")]


async def test_headers_of_a_hop_that_are_sent_twice_or_do_not_agree_are_refused(tmp_path: Path) -> None:
    """Another reader of the request, a proxy for example, might take the other one."""
    async with pair(tmp_path) as both:
        name = owned_by("b")
        hops, target, app = Hops("s" * 32, "a", "ab"), f"{PATH}/{name}", Principal("key:app")
        foreign = Hops("t" * 32, "a", "ab").sign("b", "DELETE", target, app, b"")

        def good() -> tuple[str, str]:
            return PROOF_HEADER, hops.sign("b", "DELETE", target, app, b"")

        for sent in (
            [good(), good()],
            [good(), (PROOF_HEADER, "")],
            [good(), (PROOF_HEADER, foreign)],
            [(PROOF_HEADER, foreign), ("X-API-Key", KEY)],
            [good(), (HOP_HEADER, "b")],
            [good(), (HOP_HEADER, "a"), (HOP_HEADER, "c")],
        ):
            assert await both.delete("b", name, CIMultiDict(sent)) == 401, sent
        assert both.instances["b"].asked == []
        assert await both.delete("b", name, CIMultiDict([good(), (HOP_HEADER, "a")])) == 404


async def test_a_proof_is_refused_where_none_can_be_checked(tmp_path: Path) -> None:
    """Its request would be made as the peer, whose credentials may come with it, or as ``anonymous``."""
    async with pair(tmp_path, peers=False) as both:
        proof = Hops("s" * 32, "b", "ab").sign("a", "DELETE", f"{PATH}/x", Principal("key:shop"), b"")
        for more in ({}, {"X-API-Key": KEY}):
            assert await both.delete("a", "x", {PROOF_HEADER: proof, **more}) == 401
        assert await both.delete("a", "x", {"X-API-Key": KEY}) == 404


async def test_a_peer_is_believed_if_it_names_itself_once(tmp_path: Path) -> None:
    async with pair(tmp_path, auth=False) as both:
        name, far = owned_by("b"), ("X-Forwarded-For", "10.9.9.9")
        for sent, caller in (
            ([(HOP_HEADER, "a"), far], "10.9.9.9"),
            ([(HOP_HEADER, "a"), (HOP_HEADER, "x"), far], "127.0.0.1"),
            ([(HOP_HEADER, "x"), far], "127.0.0.1"),
        ):
            assert await both.delete("b", name, CIMultiDict(sent)) == 404
            assert both.instances["b"].callers.pop() == caller, sent


async def test_without_auth_a_secret_alone_keeps_clients_from_skipping_the_owner(tmp_path: Path) -> None:
    async with pair(tmp_path, auth=False) as both:
        assert await both.delete("a", owned_by("b"), {HOP_HEADER: "b"}) == 404
        assert both.instances["b"].asked == [(owned_by("b"), "")] and both.instances["a"].asked == []
        assert await both.delete("a", owned_by("b"), {PROOF_HEADER: "x.y"}) == 401


async def test_without_auth_the_owner_counts_a_request_for_its_client(tmp_path: Path) -> None:
    async with pair(tmp_path, auth=False, proxies=["127.0.0.3"]) as both:
        for source, says, caller in (
            ("127.0.0.2", "", "127.0.0.2"),
            ("127.0.0.2", "10.6.6.6", "127.0.0.2"),
            ("127.0.0.3", "10.6.6.6, 10.9.9.9", "10.9.9.9"),
            ("127.0.0.3", "", "127.0.0.3"),
        ):
            headers = {"X-Forwarded-For": says} if says else {}
            assert await both.delete("a", owned_by("b"), headers, source) == 404
            assert both.instances["b"].callers.pop() == caller


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("{node_id: a, peers: {b: 'http://b'}}", "auth with rest.peers needs rest.peer_secret"),
        (
            "{node_id: a, peers: {b: 'http://b'}, peer_secret: short}",
            "rest.peer_secret must have 32 characters",
        ),
    ],
)
def test_auth_does_not_trust_peers_without_a_secret(rest: str, problem: str) -> None:
    text = f"proxies: {{default: {{}}}}\nauth: {{enabled: true, peer_uid: true}}\nrest: {rest}"
    with pytest.raises(ConfigError, match=problem):
        validate(load_text(text))

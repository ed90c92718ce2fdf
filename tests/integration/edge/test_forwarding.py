"""Daemons that forward to each other, and clients that pretend to have been forwarded."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gzip
import json
from collections.abc import AsyncIterator

import pytest

from pixy.api.edge.proxies import HOP_HEADER
from pixy.api.restv1 import peers
from pixy.api.restv1.peers import Peers
from pixy.config import App
from pixy.config.model import Rest
from tests.integration.restv1.support import under_way
from tests.kafka.cluster import free_port
from tests.support import Answer, Daemon, eventually, serving

V2 = "application/vnd.kafka.v2+json"


@contextlib.asynccontextmanager
async def pair(config: App, requests: str = "forward") -> AsyncIterator[tuple[Daemon, Daemon]]:
    """The daemons ``a`` and ``b``, which have credentials for each other."""
    ports = {name: free_port() for name in "ab"}
    peers = {name: f"http://user:hunter2@127.0.0.1:{port}" for name, port in ports.items()}
    async with contextlib.AsyncExitStack() as stack:
        daemons = []
        for name, port in ports.items():
            own = copy.deepcopy(config)
            own.tcp_addr = f"127.0.0.1:{port}"
            own.rest.node_id, own.rest.peers, own.rest.peer_requests = name, dict(peers), requests
            daemons.append(await stack.enter_async_context(serving(own)))
        yield daemons[0], daemons[1]


def name_owned_by(node: str, group: str) -> str:
    both = Peers(Rest(node_id="a", peers={"a": "http://a", "b": "http://b"}))
    return next(f"n{at}" for at in range(100) if (both.owner(group, f"n{at}") or "a") == node)


async def create(daemon: Daemon, group: str, name: str, body: bytes | None = None, **headers: str) -> Answer:
    sent = {"Content-Type": V2, **{key.replace("_", "-"): value for key, value in headers.items()}}
    return await daemon.post(f"/consumers/{group}", body or json.dumps({"name": name}).encode(), headers=sent)


async def test_a_client_cannot_make_an_instance_where_it_does_not_belong(config: App, name: str) -> None:
    async with pair(config) as (one, two):
        chosen = name_owned_by("b", name)
        for node in ("a", "b", "x"):
            answer = await create(one, name, chosen, **{HOP_HEADER: node})
            assert answer.status == 421 and "belongs to node b" in answer.json["message"]
        made = await create(one, name, chosen)
        assert made.status == 200, made
        assert (await create(two, name, chosen)).status == 409, "it is at its owner"


async def test_a_packed_body_is_forwarded(config: App, name: str) -> None:
    async with pair(config) as (one, _):
        chosen = name_owned_by("b", name)
        packed = gzip.compress(json.dumps({"name": chosen}).encode())
        answer = await create(one, name, chosen, packed, Content_Encoding="gzip")
        assert (answer.status, answer.json.get("instance_id")) == (200, chosen), answer


async def test_a_packed_answer_is_forwarded_with_its_encoding(config: App, name: str) -> None:
    config.rest.gzip = True
    topic = name.ljust(249, "x")  # so that four partitions of it are an answer worth packing
    async with pair(config) as (one, _):
        await one.produce(topic, b"x")
        chosen = name_owned_by("b", name)
        assert (await create(one, name, chosen)).status == 200
        path = f"/consumers/{name}/instances/{chosen}/assignments"
        wanted = {"partitions": [{"topic": topic, "partition": number} for number in range(4)]}
        assigned = await one.post(path, json.dumps(wanted).encode(), headers={"Content-Type": V2})
        assert assigned.status == 204, assigned
        answer = await one.get(path, headers={"Accept": V2, "Accept-Encoding": "gzip"})
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.json == wanted, "the client has unpacked it, as the header says"


async def test_a_page_of_this_daemon_may_use_instances_of_others(config: App, name: str) -> None:
    config.rest.cors_origins = ["https://console.example"]
    async with pair(config) as (one, _):
        own = f"http://{one.engine.addresses['rest']}"
        for number, (group, origin) in enumerate(
            ((f"{name}a", own), (f"{name}b", "https://console.example"))
        ):
            answer = await create(one, group, name_owned_by("b", group), Origin=origin)
            assert answer.status == 200, answer
            assert answer.headers.getall("Vary") == ["Origin"]
            allowed = origin if number else None
            assert answer.headers.get("Access-Control-Allow-Origin") == allowed


async def test_a_peer_gets_each_request_once_and_no_cookies(config: App, name: str) -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            if len(heads) == 1:
                writer.write(b"HTTP/1.1 204 No Content\r\nSet-Cookie: a=1\r\nVary: A\r\nVary: B\r\n\r\n")
                heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    peer = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = peer.sockets[0].getsockname()[1]
    config.rest.node_id, config.rest.peers = "a", {"a": "http://127.0.0.1:1", "b": f"http://localhost:{port}"}
    async with serving(config) as one:
        path = f"/consumers/{name}/instances/{name_owned_by('b', name)}/records"
        first, second = [await one.get(path, headers={"Accept": V2}) for _ in range(2)]
        assert (first.status, first.headers.getall("Vary")) == (204, ["A", "B"])
        assert second.status == 503 and "belongs to node b" in second.json["message"]
        assert len(heads) == 2 and b"cookie" not in heads[1].lower()
    peer.close()


async def test_requests_that_wait_at_a_peer_hold_up_no_other(
    config: App, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound one is refused; it does not wait until a long read has ended."""
    monkeypatch.setattr(peers, "_MAX_CONNECTIONS", 2)
    async with pair(config) as (one, two):
        chosen = name_owned_by("b", name)
        await create(one, name, chosen)
        base = f"/consumers/{name}/instances/{chosen}"
        topics = json.dumps({"topics": [name]}).encode()
        subscribed = await one.post(f"{base}/subscription", topics, headers={"Content-Type": V2})
        assert subscribed.status == 204, subscribed
        accept = {"Accept": "application/vnd.kafka.binary.v2+json"}
        reads = [
            asyncio.create_task(one.get(f"{base}/records?timeout=60000", headers=accept)) for _ in range(2)
        ]
        await under_way(two, 2)
        commit = one.post(f"{base}/offsets", b"", headers={"Content-Type": V2})
        answer = await asyncio.wait_for(commit, 20)
        assert answer.status == 429 and "wait for node b" in answer.json["message"]
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)

        async def again() -> bool:
            return (await one.post(f"{base}/offsets", b"", headers={"Content-Type": V2})).status != 429

        await eventually(again)


async def test_a_peer_that_never_answers_is_given_up(config: App, name: str) -> None:
    instances = config.proxies["default"].instances
    instances.join_timeout = instances.max_read_timeout = instances.operation_timeout = 0.1
    config.rest.peer_timeout = 0.2
    taken = []
    silent = await asyncio.start_server(lambda _reader, writer: taken.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    config.rest.node_id, config.rest.peers = "a", {"a": "http://127.0.0.1:1", "b": f"http://127.0.0.1:{port}"}
    async with serving(config) as one:
        answer = await asyncio.wait_for(create(one, name, name_owned_by("b", name)), 20)
        assert answer.status == 503 and "belongs to node b" in answer.json["message"] and len(taken) == 1
    for writer in taken:
        writer.close()
    silent.close()


async def test_a_redirect_and_an_error_keep_credentials_back(config: App, name: str) -> None:
    chosen = name_owned_by("b", name)
    async with pair(config, "redirect") as (one, two):
        answer = await create(one, name, chosen)
        assert answer.status == 307
        assert answer.headers["Location"] == f"http://{two.engine.addresses['rest']}/consumers/{name}"
        assert "hunter2" not in str(answer.headers)


async def test_a_client_with_credentials_is_forwarded_with_ours(config: App, name: str) -> None:
    async with pair(config) as (one, _):
        answer = await create(one, name, name_owned_by("b", name), Authorization="Basic eDp5")
        assert answer.status == 200, answer


async def test_only_proxies_that_are_trusted_say_who_the_client_is(config: App, name: str) -> None:
    says = {"X_Forwarded_Host": "evil.example", "X_Forwarded_Proto": "https", "X_Forwarded_Prefix": "/x"}
    async with serving(config) as daemon:
        here = daemon.engine.addresses["rest"]
        for number, headers in enumerate(
            (says, {"Forwarded": "host=evil.example"}, {**says, HOP_HEADER: "b"})
        ):
            answer = await create(daemon, name, f"i{number}", **headers)
            assert answer.json["base_uri"] == f"http://{here}/consumers/{name}/instances/i{number}"
    async with pair(config) as (one, _):
        for node in "ab":
            chosen = name_owned_by(node, name)
            answer = await create(one, name, chosen, **says)
            assert (
                answer.json["base_uri"]
                == f"http://{one.engine.addresses['rest']}/consumers/{name}/instances/{chosen}"
            )
    for network in ("127.0.0.1", "127.0.0.0/8"):
        config.trusted_proxies = [network]
        async with serving(config) as daemon:
            answer = await create(daemon, name, "i", **says)
            assert answer.json["base_uri"] == f"https://evil.example/x/consumers/{name}/instances/i"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("trusted_proxies", "[nobody]", "trusted_proxies 'nobody' must be an address"),
        ("allowed_hosts", "['http://a']", "allowed_hosts 'http://a' must be a host name"),
        ("allowed_hosts", "['a:1']", "allowed_hosts 'a:1' must be a host name"),
    ],
)
def test_bad_settings_are_named(key: str, value: str, text: str) -> None:
    from pixy.config import load_text, validate
    from pixy.errors import ConfigError

    with pytest.raises(ConfigError) as refused:
        validate(load_text(f"{key}: {value}\nproxies: {{default: }}"))
    assert text in str(refused.value)

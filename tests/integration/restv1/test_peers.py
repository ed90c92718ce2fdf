"""Two daemons behind one address: each accepts requests for any instance."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from pixy.api.edge.proxies import HOP_HEADER
from pixy.api.restv1.peers import Peers
from pixy.config.model import Rest
from tests.integration.restv1.consumers import Instance, fill
from tests.integration.restv1.support import BINARY_V1, BINARY_V2, V1, V2, ask, error
from tests.kafka.cluster import Cluster, free_port
from tests.support import Daemon, make_config, serving


@contextlib.asynccontextmanager
async def pair(kafka: Cluster, requests: str = "forward") -> AsyncIterator[tuple[Daemon, Daemon]]:
    """The daemons ``a`` and ``b``."""
    ports = {name: free_port() for name in "ab"}
    peers = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    async with contextlib.AsyncExitStack() as stack:
        daemons = []
        for name, port in ports.items():
            config = make_config(kafka.bootstrap())
            config.tcp_addr = f"127.0.0.1:{port}"
            config.rest.node_id, config.rest.peers, config.rest.peer_requests = name, dict(peers), requests
            daemons.append(await stack.enter_async_context(serving(config)))
        yield daemons[0], daemons[1]


def name_owned_by(node: str, group: str) -> str:
    both = Peers(Rest(node_id="a", peers={"a": "http://a", "b": "http://b"}))
    return next(f"n{at}" for at in range(100) if (both.owner(group, f"n{at}") or "a") == node)


async def test_a_named_instance_exists_once_and_is_reached_through_both_daemons(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    async with pair(kafka) as (one, two):
        await fill(one, name, b"a", b"b", b"c")
        for owner in ("a", "b"):
            chosen = name_owned_by(owner, name + owner)
            through, beside = Instance(one, name + owner, chosen), Instance(two, name + owner, chosen)
            answer = await through.create()
            assert answer.json["id"] == chosen
            assert (
                answer.json["base_uri"]
                == f"http://{one.engine.addresses['rest']}/consumers/{name + owner}/instances/{chosen}"
            )
            again = await ask(two, "POST", f"/consumers/{name + owner}", {"name": chosen}, content_type=V2)
            assert error(again)[:2] == (409, 40902), "its name is unique among the daemons"
            assert (await beside.at("POST", "/subscription", {"topics": [name]})).status == 204
            assert await through.values("?max_bytes=1") == [b"a"]
            assert await beside.values("?max_bytes=1") == [b"b"]
            assert (await through.at("POST", "/offsets")).status == 200
            assert await beside.committed(name) == {0: 2}
            waits = asyncio.ensure_future(
                ask(one, "GET", f"{through.base}/records?timeout=20000&max_bytes=1", accept=BINARY_V2)
            )
            assert len((await waits).json) == 1
            waits = asyncio.ensure_future(
                ask(two, "GET", f"{through.base}/records?timeout=20000", accept=BINARY_V2)
            )
            await (through if owner == "a" else beside).reads_wait(1)
            assert (await through.delete()).status == 204
            assert error(await waits)[:2] == (404, 40403)
            assert error(await beside.at("GET", "/subscription"))[:2] == (404, 40403)
        counts = [sum((await each.engine.cluster().instances.count()).values()) for each in (one, two)]
        assert counts == [0, 0]


async def test_a_generated_name_leads_to_its_node(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with pair(kafka) as (one, two):
        await fill(one, name, b"a")
        for daemon, other, node in ((one, two, "a"), (two, one, "b")):
            made = (
                await ask(
                    daemon,
                    "POST",
                    f"/consumers/{name}",
                    {"auto.offset.reset": "earliest"},
                    accept=V1,
                    content_type=V1,
                )
            ).json
            assert made["id"].startswith(f"rest-consumer-{node}-")
            instance = Instance(other, name, made["id"])
            answer = await instance.at("GET", f"/topics/{name}", accept=BINARY_V1)
            assert answer.status == 200 and answer.headers["Content-Type"] == BINARY_V1
            assert (await instance.delete()).status == 204


async def test_a_daemon_can_redirect(kafka: Cluster, name: str) -> None:
    async with pair(kafka, "redirect") as (one, two):
        made = (await ask(one, "POST", f"/consumers/{name}", accept=V1)).json["id"]
        path = f"/rest/consumers/{name}/instances/{made}/offsets/?x=y"
        answer = await ask(two, "POST", path, accept=V1)
        assert (answer.status, answer.body) == (307, b"")
        assert answer.headers["Location"] == f"http://{one.engine.addresses['rest']}{path}"
        async with two.http.post(
            f"http://{two.engine.addresses['rest']}{path}", headers={"Accept": V1}
        ) as followed:
            assert (followed.status, await followed.json(content_type=None)) == (200, [])


async def test_a_request_is_not_forwarded_twice(kafka: Cluster, name: str) -> None:
    """Each takes the other for the owner, because both know each other by a wrong name."""
    async with pair(kafka) as (one, two):
        _rename(one, {"b": "http://" + two.engine.addresses["rest"]})
        _rename(two, {"b": "http://" + one.engine.addresses["rest"]})
        lost = f"/consumers/{name}/instances/rest-consumer-b-00000000-0000-4000-8000-000000000000"
        for daemon in (one, two):
            assert error(await asyncio.wait_for(ask(daemon, "DELETE", lost), 10))[:2] == (404, 40403)
        answer = await ask(one, "DELETE", lost, **{HOP_HEADER: "b"})
        assert error(answer)[:2] == (404, 40403)


def _rename(daemon: Daemon, urls: dict[str, str]) -> None:
    listener: Any = next(ref for ref in daemon.engine._service._cell.children.values() if ref.name == "rest")
    peers = listener.actor._rest_v1.peers
    peers._node, peers._urls = "a", urls


async def test_a_peer_that_is_down_is_a_503_that_names_it(kafka: Cluster, name: str) -> None:
    async with pair(kafka) as (one, two):
        made = (await ask(two, "POST", f"/consumers/{name}", accept=V1)).json["id"]
        chosen = name_owned_by("b", name)
        _rename(one, {"b": f"http://127.0.0.1:{free_port()}"})
        for method, path, body in (
            ("DELETE", f"/consumers/{name}/instances/{made}", None),
            ("GET", f"/consumers/{name}/{made}/t", None),
            ("POST", f"/consumers/{name}", {"name": chosen}),
        ):
            answer = await ask(one, method, path, body, accept=V1, content_type=V1)
            status, code, text = error(answer)
            assert (
                (status, code) == (503, 503) and "belongs to node b" in text and answer.headers["Retry-After"]
            )
        mine = await ask(
            one, "POST", f"/consumers/{name}", {"name": name_owned_by("a", name)}, accept=V1, content_type=V1
        )
        assert mine.status == 200, "its own instances are available"


async def test_a_client_that_goes_away_ends_the_forwarded_read(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with pair(kafka) as (one, two):
        chosen = name_owned_by("b", name)
        instance = Instance(one, name, chosen)
        await instance.create()
        await instance.subscribe(name)
        await instance.records("?timeout=100")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(one.engine.addresses["rest"].rpartition(":")[2])
        )
        writer.write(
            f"GET {instance.base}/records?timeout=20000 HTTP/1.1\r\nHost: localhost\r\nAccept: {BINARY_V2}\r\n\r\n".encode()
        )
        await writer.drain()
        owner = Instance(two, name, chosen)
        await owner.reads_wait(1)
        writer.close()
        await writer.wait_closed()
        assert reader is not None
        await owner.reads_wait(0)
        await fill(two, name, b"kept")
        assert await instance.values("?timeout=10000") == [b"kept"]

"""Readers, daemons and requests that die or overlap: no record is lost, and only what was not confirmed comes twice."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import aiohttp

from tests.integration.restv1.consumers import Instance, fill
from tests.integration.restv1.support import BINARY_V2, V2, ask, error
from tests.integration.restv1.test_consumer_defects import ready
from tests.kafka.cluster import Cluster
from tests.support import Program, eventually, make_config, serving

HEADERS = {"Accept": V2, "Content-Type": V2}
READ = {"Accept": BINARY_V2}


class Client:
    """A client of a daemon that runs as a process."""

    def __init__(self, http: aiohttp.ClientSession, address: str) -> None:
        self._http, self._url = http, f"http://{address}"

    async def call(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        async with self._http.request(
            method, self._url + path, data=data, headers=headers or HEADERS
        ) as found:
            assert found.status < 300, await found.text()
            return await found.json(content_type=None) if found.status == 200 else None

    async def is_up(self) -> bool:
        try:
            await self.call("GET", "/ready")
        except aiohttp.ClientError:
            return False
        return True

    async def consume(self, group: str, topic: str) -> str:
        made = await self.call("POST", f"/consumers/{group}", {"auto.offset.reset": "earliest"})
        base = f"/consumers/{group}/instances/{made['instance_id']}"
        await self.call("POST", f"{base}/subscription", {"topics": [topic]})
        return base

    async def read(self, base: str, max_bytes: int) -> list[bytes]:
        found = await self.call("GET", f"{base}/records?timeout=8000&max_bytes={max_bytes}", headers=READ)
        return [base64.b64decode(each["value"]) for each in found]


async def test_a_killed_daemon_loses_none_of_its_readers_records(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    """Its reader gets what he had not confirmed by reading on, and all that follows, from an instance of the next
    daemon, as soon as the group has given up the dead member.
    """
    kafka.create_topic(name)
    config = tmp_path / "config.yaml"
    port = 0
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, *[b"%d" % at for at in range(9)])
        port = int(daemon.engine.addresses["rest"].rpartition(":")[2])
    address = f"127.0.0.1:{port}"
    config.write_text(
        json.dumps(
            {
                "grpc_addr": "127.0.0.1:0",
                "tcp_addr": address,
                "proxies": {
                    "default": {
                        "kafka": {"seed_peers": kafka.bootstrap()},
                        "instances": {"auto_commit_interval": "100ms", "session_timeout": "6s"},
                    }
                },
            }
        )
    )
    async with aiohttp.ClientSession() as http:
        client = Client(http, address)
        with Program("--config", str(config)) as daemon_process:
            await eventually(client.is_up)
            base = await client.consume(name, name)
            assert await client.read(base, 3) == [b"0", b"1", b"2"]
            assert await client.read(base, 2) == [b"3", b"4"]

            async def committed() -> Any:
                body = {"partitions": [{"topic": name, "partition": 0}]}
                found = await client.call("GET", f"{base}/offsets", body)
                return [each["offset"] for each in found["offsets"]]

            await eventually(committed, lambda offsets: offsets == [3])
            daemon_process.process.kill()
            daemon_process.wait()
        with Program("--config", str(config)):
            await eventually(client.is_up)
            base = await client.consume(name, name)
            found: list[bytes] = []
            while len(found) < 6:
                found += await client.read(base, 100)
            assert found == [b"3", b"4", b"5", b"6", b"7", b"8"]


async def test_two_reads_at_once_share_the_records(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        values = [b"%03d" % at for at in range(400)]
        await fill(daemon, name, *values)
        instance = await ready(daemon, name, name)
        found: list[bytes] = []
        while len(found) < 400:
            for part in await asyncio.gather(
                *[instance.values("?max_bytes=60&timeout=5000") for _ in range(4)]
            ):
                found += part
        assert sorted(found) == values, "each once"
        await instance.delete()
        again = Instance(daemon, name)
        await again.create()
        assert await again.committed(name) == {0: 400}


async def test_what_was_never_handed_out_can_be_committed_but_moves_no_position(
    kafka: Cluster, name: str
) -> None:
    """A client says what it has processed; the proxy does not know better. Its own position stays."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, *[b"%d" % at for at in range(9)])
        instance = await ready(daemon, name, name, auto_commit_enable=False)
        assert await instance.values("?max_bytes=3&timeout=5000") == [b"0", b"1", b"2"]
        place = {"topic": name, "partition": 0, "offset": 6}
        assert (await instance.at("POST", "/offsets", {"offsets": [place]})).status == 200
        assert await instance.committed(name) == {0: 7}
        assert await instance.values("?max_bytes=2") == [b"3", b"4"]
        assert (await instance.at("POST", "/offsets")).status == 200
        assert await instance.committed(name) == {0: 5}, "without offsets: exactly what was handed out"


async def test_a_change_that_is_refused_with_429_changes_nothing(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.max_waiting_requests = 1
    config.proxies["default"].instances.join_timeout = 30  # type: ignore[assignment]
    async with serving(config) as daemon:
        await fill(daemon, name, b"v")
        instance = Instance(daemon, name)
        await instance.create()
        await instance.subscribe(f"{name}-none")  # never assigned, so a seek waits
        body = {"partitions": [{"topic": name, "partition": 0}]}
        seek = asyncio.ensure_future(
            ask(daemon, "POST", f"{instance.base}/positions/end", body, content_type=V2)
        )
        ref = await daemon.engine.cluster().instances.find(name, "c")

        async def waiting() -> int:
            return len(ref._cell.actor._operations)

        await eventually(waiting, lambda count: count == 1)
        refused = error(await instance.at("POST", "/subscription", {"topics": [name]}))
        assert refused[:2] == (429, 429) and not seek.done()
        assert (await instance.at("GET", "/subscription")).json == {"topics": [f"{name}-none"]}
        answer = await instance.delete()
        assert answer.status == 204 and error(await seek)[0] in (404, 409)
        again = await ready(daemon, name, name)
        assert await again.values("?timeout=5000") == [b"v"]

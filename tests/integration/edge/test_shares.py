"""What all callers share: one of them cannot take all of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pixy.api.edge import pace
from pixy.auth.keys import make_key
from pixy.config import App
from pixy.config.security import Limit
from pixy.proto import kafkapixy_pb2 as pb
from tests.integration.edge.raw import Raw
from tests.integration.restv1.support import under_way
from tests.support import Daemon, eventually, serving, status_of


def edge_of(daemon: Daemon) -> Any:
    found = daemon.engine.system.lookup("/service/rest")
    assert found is not None
    return found._cell.actor._edge


async def test_bodies_that_arrive_slowly_have_a_budget(config: App, name: str, tmp_path: Path) -> None:
    config.max_buffered_bytes = 1 << 20
    config.unix_addr = str(tmp_path / "s")
    head = f"POST /topics/{name}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 700000\r\n\r\n"
    async with serving(config) as daemon, contextlib.AsyncExitStack() as opened:
        budget = edge_of(daemon).budget
        slow = []
        for _ in range(2):
            raw = await opened.enter_async_context(await Raw.to(daemon))
            await raw.send(head.encode() + b"x" * 350_000)
            slow.append(raw)

        async def held() -> int:
            return int(budget.held)

        await eventually(held, lambda size: size == 700_000)
        more = await opened.enter_async_context(await Raw.to(daemon))
        await more.send(head.encode() + b"x" * 300_000)
        answer = await more.rest()
        assert answer.startswith(b"HTTP/1.1 503 ") and b"`max_buffered_bytes`" in answer
        small = await opened.enter_async_context(await Raw.to(daemon))
        path = f"/topics/{name}/messages?sync"
        assert (await small.ask(path, "POST", b"x" * 50_000, Content_Type="text/plain"))[0] == 200
        unix = await opened.enter_async_context(await Raw.to(daemon, "rest-unix"))
        body = b"x" * 300_000
        assert (await unix.ask(path, "POST", body, Content_Type="text/plain"))[0] == 200, (
            "another caller has room"
        )
        for raw in slow:
            raw.close()
        await eventually(held, lambda size: size == 0)


async def test_bodies_of_grpc_count_too(config: App, name: str) -> None:
    config.max_buffered_bytes = 1 << 20
    async with serving(config) as daemon:
        budget = edge_of(daemon).budget
        request = pb.ProdRq(topic=name, message=b"x" * 50_000, key_undefined=True)
        with budget.share("somebody") as share:
            share.take(1_000_000)
            status, text = await status_of(daemon.stub.Produce(request))
            assert status is grpc.StatusCode.UNAVAILABLE and "`max_buffered_bytes`" in text
            await daemon.stub.Produce(pb.ProdRq(topic=name, message=b"x", key_undefined=True))
        await daemon.stub.Produce(request)
        assert budget.held == 0


async def test_one_address_leaves_places_for_others(config: App, name: str, tmp_path: Path) -> None:
    config.max_concurrent_requests = 8
    config.unix_addr = str(tmp_path / "s")
    proxy = config.proxies["default"]
    proxy.consumer.long_polling_timeout = 60.0
    config.trusted_proxies = ["127.0.0.1"]
    async with serving(config) as daemon:
        await daemon.produce(name, b"x")
        await daemon.consume(name, "g", auto_ack=True)
        path = f"/topics/{name}/messages?group=g"
        waiting = [asyncio.create_task(daemon.get(path)) for _ in range(6)]
        await daemon.polls_wait(name, "g", 6)
        answer = await daemon.get("/topics")
        assert answer.status == 429 and "max_concurrent_requests" in answer.error
        behind = await daemon.get("/topics", headers={"X-Forwarded-For": "10.9.9.9, 10.0.0.7"})
        assert behind.status == 200, "another client of a trusted proxy"
        calls = [asyncio.create_task(daemon.consume(name, "g")) for _ in range(6)]
        await daemon.polls_wait(name, "g", 12)
        status, text = await status_of(daemon.stub.ListTopics(pb.ListTopicRq()))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED and "max_concurrent_requests" in text
        for task in (*waiting, *calls):
            task.cancel()
        await asyncio.gather(*waiting, *calls, return_exceptions=True)

        async def again() -> bool:
            return (await daemon.get("/topics")).status == 200

        await eventually(again)


async def test_probes_are_answered_when_all_places_are_taken(config: App, name: str) -> None:
    config.max_concurrent_requests = 4
    head = f"POST /topics/{name}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nx"
    async with serving(config) as daemon, contextlib.AsyncExitStack() as opened:
        for _ in range(3):
            raw = await opened.enter_async_context(await Raw.to(daemon))
            await raw.send(head)
        await under_way(daemon, 3)
        assert (await daemon.get("/brokers")).status == (await daemon.get("/topics")).status == 429
        for path in ("/_ping", "/healthy", "/ready", "/rest/healthy", "/rest/ready"):
            assert (await daemon.get(path)).status == 200, path


async def test_a_long_answer_to_a_get_finds_no_room_and_a_short_one_needs_none(
    config: App, name: str
) -> None:
    config.rest.max_buffered_bytes = 1 << 20
    async with serving(config) as daemon:
        listener: Any = daemon.engine.system.lookup("/service/rest")
        budget = listener._cell.actor._rest_v1.budget
        with budget.share("somebody") as share:
            share.take(1 << 20)
            answers = [await daemon.get(path) for path in ("/openapi.json", "/healthy", "/brokers")]
            assert [each.status for each in answers] == [503, 200, 200]
            assert "`rest.max_buffered_bytes`" in answers[0].json["message"]
            assert budget.held == 1 << 20, "answers of others are not counted above the limit"
        assert (await daemon.get("/openapi.json")).status == 200 and budget.held == 0


async def test_a_message_whose_answer_finds_no_room_is_given_back(config: App, name: str) -> None:
    config.max_buffered_bytes = 1 << 20
    async with serving(config) as daemon:
        await daemon.produce(name, b"x" * 100_000)
        with edge_of(daemon).budget.share("somebody") as share:
            share.take(1_000_000)
            status, text = await status_of(daemon.consume(name, name, auto_ack=True))
            assert status is grpc.StatusCode.UNAVAILABLE and "`max_buffered_bytes`" in text
            answer = await daemon.get(f"/topics/{name}/messages?group={name}")
            assert answer.status == 503 and "`max_buffered_bytes`" in answer.error
        found = await daemon.consume(name, name, auto_ack=True)
        assert len(found.message) == 100_000, "the abort did not acknowledge it"


async def test_one_address_leaves_groups_and_instances_for_others(
    config: App, name: str, tmp_path: Path
) -> None:
    config.unix_addr = str(tmp_path / "s")
    proxy = config.proxies["default"]
    proxy.consumer.max_groups = proxy.instances.max_instances = 4
    proxy.consumer.long_polling_timeout = 60.0
    v2 = {"Content-Type": "application/vnd.kafka.v2+json"}
    async with serving(config) as daemon, await Raw.to(daemon, "rest-unix") as other:
        await daemon.produce(name, b"x")
        path = f"/topics/{name}/messages?noAck&group={name}"
        served = await asyncio.gather(*(daemon.get(f"{path}{number}") for number in range(3)))
        assert [each.status for each in served] == [200, 200, 200]
        answer = await daemon.get(f"{path}-more")
        assert answer.status == 429 and "consumer.max_groups" in answer.error
        status, body = await other.ask(f"{path}-other")
        assert status == 200, body

        made = [await daemon.post("/consumers/g", b"{}", headers=v2) for _ in range(4)]
        assert [each.status for each in made] == [200, 200, 200, 429]
        assert (await other.ask("/consumers/g", "POST", b"{}", Content_Type=v2["Content-Type"]))[0] == 200
        gone = made[0].json["instance_id"]
        assert (await daemon.call("DELETE", f"/consumers/g/instances/{gone}", headers=v2)).status == 204
        assert (await daemon.post("/consumers/g", b"{}", headers=v2)).status == 200


async def test_a_probe_does_not_wait_for_other_requests_of_its_address(
    config: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By turns: 20,000 requests of the same address begin in as many of them."""
    monkeypatch.setattr(pace, "BATCH", 1)
    async with (
        serving(config) as daemon,
        await Raw.to(daemon) as raw,
        grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel,
    ):
        health, found = health_pb2_grpc.HealthStub(channel), edge_of(daemon).pace
        await health.Check(health_pb2.HealthCheckRequest())
        for listener in ("rest", "grpc"):
            loop = asyncio.get_running_loop()
            waiting = deque(loop.create_future() for _ in range(20_000))
            found._waiting["127.0.0.1"] = waiting
            found._began = found._clock()
            loop.call_soon(found._next)
            if listener == "rest":
                assert await raw.ask("/_ping") == (200, b"pong")
            else:
                await health.Check(health_pb2.HealthCheckRequest())
            assert waiting, listener
            waiting.clear()
            waiting.append(loop.create_future())
            await waiting[0]


async def test_a_principal_at_ten_times_its_share_costs_another_nothing(
    config: App, name: str, tmp_path: Path
) -> None:
    """By counts: each may make 40 requests, and practically none is added while the test runs."""
    keys = {who: make_key(who) for who in ("hostile", "honest")}
    (tmp_path / "keys").write_text("".join(f"{who} sha256:{key.digest}\n" for who, (_, key) in keys.items()))
    config.auth.enabled, config.auth.keys_file = True, str(tmp_path / "keys")
    config.limits = [Limit(who=["key:*"], requests_per_second=0.001, burst=40_000.0)]
    async with serving(config) as daemon:

        async def ask(who: str, count: int) -> Counter[int]:
            headers = {"X-API-Key": keys[who][0], "Content-Type": "text/plain"}
            path = f"/topics/{name}/messages?sync"
            answers = [await daemon.post(path, b"x", headers=headers) for _ in range(count)]
            assert all(int(each.headers["Retry-After"]) > 0 for each in answers if each.status == 429)
            return Counter(each.status for each in answers)

        *hostile, honest = await asyncio.gather(*(ask("hostile", 40) for _ in range(10)), ask("honest", 40))
        assert honest == {200: 40}
        assert sum(hostile, Counter()) == {200: 40, 429: 360}


async def test_one_address_leaves_reads_by_offset_for_others(config: App, name: str, tmp_path: Path) -> None:
    config.unix_addr = str(tmp_path / "s")
    proxy = config.proxies["default"]
    proxy.max_fetches, proxy.max_waiting_fetches, proxy.fetch_pool_timeout = 4, 4, 60.0
    config.rest.max_fetch_timeout = 60.0
    async with serving(config) as daemon, await Raw.to(daemon, "rest-unix") as other:
        await daemon.produce(name, b"x", key=b"k")
        read = pb.FetchRq(topic=name, partition=0, offset=0, wait_ms=60_000, max_messages=1)
        found = await daemon.consume(name, "g", auto_ack=True)
        read.partition, read.offset = found.partition, found.offset + 1  # the end: there is nothing to read
        waiting = [asyncio.create_task(_fetched(daemon, read)) for _ in range(6)]
        status, text = await eventually(lambda: _refused(daemon, read))
        assert status is grpc.StatusCode.UNAVAILABLE and "`max_fetches`" in text, text
        path = f"/topics/{name}/partitions/{found.partition}/records?offset={found.offset}"
        status, body = await other.ask(path, Accept="application/vnd.kafka.binary.v2+json")
        assert status == 200, body
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _fetched(daemon: Daemon, read: pb.FetchRq) -> pb.FetchRs:
    return await daemon.stub.Fetch(read)


async def _refused(daemon: Daemon, read: pb.FetchRq) -> tuple[grpc.StatusCode, str] | None:
    """Why one more read is refused at once; None if it is not."""
    try:
        await asyncio.wait_for(_fetched(daemon, read), 0.5)
    except grpc.RpcError as error:
        return error.code(), error.details()
    except TimeoutError:
        pass
    return None

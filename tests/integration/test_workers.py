"""``server.workers``: several processes behind the same addresses are one daemon to clients and operators."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from pixy.api.restv1.peers import heaviest
from pixy.auth.keys import make_key
from pixy.kafka.sandbox import Sandbox
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.integration.answers import V2, V2_BINARY, Running, grpc_answers, rest_answers, running
from tests.kafka.cluster import Cluster, free_port
from tests.support import eventually

pytestmark = pytest.mark.slow

CONFIG = """\
grpc_addr: 127.0.0.1:0
tcp_addr: 127.0.0.1:0
admin_addr: 127.0.0.1:0
shutdown_timeout: 20s
server: {{workers: {workers}, worker_restarts: 1}}
connections: {{grpc_max_age: {age}}}
proxies:
  default:
    client_id: pixy
    kafka: {{seed_peers: ['{seed}']}}
    consumer: {{initial_offset: oldest, long_polling_timeout: {poll}, rebalance_delay: 0s}}
    instances: {{auto_commit: false}}
"""

WITH_PEERS = """\
grpc_addr: ''
tcp_addr: 127.0.0.1:{port}
unix_addr: ''
server: {{workers: {workers}}}
auth: {{enabled: true, keys_file: {keys}}}
rest:
  node_id: {node}
  peers: {{{peers}}}
  peer_secret: {secret}
proxies: {{default: {{client_id: "{node}", kafka: {{seed_peers: ['{seed}']}}}}}}
"""


def config(kafka: Cluster, workers: int = 2, poll: str = "500ms", age: str = "1h") -> str:
    return CONFIG.format(workers=workers, seed=kafka.bootstrap()[0], poll=poll, age=age)


@contextlib.asynccontextmanager
async def fresh() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that opens a connection for each request, so each may reach another worker."""
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=60), connector=aiohttp.TCPConnector(force_close=True)
    ) as http:
        yield http


def channel(daemon: Running) -> Any:
    """A gRPC channel with a connection of its own."""
    return grpc.aio.insecure_channel(daemon.address("grpc"), options=[("grpc.use_local_subchannel_pool", 1)])


async def test_two_workers_give_the_answers_of_one_process(kafka: Cluster, name: str, tmp_path: Path) -> None:
    found = {}
    for workers in (1, 2):
        topic = f"{name}-{workers}"
        kafka.create_topic(topic, 1)
        folder = tmp_path / str(workers)
        folder.mkdir()
        async with running(folder, config(kafka, workers)) as daemon:
            await daemon.serves()
            assert len(daemon.children()) == (2 if workers == 2 else 0)
            found[workers] = {
                **await rest_answers(f"http://{daemon.address('rest')}", topic),
                **{
                    f"grpc {what}": each
                    for what, each in (await grpc_answers(daemon.address("grpc"), topic)).items()
                },
            }
            assert daemon.pid_file.read_text() == str(daemon.process.pid)
            for each in daemon.children():
                os.kill(
                    each, signal.SIGTERM
                )  # systemd signals every process; workers hear the supervisor alone
            daemon.process.send_signal(signal.SIGTERM)
            assert await daemon.ended() == 0, daemon.lines
        assert not daemon.pid_file.exists()
    differs = {
        what: (found[1].get(what), found[2].get(what))
        for what in found[1] | found[2]
        if found[1].get(what) != found[2].get(what)
    }
    assert not differs, differs


async def test_an_ack_reaches_the_worker_that_has_delivered_the_message(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    kafka.create_topic(name, 1)
    async with running(tmp_path, config(kafka, poll="20s")) as daemon:
        await daemon.serves()
        base = f"http://{daemon.address('rest')}"
        async with channel(daemon) as own, fresh() as http:
            stub = KafkaPixyStub(own)
            for number in range(24):
                await stub.Produce(pb.ProdRq(topic=name, message=b"%d" % number))
            delivered = [
                await stub.ConsumeNAck(pb.ConsNAckRq(topic=name, group=name, no_ack=True)) for _ in range(24)
            ]
            # 12 connections at random: were no ack handed on, all of them would have to reach one of two workers.
            for each in delivered[:12]:
                url = (
                    f"{base}/topics/{name}/acks?group={name}&partition={each.partition}&offset={each.offset}"
                )
                async with http.post(url) as answer:
                    assert answer.status == 200, await answer.text()
            for each in delivered[12:]:
                async with channel(daemon) as other:
                    asked = pb.ConsNAckRq(
                        topic=name, group=name, ack_partition=each.partition, ack_offset=each.offset
                    )
                    with contextlib.suppress(grpc.aio.AioRpcError):  # the group has nothing more
                        await KafkaPixyStub(other).ConsumeNAck(asked, timeout=0.2)

            async def committed() -> int:
                answer = await stub.GetOffsets(pb.GetOffsetsRq(topic=name, group=name))
                return int(answer.offsets[0].offset)

            assert await eventually(committed, lambda offset: offset == 24) == 24
            async with http.post(f"{base}/topics/{name}/acks?group=none&partition=0&offset=1") as answer:
                assert answer.status == 409


async def test_a_consumer_instance_is_found_through_each_worker(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    kafka.create_topic(name, 1)
    async with running(tmp_path, config(kafka)) as daemon:
        await daemon.serves()
        base = f"http://{daemon.address('rest')}"
        async with fresh() as http:
            records = {"records": [{"value": "eA==", "partition": 0}]}
            async with http.post(
                f"{base}/topics/{name}", json=records, headers={"Content-Type": V2_BINARY}
            ) as answer:
                assert answer.status == 200, await answer.text()
            made = []
            for number in range(8):
                spec = {"format": "binary", "auto.offset.reset": "earliest"}
                if number % 2:
                    spec["name"] = f"i{number}"
                url = f"{base}/consumers/{name}-{number}"
                async with http.post(url, json=spec, headers={"Content-Type": V2}) as answer:
                    assert answer.status == 200, await answer.text()
                    document = await answer.json(content_type=None)
                    assert document["base_uri"] == f"{url}/instances/{document['instance_id']}"
                    made.append(document["base_uri"])
            for uri in made:
                chosen = {"partitions": [{"topic": name, "partition": 0}]}
                async with http.post(
                    f"{uri}/assignments", json=chosen, headers={"Content-Type": V2}
                ) as answer:
                    assert answer.status == 204, await answer.text()
                async with http.get(f"{uri}/records?timeout=5000", headers={"Accept": V2_BINARY}) as answer:
                    assert answer.status == 200
                    assert [each["value"] for each in await answer.json(content_type=None)] == ["eA=="]
                async with http.delete(uri, headers={"Content-Type": V2}) as answer:
                    assert answer.status == 204
                async with http.delete(uri, headers={"Content-Type": V2}) as answer:
                    assert answer.status == 404


async def test_a_worker_that_crashes_is_replaced_and_one_that_keeps_crashing_ends_the_daemon(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    kafka.create_topic(name, 1)
    async with running(tmp_path, config(kafka)) as daemon:
        await daemon.serves()
        before = daemon.children()
        os.kill(before[0], signal.SIGKILL)

        async def replaced() -> bool:
            async with fresh() as http, http.get(f"http://{daemon.address('admin')}/workers") as answer:
                pids = {each["pid"] for each in (await answer.json())["workers"]}
                return len(pids) == 2 and before[0] not in pids

        await eventually(replaced, within=60)
        assert any("has ended (signal 9); another one is started in 0.5 s" in line for line in daemon.lines)
        async with channel(daemon) as own:
            await KafkaPixyStub(own).Produce(pb.ProdRq(topic=name, message=b"x"))
        again = next(each for each in daemon.children() if each not in before)
        os.kill(again, signal.SIGKILL)
        assert await daemon.ended() == 4
        assert any("stopping: worker" in line and "2 times in a row" in line for line in daemon.lines), (
            daemon.lines
        )
    assert not daemon.pid_file.exists()


async def test_workers_are_replaced_one_by_one_without_a_failed_call(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    kafka.create_topic(name, 4)
    async with running(tmp_path, config(kafka, age="1s")) as daemon:
        await daemon.serves()
        before = set(daemon.children())
        base = f"http://{daemon.address('rest')}"
        failed: list[str] = []
        calls = [0]
        done = asyncio.Event()

        async def over_grpc() -> None:
            async with channel(daemon) as own:
                stub = KafkaPixyStub(own)
                while not done.is_set():
                    try:
                        await stub.Produce(pb.ProdRq(topic=name, message=b"x"))
                        calls[0] += 1
                    except grpc.aio.AioRpcError as error:
                        failed.append(f"{calls[0]}: grpc {error.code()} {error.details()}")
                    await asyncio.sleep(0.005)

        async def over_rest() -> None:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
                while not done.is_set():
                    try:
                        url = f"{base}/topics/{name}/messages?sync"
                        async with http.post(
                            url, data=b"x", headers={"Content-Type": "text/plain"}
                        ) as answer:
                            if answer.status != 200:
                                failed.append(f"{calls[0]}: rest {answer.status} {await answer.text()}")
                            calls[0] += 1
                    except aiohttp.ClientError as error:
                        failed.append(f"rest {error!r}")
                    await asyncio.sleep(0.005)

        clients = [asyncio.ensure_future(each()) for each in (over_grpc, over_rest) for _ in range(4)]
        daemon.process.send_signal(signal.SIGUSR2)

        async def replaced() -> bool:
            assert daemon.process.returncode is None, daemon.lines
            return any("replaced 2 workers" in line for line in daemon.lines) and not before & set(
                daemon.children()
            )

        # By default as long as connections may last; here all have moved within seconds.
        await eventually(replaced, within=100)
        done.set()
        await asyncio.gather(*clients)
        assert not failed, (len(failed), calls, failed[:5])
        assert calls[0] > 100
        assert len(daemon.children()) == 2


async def test_operators_see_all_workers_in_one_place(kafka: Cluster, name: str, tmp_path: Path) -> None:
    kafka.create_topic(name, 1)
    async with running(tmp_path, config(kafka)) as daemon:
        await daemon.serves()
        admin = f"http://{daemon.address('admin')}"
        async with fresh() as http:

            async def text(path: str) -> str:
                async with http.get(admin + path) as answer:
                    assert answer.status == 200, (path, answer.status, await answer.text())
                    return await answer.text()

            metrics = await text("/metrics")
            for number in (1, 2):
                assert f'kafka_pixy_up{{worker="{number}",cluster="default"}} 1.0' in metrics
            assert metrics.count("# TYPE kafka_pixy_up gauge") == 1
            ready = await (await http.get(f"{admin}/readyz")).json()
            assert ready["ready"]
            assert [each["worker"] for each in ready["checks"] if each["check"] == "worker"] == [1, 2]
            assert '"findings"' in await text("/findings")
            console = await text("/console/")
            assert re.findall(r"workers/(\d)/console/", console) == ["1", "2"]
            titles = {await text(f"/workers/{number}/console/boot.json") for number in (1, 2)}
            assert titles
            assert "worker" in await text("/workers")
            assert await text("/console/api/summary")
            assert await text("/workers/2/debug/tasks")
            async with http.get(f"{admin}/workers/3/livez") as answer:
                assert answer.status == 404
            frozen = daemon.children()[0]
            os.kill(frozen, signal.SIGSTOP)
            try:
                # Were connections dealt out to it as well, one of 16 would wait.
                answers = await asyncio.gather(*(http.get(f"{admin}/readyz") for _ in range(16)))
                assert {each.status for each in answers} == {503}
                late = [each for each in (await answers[0].json())["checks"] if not each["ok"]]
                assert [each["check"] for each in late] == ["worker"] and "does not answer" in late[0][
                    "reason"
                ]
            finally:
                os.kill(frozen, signal.SIGCONT)

            async def ready_again() -> bool:
                async with http.get(f"{admin}/readyz") as answer:
                    return answer.status == 200

            await eventually(ready_again)


async def test_workers_of_peers_with_auth_find_an_instance_and_keep_it_from_others(tmp_path: Path) -> None:
    """A daemon of two workers and one of a single process: a request goes to the daemon that owns the instance, there to its worker."""
    sandbox = Sandbox()
    keys = {who: make_key(who) for who in ("app", "other")}
    (tmp_path / "keys").write_text("".join(f"{stored.line()}\n" for _, stored in keys.values()))
    ports = {node: free_port() for node in "ab"}
    peers = ", ".join(f"{node}: 'http://127.0.0.1:{port}'" for node, port in ports.items())
    async with contextlib.AsyncExitStack() as opened, fresh() as http:
        for node, port in ports.items():
            folder = tmp_path / node
            folder.mkdir()
            text = WITH_PEERS.format(
                port=port,
                workers=2 if node == "a" else 1,
                keys=tmp_path / "keys",
                node=node,
                peers=peers,
                secret="s" * 32,
                seed=sandbox.seed_peers[0],
            )
            daemon = await opened.enter_async_context(running(folder, text))
            await daemon.serves()

        async def ask(method: str, url: str, who: str = "app", **options: Any) -> tuple[int, Any]:
            headers = {"Content-Type": V2, **({"X-API-Key": keys[who][0]} if who else {})}
            async with http.request(method, url, headers=headers, **options) as answer:
                return answer.status, await answer.json(content_type=None)

        bases = [f"http://127.0.0.1:{port}/consumers/g" for port in ports.values()]
        names = [f"i{number}" for number in range(6)]
        assert {heaviest("ab", "g", name) for name in names} == {"a", "b"}
        for name, base in zip(names, itertools.cycle(bases)):
            assert (await ask("POST", base, json={"name": name}))[0] == 200
        for name, base in itertools.product(names, bases):
            url = f"{base}/instances/{name}/subscription"
            if base is bases[0]:
                assert (await ask("POST", url, json={"topics": ["t"]}))[0] == 204
            assert await ask("GET", url) == (200, {"topics": ["t"]})
            assert (await ask("GET", url, who="other"))[0] == 404, "it belongs to its maker"
            assert (await ask("GET", url, who=""))[0] == 401

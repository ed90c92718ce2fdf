"""Clients that name topics which do not exist: they hold up nobody else, and cost no actor."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from pixy.proto import kafkapixy_pb2 as pb
from tests.integration.restv1.support import b64, produce
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config, serving, status_of


async def test_an_honest_produce_beside_thousands_of_unknown_topics(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    many = 400
    async with serving(make_config(kafka.bootstrap())) as daemon:
        cluster = daemon.engine.system.lookup("/service/default")
        assert cluster is not None
        lookups = cluster._cell.actor._lookups  # type: ignore[attr-defined]
        answered: list[str | None] = []
        asked = (
            asyncio.Event()
        )  # Kafka answers once all have asked: a busy machine passes them on more slowly than it does
        metadata = lookups._metadata

        async def counted(topic: str | None, timeout: float) -> Any:
            await asked.wait()
            try:
                return await metadata(topic, timeout)
            finally:
                answered.append(topic)

        lookups._metadata = counted
        strangers = [
            asyncio.create_task(
                status_of(daemon.stub.Produce(pb.ProdRq(topic=f"{name}-{number}", message=b"x")))
            )
            for number in range(many)
        ]

        async def waiting() -> int:
            return int(lookups.waiting)

        await eventually(waiting, lambda count: count >= many * 3 // 4)
        # Not over a connection on which the others are, so that it begins at once.
        honest = asyncio.create_task(daemon.engine.cluster().produce(name, b"x", b"k"))
        await asyncio.sleep(0)
        asked.set()
        assert await honest == (0, 0)
        between = answered.index(name)
        assert between < many // 4, f"Kafka answered {between} times first: it waited behind the others"
        paths = [path for path in daemon.engine.system.paths() if path.endswith(".producer")]
        assert paths == [f"/service/default/{name}.producer"]
        for status, _ in await asyncio.gather(*strangers):
            assert status is grpc.StatusCode.INVALID_ARGUMENT


async def test_every_way_to_produce_costs_no_actor(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        assert (await daemon.post(f"/topics/{name}/messages?sync", b"x")).status == 404
        assert (await daemon.post(f"/topics/{name}/messages", b"x")).status == 200
        assert (await produce(daemon, name, [{"value": b64(b"x")}])).status == 404
        assert not [path for path in daemon.engine.system.paths() if path.endswith(".producer")]
        kafka.create_topic(name)
        partition, offset = await daemon.produce(name, b"x")
        assert (partition, offset) == (0, 0), "it is found as soon as it exists"

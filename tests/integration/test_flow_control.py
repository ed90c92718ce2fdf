"""Partitions that flow control has really paused come back to life, whatever happens to them meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest
from confluent_kafka import Producer

from pixy.engine.consume.partition_messages import Ack
from pixy.engine.consume.partition_owner import PartitionOwner
from pixy.kafka.flow import FlowControl
from pixy.proto import kafkapixy_pb2 as pb
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving

STALLED = (0, 1, 2)
"""Partitions of which nothing is acknowledged, so that they are paused: the last partition has demand."""
FLOWING = 3
MESSAGES = 40
"""Of each stalled partition: many times more than a member takes before it pauses one."""
PENDING, ROOM = 2, 4

Meanwhile = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A daemon whose member has paused the stalled partitions."""

    def __init__(self, cluster: Cluster, name: str, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.name = cluster, name
        self.monkeypatch = monkeypatch
        self.config = make_config(
            cluster.bootstrap(),
            group_protocol=protocol,
            max_pending_messages=PENDING,
            prefetch_max_messages=ROOM,
            ack_timeout=2.0,
            long_polling_timeout=1.0,
            subscription_timeout=2.0,
            drain_timeout=0.2,
            heartbeat_interval=0.2,
            session_timeout=60.0,
        )
        self.seen: set[tuple[int, int]] = set()
        self.paused: set[int] = set()
        self.daemon: Daemon
        changes = FlowControl.changes

        def noted(flow: FlowControl[tuple[str, int]]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
            pause, resume = changes(flow)
            self.paused |= {partition for _, partition in pause}
            return pause, resume

        monkeypatch.setattr(FlowControl, "changes", noted)

    def fill(self) -> None:
        self.cluster.create_topic(self.name, FLOWING + 1)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap()[0]})
        for partition in STALLED:
            for number in range(MESSAGES):
                producer.produce(self.name, b"%d" % number, partition=partition)
        for number in range(2000):
            producer.produce(self.name, b"%d" % number, partition=FLOWING)
        assert producer.flush(30) == 0

    async def next(self, daemon: Daemon, *, stalled: bool = False) -> None:
        """Consume once and acknowledge, but nothing of stalled partitions if ``stalled``."""
        try:
            message = await daemon.consume(self.name, self.name, no_ack=True)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.NOT_FOUND, error
            return
        if not stalled or message.partition == FLOWING:
            try:
                await daemon.ack(self.name, self.name, message)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
                return
            self.seen.add((message.partition, message.offset))

    async def pause(self) -> None:
        async with asyncio.timeout(60):
            while not self.paused >= set(STALLED):
                await self.next(self.daemon, stalled=True)

    async def drain(self) -> None:
        wanted = {(partition, offset) for partition in STALLED for offset in range(MESSAGES)}
        async with asyncio.timeout(60):
            while not wanted <= self.seen:
                await self.next(self.daemon)


async def nothing(_stage: Stage) -> None:
    """The clients come back to the stalled partitions."""


async def the_subscription_expires(stage: Stage) -> None:
    """The clients stop; the group leaves, messages that are not acknowledged or not."""

    async def owned() -> set[int]:
        return stage.daemon.owned(stage.name, stage.name)

    await eventually(owned, lambda owned: not owned)


async def another_member_comes_and_goes(stage: Stage) -> None:
    """It gets at least one of the paused partitions, which come back when it leaves."""
    async with serving(stage.config) as other:

        async def taken() -> set[int]:
            await asyncio.gather(stage.next(other, stalled=True), stage.next(stage.daemon, stalled=True))
            return other.owned(stage.name, stage.name) & set(STALLED)

        await eventually(taken, within=60)


async def the_owners_restart(stage: Stage) -> None:
    """Each owner of a stalled partition fails once, and seeks when it restarts."""
    crashed: set[int] = set()
    handle = PartitionOwner.on_receive

    def on_receive(owner: PartitionOwner, message: object) -> object:
        partition = owner._partition[1]
        if type(message) is Ack and partition in STALLED and partition not in crashed:
            crashed.add(partition)
            raise RuntimeError("crash on purpose")
        return handle(owner, message)

    stage.monkeypatch.setattr(PartitionOwner, "on_receive", on_receive)
    for partition in STALLED:
        with pytest.raises(grpc.RpcError):
            await stage.daemon.ack(stage.name, stage.name, pb.ConsRs(partition=partition, offset=0))
    assert crashed == set(STALLED)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    "meanwhile",
    [nothing, the_subscription_expires, another_member_comes_and_goes, the_owners_restart],
    ids=lambda meanwhile: meanwhile.__name__,
)
async def test_paused_partitions_come_back(
    kafka: Cluster, name: str, protocol: str, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(kafka, name, protocol, monkeypatch)
    await asyncio.to_thread(stage.fill)
    async with serving(stage.config) as daemon:
        stage.daemon = daemon
        await stage.pause()
        await meanwhile(stage)
        await stage.drain()

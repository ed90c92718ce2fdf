"""The owner of a partition as an actor, between a probe for the group and one for the committer."""

from __future__ import annotations

from typing import Any

from actors import Future
from actors.testing import Probe, Sim, simulate
from pixy.config.model import Consumer
from pixy.engine.consume.long_polls import Delivery, Poll
from pixy.engine.consume.partition_messages import Ready, Records, Serve, Unserved
from pixy.engine.consume.partition_owner import Assignment, PartitionOwner
from pixy.membership import AssignedPartition
from tests.unit.engine.records import TOPIC, Record

EPOCH = 7


class Session:
    """The part of a session that an owner calls."""

    def credit(self, partition: object, messages: int, size: int) -> None:
        pass


class Stage:
    """An owner with probes around it."""

    def __init__(self, sim: Sim) -> None:
        self.loop = sim.system.loop
        self.group: Probe = sim.probe("group")
        start = AssignedPartition(TOPIC, 0, 10, "", EPOCH, new=False)
        committer: Any = sim.probe("committer").ref
        session: Any = Session()
        self.ref = sim.system.spawn(
            PartitionOwner,
            Assignment(start),
            "g",
            self.group.ref,
            committer,
            session,
            Consumer(),
            name="owner",
        )

    def fetched(self, epoch: int, *offsets: int) -> None:
        self.ref.tell(Records(epoch, [Record(0, offset) for offset in offsets]), urgent=True)

    def serve(self) -> Future[Delivery]:
        reply: Future[Delivery] = Future()
        now = self.loop.time()
        self.ref.tell(Serve((Poll(reply, False, now, now + 60),)), urgent=True)
        return reply


def test_a_batch_of_another_epoch_is_never_offered() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim)
        stage.fetched(EPOCH - 1, 10, 11)
        stage.fetched(EPOCH + 1, 10, 11)
        await stage.group.expect_none()
        stage.serve()
        assert isinstance(await stage.group.expect(), Unserved)
        stage.fetched(EPOCH, 12)
        assert await stage.group.expect() == Ready((TOPIC, 0), EPOCH, 1)
        assert (await stage.serve()).offset == 12

    simulate(scenario, seed=1)

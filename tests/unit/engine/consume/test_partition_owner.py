"""The owner of a partition as an actor, between a probe for the group and one for the committer."""

from __future__ import annotations

from typing import Any

from actors import Future
from actors.testing import Probe, Sim, simulate
from pixy.config.model import Consumer
from pixy.engine.consume import sparse_acks
from pixy.engine.consume.assignment import Assignment
from pixy.engine.consume.long_polls import Delivery, Poll
from pixy.engine.consume.offset_committer import Moved
from pixy.engine.consume.offset_tracker import Position
from pixy.engine.consume.partition_messages import Ack, EndReached, Ready, Records, Serve, Unserved
from pixy.engine.consume.partition_owner import PartitionOwner
from pixy.membership import AssignedPartition
from tests.unit.engine.records import TOPIC, Record

EPOCH = 7
START = AssignedPartition(TOPIC, 0, 10, "", EPOCH, new=False)


class Session:
    """The part of a session that an owner calls."""

    def credit(self, partition: object, messages: int, size: int) -> None:
        pass


class Stage:
    """An owner with probes around it."""

    def __init__(self, sim: Sim, start: AssignedPartition = START) -> None:
        self.loop = sim.system.loop
        self.group: Probe = sim.probe("group")
        self.committer: Probe = sim.probe("committer")
        committer: Any = self.committer.ref
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


def test_sparse_acks_count_from_the_committed_offset_when_retention_has_passed_it() -> None:
    """Committed at 4 with 12 to 14 and 20 acknowledged; the log begins at 13 now."""
    metadata = sparse_acks.encode(4, [(12, 15), (20, 21)])

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, AssignedPartition(TOPIC, 0, 13, metadata, EPOCH, new=True, base=4))
        moved = Moved((TOPIC, 0), EPOCH, Position(15, ((20, 21),)), at_once=True)
        assert await stage.committer.expect() == moved
        stage.fetched(EPOCH, *range(13, 22))
        assert await stage.group.expect() == Ready((TOPIC, 0), EPOCH, 6)
        offers = [(await stage.serve()).offset for _ in range(6)]
        assert offers == [15, 16, 17, 18, 19, 21]

    simulate(scenario, seed=1)


def test_a_gap_at_the_end_moves_the_position_under_the_same_epoch_only() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim)
        stage.ref.tell(EndReached(EPOCH - 1, 50), urgent=True)
        await stage.committer.expect_none()
        stage.fetched(EPOCH, 10)
        stage.ref.tell(EndReached(EPOCH, 12), urgent=True)
        assert await stage.committer.expect() == Moved((TOPIC, 0), EPOCH, Position(10, ((11, 12),)))
        offer = await stage.serve()
        stage.ref.tell(Ack(offer.offset), urgent=True)
        assert await stage.committer.expect() == Moved((TOPIC, 0), EPOCH, Position(12))

    simulate(scenario, seed=1)

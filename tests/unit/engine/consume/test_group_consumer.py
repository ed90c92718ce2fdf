"""A group's actor when its session, an owner or itself fails: what is committed, and what clients see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from actors import ActorDeadError, Backoff, Future, Intensity, Supervision
from actors.testing import Crash, Probe, Sim, simulate
from pixy.config.model import Proxy
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.consume.group_messages import (
    AckMessage,
    Consume,
    DrainOverdue,
    GroupLeaving,
    GroupStarted,
    Leave,
    Owned,
    PausesChanged,
)
from pixy.engine.consume.long_polls import Delivery, Poll
from pixy.engine.consume.partition_messages import DrainPartition, Records, Serve, Unserved
from pixy.engine.consume.subscriptions import SubscriptionDue
from pixy.errors import KafkaError, LongPollTimeout, PartitionLost, TooManyRequests, Unavailable
from pixy.kafka.consumer import Commit
from pixy.membership import Assigned, AssignedPartition, Event, Fetched, Lost, Revoked, SessionFailed
from pixy.wire.types import TopicPartition
from tests.unit.engine.records import TOPIC, Record

REFUSED = KafkaError("kafka server: The client is not authorized to access this group.", 30, "GROUP_AUTH")


class Session:
    """Records its calls; the test posts the events."""

    def __init__(self, stage: Stage, post: Callable[[Event], None]) -> None:
        self.stage = stage
        self.post = post
        self.topics: dict[str, int] = {}
        self.committed: list[Commit] = []
        self.released: list[list[Commit]] = []
        self.credited = 0
        self.seeks: list[tuple[TopicPartition, int, int]] = []
        self.closed: list[Commit] | None = None
        self.close_takes = 0.0
        self.returned = 0
        """How many calls of ``close`` have returned."""

    def subscribe(self, topics: Mapping[str, int]) -> None:
        self.topics = dict(topics)

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None:
        self.credited += messages

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        self.seeks.append((partition, offset, epoch))

    def next_epoch(self) -> int:
        self.stage.epochs += 1
        return self.stage.epochs

    def commit(self, commits: Iterable[Commit]) -> None:
        self.committed += commits

    def release(self, _revoked: Revoked, commits: Iterable[Commit]) -> None:
        self.released.append(list(commits))

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        if self.closed is None:
            self.closed = list(commits)
        await asyncio.sleep(min(self.close_takes, timeout))
        self.returned += 1

    # -- the test's side --------------------------------------------------------------------------

    def assign(self, *partitions: int, position: int = 0) -> None:
        """Assign partitions and deliver ten messages of each."""
        starts = tuple(
            AssignedPartition(TOPIC, number, position, "", self.next_epoch(), new=False)
            for number in partitions
        )
        self.post(Assigned(starts))
        for start in starts:
            self.fetched(start.partition, start.epoch, position)

    def fetched(self, partition: int, epoch: int, position: int, count: int = 10) -> None:
        records = [Record(partition, offset) for offset in range(position, position + count)]
        self.post(Fetched({(TOPIC, partition): (epoch, records)}))


class Stage:
    """A group with recording sessions and a probe for its cluster."""

    def __init__(self, sim: Sim, refused: int = 0, **consumer: Any) -> None:
        self.sim = sim
        self.epochs = 0
        self.sessions: list[Session] = []
        self.refuse_sessions = refused
        self.cluster: Probe = sim.probe("cluster")
        self.paused: set[TopicPartition] = set()
        proxy = Proxy()
        for name, value in consumer.items():
            setattr(proxy.consumer, name, value)
        self.ref = sim.system.spawn(
            GroupConsumer,
            "g",
            proxy,
            self.cluster.ref,
            self._open,
            self._look_up,
            paused=self.paused.__contains__,
            name="g",
            supervision=Supervision(backoff=Backoff(first=0.01), intensity=Intensity(1000, 3600)),
        )

    def _open(self, _group: str, post: Callable[[Event], None]) -> Any:
        if self.refuse_sessions:
            self.refuse_sessions -= 1
            raise Unavailable("no client left")
        self.sessions.append(Session(self, post))
        return self.sessions[-1]

    async def _look_up(self, _topic: str) -> int:
        return 4

    def left(self) -> bool:
        """Whether the group has told its cluster that it leaves."""
        return any(isinstance(each, GroupLeaving) for each in self.cluster.messages)

    @property
    def session(self) -> Session:
        return self.sessions[-1]

    async def consume(self, topic: str = TOPIC, *, auto_ack: bool = False) -> Delivery:
        return await self.ref.ask(Consume(topic, auto_ack), block=False)

    async def ack(self, delivery: Delivery) -> None:
        await self.ref.ask(AckMessage(TOPIC, delivery.partition, delivery.offset), block=False, urgent=True)

    async def joined(self, *partitions: int, position: int = 0) -> None:
        """Have a first request join the group, and consume one message per partition."""
        first = asyncio.create_task(self.consume())
        await self.until(lambda: self.sessions and self.session.topics)
        self.session.assign(*partitions, position=position)
        await self.ack(await first)
        for _ in partitions[1:]:
            await self.ack(await self.consume())

    async def until(self, check: Callable[[], Any]) -> None:
        async with asyncio.timeout(600):
            while not check():
                await asyncio.sleep(0.01)


def offsets(commits: Iterable[Commit] | None) -> dict[int, int]:
    assert commits is not None, "not closed"
    return {commit.partition: commit.offset for commit in commits}


def run(scenario: Callable[[Sim], Any], *faults: Any) -> None:
    for seed in range(5):
        simulate(scenario, seed=seed, faults=faults, may_escalate=True)


@pytest.mark.slow
def test_a_group_whose_session_fails_commits_and_joins_again_for_ever() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=3600.0)
        await stage.joined(0, 1)
        for number in range(20):
            failed = stage.session
            failed.post(SessionFailed(REFUSED))
            await stage.until(lambda number=number: len(stage.sessions) == number + 2)
            assert stage.session.topics == {TOPIC: 4}
            assert number or offsets(failed.closed) == {0: 1, 1: 1}, "acknowledged, so committed first"
        stage.session.assign(0, 1, position=1)
        assert (await stage.consume()).offset == 1
        assert not stage.left()

    run(scenario)


@pytest.mark.parametrize("crash", [False, True], ids=["", "its owner fails meanwhile"])
def test_a_paused_partition_offers_nothing_takes_acks_and_goes_on_in_order(crash: bool) -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, long_polling_timeout=3.0, ack_timeout=600.0)
        await stage.joined(0, 1)
        held = {each.partition: each for each in [await stage.consume(), await stage.consume()]}
        stage.paused.add((TOPIC, 0))
        assert await stage.ref.ask(PausesChanged(), block=False) == ((TOPIC, 0),)
        assert [(await stage.consume()).partition for _ in range(4)] == [1] * 4
        if crash:
            sim.inject(Crash(path=f"/g/{TOPIC}.0", message=Records, times=1))
            stage.session.fetched(0, stage.epochs, 10)
            await stage.until(lambda: stage.session.seeks)
            assert stage.session.seeks[-1][:2] == ((TOPIC, 0), 1)
            stage.session.fetched(0, stage.epochs, 1)
        await stage.ack(held[0])
        await stage.until(lambda: offsets(stage.session.committed).get(0) == 2)
        stage.session.post(Lost(((TOPIC, 1),)))
        with pytest.raises(LongPollTimeout):
            await stage.consume()
        stage.paused.clear()
        assert await stage.ref.ask(PausesChanged(), block=False) == ()
        assert [(await stage.consume()).offset for _ in range(8)] == list(range(2, 10))

    run(scenario)


def test_a_partition_that_comes_while_its_group_is_paused_waits_for_the_resume() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, long_polling_timeout=3.0)
        stage.paused.add((TOPIC, 0))
        with pytest.raises(LongPollTimeout):
            await stage.joined(0)
        waiting = asyncio.create_task(stage.consume())
        await sim.sleep(1)
        assert not waiting.done()
        stage.paused.clear()
        await stage.ref.ask(PausesChanged(), block=False)
        assert (await waiting).offset == 0

    run(scenario)


def test_a_commit_that_a_failed_session_never_answered_holds_up_no_later_one() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=3600.0)
        await stage.joined(0)
        await stage.until(lambda: stage.session.committed)  # and no answer
        stage.session.post(SessionFailed(REFUSED))
        await stage.until(lambda: len(stage.sessions) == 2)
        stage.session.assign(0, position=1)
        await stage.ack(await stage.consume())
        await stage.until(lambda: stage.session.committed)
        assert offsets(stage.session.committed) == {0: 2}

    run(scenario)


def test_a_topic_that_expires_and_is_asked_for_at_once_is_served_by_its_owners() -> None:
    """The session may never hear that it was unsubscribed from: then nothing is revoked, and nothing assigned."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=5.0, long_polling_timeout=3.0, join_timeout=600.0)
        await stage.joined(0)
        other = asyncio.create_task(stage.consume("other"))
        await stage.until(lambda: set(stage.session.topics) == {"other"})
        for offset in range(1, 10):
            delivery = await stage.consume()
            assert delivery.offset == offset
            await stage.ack(delivery)
        begun = sim.loop.time()
        with pytest.raises(LongPollTimeout):
            await stage.consume()
        assert sim.loop.time() - begun < 10, "the group has the topic's partitions: it waits for no join"
        other.cancel()

    run(scenario)


def test_a_group_that_fails_while_it_leaves_takes_requests_again_and_ends_if_none_come() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=5.0, drain_timeout=60.0)
        await stage.joined(0)
        held = await stage.consume()
        assert held.offset == 1
        leaving = stage.ref.ask(Leave(), block=False)
        assert (await stage.cluster.fish(GroupLeaving)).group == "g"
        sim.inject(Crash(path="/g", message=Fetched, times=1))
        stage.session.fetched(0, stage.epochs, 10)
        with pytest.raises(ActorDeadError):
            await leaving
        assert (await stage.cluster.expect(GroupStarted)).group == "g"
        assert (await stage.cluster.expect(GroupLeaving, timeout=30)).group == "g", "nobody asks for a topic"
        await stage.until(lambda: not stage.ref.is_alive())

    run(scenario)


@pytest.mark.parametrize("leave", [False, True])
def test_an_ack_while_other_partitions_drain_counts(leave: bool) -> None:
    """Also one that comes when its message is not awaited any more, because its time is over."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, ack_timeout=0.5, drain_timeout=2.0, offsets_commit_interval=0.1)
        await stage.joined(0, 1)
        late = await stage.consume()
        await sim.sleep(0.6)
        fresh = await stage.consume()
        while fresh.partition == late.partition:
            fresh = await stage.consume()
        leaving = None
        if leave:
            leaving = stage.ref.ask(Leave(), block=False)
        else:
            stage.session.post(Revoked(((TOPIC, 0), (TOPIC, 1))))
        await sim.sleep(0.3)
        await stage.ack(late)
        await sim.sleep(0.3)
        await stage.ack(fresh)
        if leaving is None:
            await stage.until(lambda: stage.session.released)
            last = offsets(stage.session.released[0])
        else:
            await leaving
            last = offsets(stage.session.closed)
        assert last == {0: 2, 1: 2}

    run(scenario)


def test_a_stop_during_a_revocation_does_not_hold_up_its_release() -> None:
    """The session waits for half a second longer than the owners, and then lets the partitions go without a commit."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, ack_timeout=60.0, drain_timeout=2.0)
        await stage.joined(0, 1)
        held = {delivery.partition: delivery for delivery in [await stage.consume() for _ in range(2)]}
        revoked = Revoked(((TOPIC, 0),))
        begun = sim.loop.time()
        stage.session.post(revoked)
        await sim.sleep(1)
        leaving = stage.ref.ask(Leave(), block=False)
        await sim.sleep(0.2)
        await stage.ack(held[0])
        await stage.until(lambda: stage.session.released)
        assert sim.loop.time() - begun < 2
        assert offsets(stage.session.released[0]) == {0: 2}
        await stage.ack(held[1])
        await leaving
        assert offsets(stage.session.closed) == {1: 2}

    run(scenario)


@pytest.mark.parametrize("late", [Lost(((TOPIC, 0),)), SessionFailed(REFUSED), Revoked(((TOPIC, 0),))])
def test_a_session_of_an_earlier_life_is_not_heard(late: Event) -> None:
    """It may end long after its group has begun anew: while its last commit waited for a coordinator."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=3600.0)
        await stage.joined(0)
        earlier = stage.session
        sim.inject(Crash(path="/g", message=Fetched, times=1))
        earlier.fetched(0, stage.epochs, 10)
        earlier.post(late)  # it lies in the mailbox, behind the message with which the group fails
        waiting = asyncio.create_task(stage.consume())
        await stage.until(lambda: len(stage.sessions) == 2 and stage.session.topics)
        stage.session.assign(0, position=1)
        assert (await waiting).offset == 1
        earlier.post(late)
        await sim.sleep(1)
        assert await stage.ref.ask(Owned(), block=False) == {TOPIC: [0]}
        assert len(stage.sessions) == 2

    run(scenario)


def test_a_group_whose_first_session_cannot_be_opened_answers_and_tries_again() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, refused=4, long_polling_timeout=3.0, join_timeout=1.0)
        with pytest.raises(Unavailable, match="no client left"):
            await stage.consume()
        waiting = asyncio.create_task(stage.consume())
        await stage.until(lambda: stage.sessions and stage.session.topics)
        stage.session.assign(0)
        assert (await waiting).offset == 0

    run(scenario)


def test_of_long_polls_that_time_out_together_some_do_so_in_each_turn_of_the_loop() -> None:
    """Those that a group kept waiting while it joined have the same deadline."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=3600.0, long_polling_timeout=3.0, join_timeout=10.0)
        await stage.joined(0)
        for _ in range(9):
            await stage.ack(await stage.consume())
        polls = [asyncio.create_task(stage.consume()) for _ in range(1000)]
        await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        before = 0
        while before < 1000:
            done = sum(poll.done() for poll in polls)
            assert done - before <= 200
            before = done
            await asyncio.sleep(0)
        assert all(isinstance(poll.exception(), LongPollTimeout) for poll in polls)

    run(scenario)


def test_only_the_first_request_for_a_topic_waits_for_the_join() -> None:
    """With KIP-848 a member that gets no partition of a new topic hears nothing: its assignment does not change."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=3600.0, long_polling_timeout=3.0, join_timeout=10.0)
        await stage.joined(0)
        for most in (14, 4):
            begun = sim.loop.time()
            with pytest.raises(LongPollTimeout):
                await stage.consume("other")
            assert sim.loop.time() - begun < most

    run(scenario)


def test_what_a_failed_session_still_posts_is_ignored() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim)
        await stage.joined(0)
        failed = stage.session
        failed.post(SessionFailed(REFUSED))
        await stage.until(lambda: len(stage.sessions) == 2)
        failed.assign(0)
        await sim.sleep(1)
        assert await stage.ref.ask(Owned(), block=False) == {}

    run(scenario)


def test_a_session_that_cannot_be_opened_is_tried_again() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim)
        await stage.joined(0)
        stage.refuse_sessions = 3
        stage.session.post(SessionFailed(REFUSED))
        await stage.until(lambda: len(stage.sessions) == 2)
        assert not stage.refuse_sessions and stage.session.topics

    run(scenario)


@pytest.mark.slow
def test_the_pauses_between_sessions_grow() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=3600.0)
        await stage.joined(0)
        begun = sim.loop.time()
        for number in range(10):
            stage.session.post(SessionFailed(REFUSED))
            await stage.until(lambda number=number: len(stage.sessions) == number + 2)
        assert sim.loop.time() - begun > 60

    run(scenario)


def test_clients_of_a_group_without_a_session_are_told_why() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, long_polling_timeout=0.2)
        await stage.joined(0)
        early = asyncio.create_task(stage.consume(auto_ack=True))
        delivery = await early
        stage.session.post(SessionFailed(REFUSED))
        with pytest.raises(Unavailable, match="cannot consume now: kafka server: The client is not auth"):
            while True:
                await stage.consume()
        with pytest.raises(PartitionLost):
            await stage.ack(delivery)
        await stage.until(lambda: len(stage.sessions) == 2)
        with pytest.raises(LongPollTimeout):
            await stage.consume()

    run(scenario)


def test_a_group_whose_session_fails_while_it_leaves_ends_all_the_same() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=5.0)
        await stage.joined(0)
        await stage.consume()  # holds up the drain
        leaving = stage.ref.ask(Leave(), block=False, urgent=True)
        await sim.sleep(0.1)
        stage.session.post(SessionFailed(REFUSED))
        begun = sim.loop.time()
        await leaving
        assert sim.loop.time() - begun < 6
        assert len(stage.sessions) == 1 and offsets(stage.session.closed) == {0: 1}

    run(scenario)


def test_a_group_that_leaves_does_not_join_again_meanwhile() -> None:
    """The thread of its failed session hangs while the brokers are away: each call of close takes its whole timeout."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim)
        await stage.joined(0)
        stage.session.close_takes = 3600.0
        stage.session.post(SessionFailed(REFUSED))
        await stage.until(lambda: stage.session.returned)
        await stage.ref.ask(Leave(), block=False)
        assert len(stage.sessions) == 1, "another one would be a rebalance for the group's other members"

    run(scenario)


@pytest.mark.parametrize("path", ["/g", "/g/committer"])
def test_a_crash_of_the_group_or_its_committer_commits_what_was_acknowledged(path: str) -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, offsets_commit_interval=3600.0)
        await stage.joined(0, 1)
        await sim.sleep(0.1)  # the committer knows of the last ack
        sim.inject(Crash(path=path, times=1))
        session = stage.session
        if path == "/g":
            stage.ref.notify(DrainPartition(1.0))  # whatever the message
        else:
            session.fetched(0, stage.epochs - 1, 10)
            delivery = await stage.consume()
            stage.ref.notify(AckMessage(TOPIC, delivery.partition, delivery.offset), urgent=True)
        await stage.until(lambda: session.closed is not None)
        assert offsets(session.closed)[0] >= 1 and offsets(session.closed)[1] >= 1

    run(scenario)


def test_a_drain_that_outlasts_its_time_leaves_the_new_owner_alone() -> None:
    """The session has given up its wait, and has the same partition again before the old owner has drained."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=2.0)
        await stage.joined(0, 1)
        held = await stage.consume()
        stage.session.post(Revoked(((TOPIC, 0), (TOPIC, 1))))
        await sim.sleep(0.1)
        stage.session.assign(0, 1, position=5)
        await sim.sleep(10)  # the old owner's drain ends in this time
        assert await stage.ref.ask(Owned(), block=False) == {TOPIC: [0, 1]}
        assert not stage.session.released, "nobody waits for this release: it would end a later wait"
        assert {(await stage.consume()).offset for _ in range(2)} == {5}
        assert held.offset == 1

    run(scenario)


def test_partitions_that_come_during_a_drain_do_not_end_it() -> None:
    """In ZooKeeper a member hands one partition back, and gets others, in the same round."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=2.0, offsets_commit_interval=3600.0)
        await stage.joined(0)
        held = await stage.consume()
        stage.session.post(Revoked(((TOPIC, 0),)))
        await sim.sleep(0.1)
        stage.session.assign(1)
        stage.session.post(Assigned(()))
        await sim.sleep(0.1)
        assert not stage.session.released, "a client still has a message"
        await stage.ack(held)
        await stage.until(lambda: stage.session.released)
        assert [offsets(each) for each in stage.session.released] == [{0: 2}], "without its last ack"
        assert await stage.ref.ask(Owned(), block=False) == {TOPIC: [1]}
        assert (await stage.consume()).partition == 1

    run(scenario)


@pytest.mark.parametrize("in_time", [True, False])
def test_a_partition_that_comes_back_during_a_drain_is_left_out_of_the_release(in_time: bool) -> None:
    """It was lost meanwhile. The new owner outlives the release, and the next revocation, of others."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=2.0, offsets_commit_interval=3600.0)
        await stage.joined(0, 1)
        held = [await stage.consume(), await stage.consume()]
        stage.session.post(Revoked(((TOPIC, 0), (TOPIC, 1))))
        stage.session.post(Lost(((TOPIC, 0),)))
        stage.session.assign(0, position=1)
        await sim.sleep(0.1)
        assert not stage.session.released
        if in_time:
            await stage.ack(next(each for each in held if each.partition == 1))
            await stage.until(lambda: stage.session.released)
            assert offsets(stage.session.released[0]) == {1: 2}
        stage.session.assign(2)
        stage.session.post(Revoked(((TOPIC, 2),)))
        await sim.sleep(10)
        assert await stage.ref.ask(Owned(), block=False) == {TOPIC: [0]}

    run(scenario)


def test_an_owner_that_fails_does_not_hold_up_the_release_of_the_others() -> None:
    """Its pause before the restart is longer than the drain."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=2.0)
        await stage.joined(0, 1)
        sim.inject(Crash(path="/g/t.0", times=5))
        stage.session.post(Revoked(((TOPIC, 0), (TOPIC, 1))))
        begun = sim.loop.time()
        await stage.until(lambda: stage.session.released)
        assert sim.loop.time() - begun < 2.5, "the session waits for drain_timeout and half a second"
        assert offsets(stage.session.released[0]) == {0: 1, 1: 1}, "the failing owner's acks count too"

    run(scenario)


def test_the_end_of_a_release_that_was_given_up_does_not_end_a_later_drain() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=2.0, offsets_commit_interval=3600.0)
        await stage.joined(0, 1)
        for _ in range(2):
            await stage.consume()  # holds up the drain
        stage.session.post(Revoked(((TOPIC, 0), (TOPIC, 1))))
        await sim.sleep(0.1)
        stage.session.assign(0, 1, position=5)
        held = [await stage.consume() for _ in range(2)]
        await sim.sleep(1.4)
        leaving = stage.ref.ask(Leave(), block=False)
        await sim.sleep(1.5)  # the first drain would have ended in this time
        for each in held:
            await stage.ack(each)
        await leaving
        assert offsets(stage.session.closed) == {0: 6, 1: 6}

    run(scenario)


def test_an_ack_that_meets_the_end_of_a_drain_is_either_committed_or_refused() -> None:
    """The group has taken the last position, but the owner still handles what was sent to it before."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=2.0, offsets_commit_interval=3600.0)
        await stage.joined(0)
        held = await stage.consume()
        stage.session.post(Revoked(((TOPIC, 0),)))
        await sim.sleep(1)
        acked = stage.ref.ask(AckMessage(TOPIC, 0, held.offset), block=False, urgent=True)
        stage.ref.notify(DrainOverdue(((TOPIC, 0),)), urgent=True)
        await stage.until(lambda: stage.session.released)
        try:
            await acked
        except PartitionLost:
            wanted = 1
        else:
            wanted = 2
        assert offsets(stage.session.released[0]) == {0: wanted}
        outcomes.add(wanted)

    outcomes: set[int] = set()
    run(scenario)
    assert 1 in outcomes, "the ack never came too late"


def test_while_a_failing_owner_pauses_the_others_serve_all_requests() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=3600.0)
        await stage.joined(0, 1)
        await sim.sleep(0.1)
        sim.inject(Crash(path="/g/t.0", times=4))
        for number in range(4):  # each life fails with the next one, and the pauses grow
            stage.session.fetched(0, stage.epochs - 1, 10 + number, 1)
        await sim.sleep(0.01)
        begun = sim.loop.time()
        served = [await stage.consume() for _ in range(6)]
        assert {each.partition for each in served} == {1}
        assert sim.loop.time() - begun < 0.05

    run(scenario)


def test_the_next_session_begins_once_all_calls_of_close_have_returned() -> None:
    """A session of ZooKeeper that failed may still post a revocation, which ends the drain once more."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=3600.0)
        await stage.joined(0)
        failed, over = stage.session, asyncio.Event()
        calls: list[list[Commit]] = []

        async def close(commits: Iterable[Commit], _timeout: float) -> None:
            calls.append(list(commits))
            if len(calls) == 1:
                await over.wait()

        failed.close = close  # type: ignore[method-assign]
        failed.post(SessionFailed(REFUSED))
        await stage.until(lambda: calls)
        failed.post(Revoked(((TOPIC, 0),)))
        await sim.sleep(60)
        assert len(stage.sessions) == 1, "it has not left yet"
        over.set()
        await sim.sleep(60)
        assert len(stage.sessions) == 2

    run(scenario)


def test_a_request_that_comes_back_from_an_owner_while_the_group_leaves_is_asked_again() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=5.0)
        await stage.joined(0)
        await stage.consume()  # holds up the drain
        stage.ref._cell.actor.last_topic_expired()
        reply: Future[Any] = Future()
        stage.ref.notify(Unserved((TOPIC, 0), (Poll(reply, False, 0.0, 100.0),)), urgent=True)
        with pytest.raises(ActorDeadError):
            await reply

    run(scenario)


def test_a_partition_lost_during_the_drain_of_a_leave_is_not_waited_for() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, drain_timeout=50.0)
        await stage.joined(0, 1)
        for _ in range(4):
            await stage.consume()  # not acknowledged
        leaving = stage.ref.ask(Leave(), block=False, urgent=True)
        await sim.sleep(0.1)
        begun = sim.loop.time()
        stage.session.post(Lost(((TOPIC, 0), (TOPIC, 1))))
        await leaving
        assert sim.loop.time() - begun < 1
        assert stage.session.closed == []
        await stage.cluster.fish(GroupLeaving)

    run(scenario)


def test_an_auto_ack_counts_after_the_owner_that_made_the_offer_has_failed() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim)
        await stage.joined(0)
        delivery = await stage.consume(auto_ack=True)
        sim.inject(Crash(path="/g/t.0", message=Serve, times=1))
        waiting = asyncio.create_task(stage.consume())
        await stage.until(lambda: stage.session.seeks)
        delivery.sent()
        (partition, offset, epoch) = stage.session.seeks[-1]
        assert (partition, offset) == ((TOPIC, 0), 1)
        stage.session.fetched(0, epoch, 1)
        assert (await waiting).offset == 2

    run(scenario)


def test_acks_of_messages_not_offered_again_earn_credit_after_a_restart() -> None:
    """Else the partition's share of the client's buffer fills up with them and nothing more is fetched."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim)
        await stage.joined(0)
        held = [await stage.consume() for _ in range(8)]
        sim.inject(Crash(path="/g/t.0", message=Serve, times=1))
        waiting = asyncio.create_task(stage.consume())
        await stage.until(lambda: stage.session.seeks)
        stage.session.credited = 0
        stage.session.fetched(0, stage.session.seeks[-1][2], 1, 9)
        for delivery in (*held[1:], await waiting):
            await stage.ack(delivery)
        while stage.session.credited < 9:
            await stage.ack(await stage.consume())

    run(scenario)


def test_topics_of_a_group_are_bounded() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, max_topics=3, long_polling_timeout=0.1, join_timeout=0.0)
        waiting = [asyncio.create_task(stage.consume(f"t{number}")) for number in range(3)]
        await sim.settle()
        with pytest.raises(TooManyRequests, match=r"consumer\.max_topics"):
            await stage.consume("t3")
        for task in waiting:
            with pytest.raises(LongPollTimeout):
                await task
        with pytest.raises(LongPollTimeout):
            await stage.consume("t0")

    run(scenario)


def test_a_topic_whose_client_waits_is_not_idle_however_long_the_join_takes() -> None:
    """Else a group whose join outlasts subscription_timeout leaves and joins for ever."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=5.0, join_timeout=10.0, long_polling_timeout=2.0)
        for _ in range(4):
            begun = sim.loop.time()
            with pytest.raises(LongPollTimeout):
                await stage.consume()
            assert sim.loop.time() - begun > 11, "its wait begins with the join"
            await sim.sleep(0.3)
        stage.session.assign(0)
        assert (await stage.consume()).offset == 0
        assert len(stage.sessions) == 1 and not stage.left(), "it has never left"

    run(scenario)


def test_a_topic_that_nobody_asks_for_any_more_is_idle() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=5.0, join_timeout=10.0, long_polling_timeout=2.0)
        with pytest.raises(LongPollTimeout):
            await stage.consume()
        begun = sim.loop.time()
        await stage.until(lambda: stage.session.closed is not None)
        assert 5.0 <= sim.loop.time() - begun < 6.0

    run(scenario)


def test_a_client_that_has_gone_keeps_no_topic() -> None:
    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=5.0, join_timeout=10.0, long_polling_timeout=2.0)
        begun = sim.loop.time()
        gone = asyncio.create_task(stage.consume())
        await sim.sleep(0.1)
        gone.cancel()
        await stage.until(lambda: stage.session.closed is not None)
        assert sim.loop.time() - begun < 13.0

    run(scenario)


@pytest.mark.slow
def test_the_time_in_which_the_process_was_frozen_does_not_count_as_idle() -> None:
    """Clients asked all the time; their requests wait in the sockets of the daemon that runs again."""

    async def scenario(sim: Sim) -> None:
        stage = Stage(sim, subscription_timeout=5.0, long_polling_timeout=2.0)
        await stage.joined(0)
        polls = stage.ref._cell.actor._subscriptions.get(TOPIC)
        polls.last_request -= 20.0  # as if the clock had gone on for 20 s before the timer fires
        polls.check_at = sim.loop.time() - 20.0
        stage.ref.tell(SubscriptionDue(TOPIC))
        await sim.sleep(1)
        assert stage.session.closed is None
        assert (await stage.consume()).offset == 1
        await stage.until(lambda: stage.session.closed is not None)

    run(scenario)

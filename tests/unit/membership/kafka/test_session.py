"""How a session drives its consumer, with a consumer that runs the test's steps."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from pixy.errors import KafkaError, PixyError
from pixy.kafka.consumer import OUT_OF_RANGE, PARTITION_END, Check, Commit, CommittedOffset
from pixy.kafka.partition_logs import FirstAttempt, Log
from pixy.membership import (
    Assigned,
    AssignedPartition,
    Committed,
    Event,
    Fetched,
    Lost,
    Revoked,
    SessionFailed,
)
from pixy.membership.kafka import (
    fetching_session as session_module,
    left_behind,
    member_thread,
    session_partitions,
    unheard as unheard_module,
)
from pixy.membership.kafka.session import KafkaSession
from pixy.membership.kafka.start_lookups import Found, Outcomes
from pixy.membership.kafka.waiting_partitions import Waiting
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition
from tests.support import make_config
from tests.unit.engine.records import TOPIC, Record

E = TypeVar("E")

FULL, OTHER = (TOPIC, 0), (TOPIC, 1)
ROOM = 10
ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
FATAL = -150  # RD_KAFKA_RESP_ERR__FATAL
NO_LEADER = KafkaError("no leader", 5, "LEADER_NOT_AVAILABLE", retriable=True)
FOUND = Found(Log(ID, 0, 100, 100), CommittedOffset(0, ""), True)


class FakeMessage(Record):
    leader = -1

    def error(self) -> None:
        return None

    def leader_epoch(self) -> int:
        return self.leader


class FakeError:
    """An event of librdkafka that is not a message."""

    def __init__(self, code: int, partition: int = 0, offset: int = 0) -> None:
        self._code, self._partition, self._offset = code, partition, offset

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> FakeError:
        return self

    def code(self) -> int:
        return self._code

    def fatal(self) -> bool:
        return False

    def str(self) -> str:
        return f"error {self._code}"


class FakeConsumer:
    """The part of :class:`pixy.kafka.consumer.ConsumerClient` that a session calls."""

    def __init__(self, _settings: object, **callbacks: Callable[[list[TopicPartition]], None]) -> None:
        self.polls = self.woken = 0
        self.callbacks = callbacks
        self.steps: queue.Queue[Callable[[], Any]] = queue.Queue()
        """Run inside ``poll``, in the session's thread; the result is the message."""
        self.calls: list[tuple[str, Any]] = []
        self.at = 2
        """The group's generation."""
        self.unanswered_heartbeats = 0
        self.refusals: list[int] = []
        """The codes of errors that answer the next commits."""

    def poll(self, _timeout: float) -> Any:
        self.polls += 1
        try:
            return self.steps.get(timeout=0.01)()
        except queue.Empty:
            return None

    def take(self, _most: int) -> list[Any]:
        return []

    def subscribe(self, topics: Iterable[str]) -> None:
        self.calls.append(("subscribe", list(topics)))

    def assign(self, starts: Iterable[tuple[TopicPartition, int]]) -> None:
        self.calls.append(("assign", [partition for partition, _ in starts]))

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(("unassign", list(partitions)))

    def restart(self, partition: TopicPartition, offset: int) -> None:
        self.calls.append(("restart", (partition, offset)))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(("pause", list(partitions)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(("resume", list(partitions)))

    def learn(self, topics: Iterable[str]) -> None:
        self.calls.append(("learn", sorted(topics)))

    def wake(self) -> None:
        self.woken += 1

    def generation(self) -> int:
        return self.at

    def member_id(self) -> str:
        return "me"

    def under_way(self) -> None:
        return None

    def commit(self, commits: Iterable[Commit], *, wait: bool, check: Check | None) -> None:
        if self.refusals:
            code = self.refusals.pop(0)
            raise KafkaError(str(code), code, "REFUSED")
        self.calls.append(("commit", list(commits)))

    def close(self) -> None:
        pass


class FakeLookups:
    """The part of :class:`StartLookups` that a session calls. The test says what is found."""

    def __init__(self, *_: object) -> None:
        self.running = 0
        self.outcomes: dict[TopicPartition, Found | PixyError] = {}
        """Of the next lookups; else the group's committed offset is 0, and the log goes from there to 100."""
        self.down: set[TopicPartition] = set()
        """Those that have no leader."""
        self.ids: dict[str, uuid.UUID] = {}
        """Of topics, when they are described."""
        self.deleted: set[str] = set()
        self.asked: list[list[TopicPartition]] = []
        self.leaders: dict[TopicPartition, list[int]] = {}
        """The leader epochs that were asked about, -1 for those of the commits."""
        self.is_behind: int | None = None
        """The epoch in which the coordinator sees the member, if the group is further."""
        self.established_topics: set[str] | None = set()
        """The topics that the group has offsets of before it joins; None: the coordinator does not answer."""

    def behind(self, member_id: str, found: Callable[[int | None], None]) -> None:
        assert member_id == "me"
        found(self.is_behind)

    def look_up(
        self,
        partitions: Mapping[TopicPartition, FirstAttempt],
        _after: object,
        found: Callable[[Outcomes], None],
        done: Callable[[], None],
    ) -> None:
        wanted = list(partitions)
        self.asked.append(wanted)
        for each, first in partitions.items():
            self.leaders.setdefault(each, []).append(first.leader)
        found({each: NO_LEADER if each in self.down else self.outcomes.pop(each, FOUND) for each in wanted})
        done()

    def established(self, partitions: Iterable[TopicPartition]) -> set[str] | None:
        return (
            None if self.established_topics is None else self.established_topics & {t for t, _ in partitions}
        )

    def describe(self, _topics: Iterable[str], found: Callable[[Any], None], _since: float = 0.0) -> None:
        found(self)

    def gone(self, topic: str) -> bool:
        return topic in self.deleted

    def close(self) -> None:
        pass


class Case:
    """A session of a group that was assigned both partitions, and has paused one because it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session_module, "ConsumerClient", FakeConsumer)
        monkeypatch.setattr(session_module, "StartLookups", FakeLookups)
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        config = make_config(["127.0.0.1:1"], prefetch_max_messages=ROOM)
        self.session = KafkaSession(config.proxies["default"], "g", self.events.put_nowait)
        self.consumer: FakeConsumer = self.session._client  # type: ignore[assignment]
        self.lookups: FakeLookups = self.session._lookups  # type: ignore[assignment]

    async def event(self, wanted: type[E]) -> E:
        async with asyncio.timeout(30):
            event = await self.events.get()
        assert isinstance(event, wanted), event
        return event

    def step(self, callback: str, *partitions: TopicPartition) -> None:
        self.consumer.steps.put(lambda: self.consumer.callbacks[callback](list(partitions)))

    async def join(self) -> tuple[AssignedPartition, ...]:
        self.session.subscribe({TOPIC: 2})
        self.step("assign", FULL, OTHER)
        return (await self.event(Assigned)).partitions

    def poll(self, message: Any) -> None:
        self.consumer.steps.put(lambda: message)

    async def fill(self) -> None:
        await self.join()
        for offset in range(ROOM):
            self.poll(FakeMessage(0, offset))
            await self.event(Fetched)
        await self.until(("pause", [FULL]))
        self.consumer.calls.clear()

    async def until(self, reached: tuple[str, Any] | Callable[[], bool]) -> None:
        """Wait for a call of the consumer, or for a condition."""
        async with asyncio.timeout(30):
            while not (reached() if callable(reached) else reached in self.consumer.calls):
                await asyncio.sleep(0.001)


async def test_a_seek_resumes_a_paused_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the owner that restarts, and seeks because of it, would never get a message again."""
    case = Case(monkeypatch)
    await case.fill()
    case.session.seek(FULL, 3, case.session.next_epoch())
    await case.until(("restart", (FULL, 3)))
    assert not case.session._flow.changes()[1], "flow control counts it as empty"
    await case.session.close((), 10)


async def test_a_paused_partition_that_returns_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    await case.fill()
    case.step("revoke", FULL)
    revoked = await case.event(Revoked)
    assert revoked == Revoked((FULL,))
    case.session.release(revoked, [Commit(TOPIC, 0, 5, "")])
    case.step("assign", FULL)
    await case.event(Assigned)
    assert case.consumer.calls[:5] == [
        ("commit", [Commit(TOPIC, 0, 5, "")]),
        ("unassign", [FULL]),
        ("assign", []),
        ("assign", [FULL]),
        ("resume", [FULL]),
    ]
    await case.session.close((), 10)


async def test_commits_name_the_leader_epoch_of_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a group that comes back after an unclean election knows from where on its acks are for other messages.

    A message that is acknowledged may lie beyond the offset, and the marker of a transaction behind it has no epoch that we see.
    """
    case = Case(monkeypatch)
    case.lookups.outcomes[OTHER] = Found(Log(ID, 0, 100, 100, leader=9), CommittedOffset(40, "BB", 6), True)
    await case.join()
    for offset, leader in ((0, 7), (1, 7), (5, 9), (6, -1)):
        message = FakeMessage(0, offset)
        message.leader = leader
        case.poll(message)
        await case.event(Fetched)
    case.session.commit([Commit(TOPIC, 0, 2, "DB"), Commit(TOPIC, 1, 40, "CC")])
    await case.until(("commit", [Commit(TOPIC, 0, 2, "DB", 9), Commit(TOPIC, 1, 40, "CC", 6)]))
    await case.session.close([Commit(TOPIC, 0, 8, "")], 10)
    assert case.consumer.calls[-1] == ("commit", [Commit(TOPIC, 0, 8, "", 9)])


@pytest.mark.parametrize(("committed", "epoch"), [(None, -1), (40, -1), (200, 6)])
async def test_a_beginning_without_a_leader_epoch_gets_the_log_s(
    monkeypatch: pytest.MonkeyPatch, committed: int | None, epoch: int
) -> None:
    """Nothing was committed, or by who knows no epochs, or for another log."""
    case = Case(monkeypatch)
    known = CommittedOffset(committed, "", epoch)
    case.lookups.outcomes[OTHER] = Found(Log(ID, 0, 100, 100, leader=4), known, True)
    await case.join()
    case.session.commit([Commit(TOPIC, 1, 100, "")])
    await case.until(("commit", [Commit(TOPIC, 1, 100, "", 4)]))
    await case.session.close((), 10)


async def test_acks_beyond_a_truncation_are_for_other_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed offset itself still holds."""
    case = Case(monkeypatch)
    log = Log(ID, 0, 100, 100, epoch_end=45)
    case.lookups.outcomes[OTHER] = Found(log, CommittedOffset(40, "DF", 6), True)
    (other,) = [each for each in await case.join() if each.partition == 1]
    assert (other.position, other.base, other.metadata, other.end) == (40, 40, "DF", 45)
    await case.session.close((), 10)


async def test_what_answers_is_assigned_and_the_rest_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.lookups.outcomes[OTHER] = NO_LEADER
    assert [each.partition for each in await case.join()] == [0]
    (late,) = (await case.event(Assigned)).partitions
    assert (late.partition, late.position) == (1, 0)
    assert case.lookups.asked == [[FULL, OTHER], [OTHER]]
    assert ("assign", [FULL]) in case.consumer.calls and ("assign", [OTHER]) in case.consumer.calls
    await case.session.close((), 10)


async def test_a_member_joins_although_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.lookups.outcomes = {FULL: NO_LEADER, OTHER: NO_LEADER}
    assert await case.join() == ()
    assert len((await case.event(Assigned)).partitions) == 2
    await case.session.close((), 10)


async def test_a_partition_that_is_revoked_while_it_is_looked_up_is_not_assigned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch)
    answers: list[Callable[[], None]] = []

    def look_up(wanted: Iterable[TopicPartition], _after: object, found: Any, done: Any) -> None:
        each = list(wanted)
        answers.append(lambda: (found(dict.fromkeys(each, FOUND)), done())[-1])

    monkeypatch.setattr(case.lookups, "look_up", look_up)
    case.session.subscribe({TOPIC: 2})
    case.step("assign", FULL, OTHER)
    await case.until(lambda: bool(answers))
    case.step("revoke", OTHER)
    case.session.release(await case.event(Revoked), ())
    await case.until(lambda: ("unassign", []) in case.consumer.calls)
    answers.pop()()
    assert [each.partition for each in (await case.event(Assigned)).partitions] == [0]
    await case.session.close((), 10)


async def test_another_topic_of_the_same_name_begins_at_its_oldest_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is committed; and not before the leader knows the new topic."""
    case = Case(monkeypatch)
    before = {each.partition: each.epoch for each in await case.join()}
    new = Found(Log(OTHER_ID, 7, 100, 100), CommittedOffset(50, "BB"), True)
    case.lookups.outcomes = {FULL: FOUND, OTHER: new}
    case.lookups.ids = {TOPIC: OTHER_ID}
    case.session._partitions._compare_at = 0.0
    assert await case.event(Lost) == Lost((FULL, OTHER))
    (other,) = (await case.event(Assigned)).partitions
    assert other == AssignedPartition(TOPIC, 1, 7, "", other.epoch, new=True, end=100)
    assert other.epoch not in before.values()
    case.lookups.outcomes[FULL] = new
    (full,) = (await case.event(Assigned)).partitions
    assert (full.partition, full.position) == (0, 7)
    await case.session.close((), 10)


async def test_a_topic_that_goes_and_is_made_again_begins_at_its_oldest_message_in_a_group_that_had_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka has deleted the offsets with the topic, so that the group looks like a new one."""
    case = Case(monkeypatch)
    case.session._conf.initial_offset = "newest"
    assert [each.new for each in await case.join()] == [False, False], "the group has offsets"
    case.step("lost", FULL, OTHER)
    assert await case.event(Lost) == Lost((FULL, OTHER))
    new = Found(Log(OTHER_ID, 7, 100, 100), CommittedOffset(None, ""), False)
    case.lookups.outcomes = {FULL: new, OTHER: new}
    case.step("assign", FULL, OTHER)
    assert [each.position for each in (await case.event(Assigned)).partitions] == [7, 7]
    await case.session.close((), 10)


@pytest.mark.parametrize("missing", [False, True], ids=["it existed", "it was deleted at once"])
async def test_a_topic_that_is_made_again_before_this_member_gets_a_partition_begins_at_its_oldest_message(
    monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    """Another member had its only partition, and is gone. Kafka has deleted the offsets with the topic."""
    case = Case(monkeypatch)
    case.session._conf.initial_offset = "newest"
    case.lookups.ids, case.lookups.deleted = ({}, {TOPIC}) if missing else ({TOPIC: ID}, set())
    case.session.subscribe({TOPIC: 1})
    case.step("assign")
    assert await case.event(Assigned) == Assigned(())
    case.lookups.ids, case.lookups.deleted = {TOPIC: OTHER_ID}, set()
    case.lookups.outcomes = {FULL: Found(Log(OTHER_ID, 7, 100, 100), CommittedOffset(None, ""), False)}
    case.step("assign", FULL)
    (begun,) = (await case.event(Assigned)).partitions
    assert begun.position == 7
    await case.session.close((), 10)


async def test_a_member_without_partitions_of_a_topic_that_is_made_again_joins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka does not notice that the topic is back if the group was shared out without it."""
    case = Case(monkeypatch)
    monkeypatch.setattr(session_partitions, "_COMPARE_IDS", 0.0)
    case.lookups.ids = {TOPIC: ID}
    case.session.subscribe({TOPIC: 1})
    case.step("assign")
    assert await case.event(Assigned) == Assigned(())
    case.lookups.ids = {TOPIC: OTHER_ID}
    failed = await case.event(SessionFailed)
    assert f"{TOPIC} was made again" in str(failed.error)
    await case.session.close((), 10)


async def test_positions_of_a_topic_that_is_gone_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    await case.join()
    check = case.session._final_check((Commit(TOPIC, 0, 5, "BB"),))
    assert check is not None
    batch = (Commit(TOPIC, 0, 5, "BB"), Commit(TOPIC, 1, 6, ""))
    for ids, expected in (
        ({TOPIC: ID}, batch),
        ({TOPIC: NULL_UUID}, batch),
        ({}, ()),  # deleted: if it is made again in this moment, the positions must not be committed for it
        ({TOPIC: OTHER_ID}, (Commit(TOPIC, 0, 0, ""), Commit(TOPIC, 1, 0, ""))),
    ):
        topics = SimpleNamespace(ids=ids, gone=lambda topic, ids=ids: topic not in ids)
        offsets: Any = SimpleNamespace(topics=lambda *_, topics=topics, **__: topics)
        assert check(offsets, batch) == expected, ids
    assert await case.event(Lost) == Lost((FULL, OTHER)), "though one alone was to be committed"
    await case.session.close((), 10)


async def test_commits_of_a_busy_topic_do_not_keep_another_from_being_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it was made again, nothing comes of it perhaps, and then no commit of its own shows that."""
    case = Case(monkeypatch)
    clock = [1000.0]
    monkeypatch.setattr(
        "pixy.membership.kafka.session_partitions.time", SimpleNamespace(monotonic=lambda: clock[0])
    )
    elsewhere = ("elsewhere", 0)
    case.session.subscribe({TOPIC: 2, "elsewhere": 1})
    case.step("assign", FULL, OTHER, elsewhere)
    assert len((await case.event(Assigned)).partitions) == 3
    partitions = case.session._partitions
    case.lookups.ids = {TOPIC: ID, "elsewhere": OTHER_ID}
    partitions._compare_at = clock[0] + session_partitions._COMPARE_IDS
    until = clock[0] + session_partitions._COMPARE_IDS
    while clock[0] < until:
        clock[0] += 0.5
        assert partitions.check((Commit(TOPIC, 0, 5, ""), Commit(TOPIC, 1, 5, ""))) is not None
    assert await case.event(Lost) == Lost((elsewhere,))
    await case.session.close((), 10)


async def test_commits_of_all_topics_take_the_place_of_the_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch)
    await case.join()
    partitions = case.session._partitions
    partitions._compare_at = later = time.monotonic() + 3600
    assert partitions.check((Commit(TOPIC, 0, 5, ""),)) is not None
    assert partitions._compare_at < later, "from this commit on"
    await case.session.close((), 10)


@pytest.mark.parametrize(("oldest", "end", "lost"), [(40, 90, False), (0, 5, True), (0, 90, False)])
async def test_an_offset_out_of_range(
    monkeypatch: pytest.MonkeyPatch, oldest: int, end: int, lost: bool
) -> None:
    """Retention has passed it: go on at the oldest. The log ends before: it was truncated. Neither: go on."""
    case = Case(monkeypatch)
    epoch = (await case.join())[0].epoch
    case.poll(FakeMessage(0, 9))
    await case.event(Fetched)
    case.lookups.outcomes[FULL] = Found(Log(ID, oldest, end, end), CommittedOffset(3, ""), True)
    case.poll(FakeError(OUT_OF_RANGE))
    if lost:
        assert await case.event(Lost) == Lost((FULL,))
        assert (await case.event(Assigned)).partitions[0].position == 0
    else:
        if oldest:
            assert await case.event(Fetched) == Fetched({}, {FULL: (epoch, oldest)})
        await case.until(("restart", (FULL, max(10, oldest))))
    await case.session.close((), 10)


@pytest.mark.parametrize(("oldest", "epoch_end", "lost"), [(0, 7, True), (0, 10, False), (20, 7, False)])
async def test_a_truncated_log_that_has_outgrown_the_position_begins_anew(
    monkeypatch: pytest.MonkeyPatch, oldest: int, epoch_end: int, lost: bool
) -> None:
    """librdkafka has noticed the truncation, but the log's end no longer tells of it."""
    case = Case(monkeypatch)
    await case.join()
    message = FakeMessage(0, 9)
    message.leader = 3
    case.poll(message)
    await case.event(Fetched)
    log = Log(ID, oldest, 100, 100, epoch_end=epoch_end)
    case.lookups.outcomes[FULL] = Found(log, CommittedOffset(3, ""), True)
    case.poll(FakeError(OUT_OF_RANGE))
    if lost:
        assert await case.event(Lost) == Lost((FULL,))
        assert (await case.event(Assigned)).partitions[0].position == 0
    else:
        await case.until(("restart", (FULL, max(10, oldest))))
    assert case.lookups.leaders[FULL] == [-1, 3, *[-1] * lost]
    await case.session.close((), 10)


async def test_a_full_partition_that_was_out_of_range_is_paused_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka fetches it again, paused or not: while others have room, its whole log would come."""
    case = Case(monkeypatch)
    await case.fill()
    case.lookups.outcomes[FULL] = Found(Log(ID, 0, 100, 100), CommittedOffset(3, ""), True)
    case.poll(FakeError(OUT_OF_RANGE))
    await case.until(("restart", (FULL, ROOM)))
    await case.until(("pause", [FULL]))
    await case.session.close((), 10)


async def test_an_end_above_the_last_message_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    epoch = (await case.join())[0].epoch
    for message in (
        FakeMessage(0, 4),
        FakeError(PARTITION_END, 0, 5),
        FakeError(PARTITION_END, 0, 7),
        FakeError(PARTITION_END, 0, 7),
        FakeMessage(0, 7),
    ):
        case.poll(message)
    assert (await case.event(Fetched)).ends == {}
    assert await case.event(Fetched) == Fetched({}, {FULL: (epoch, 7)})
    assert (await case.event(Fetched)).ends == {}
    await case.session.close((), 10)


async def test_an_error_of_one_topic_does_not_end_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    await case.join()
    case.poll(FakeError(3))
    case.poll(FakeError(29))
    case.poll(FakeMessage(0, 0))
    await case.event(Fetched)
    await case.session.close((), 10)


async def test_a_coordinator_that_refuses_the_group_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka goes on asking, and says so in errors that are not fatal to it: clients would never learn why nothing comes."""
    case = Case(monkeypatch)
    case.session.subscribe({TOPIC: 2})
    case.poll(FakeError(30))
    await case.event(SessionFailed)
    await case.session.close((), 10)


async def test_an_answer_to_a_heartbeat_after_which_the_client_sends_none_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group was deleted from outside while the daemon was frozen: librdkafka tells it by the code, without the flag."""
    case = Case(monkeypatch)
    await case.join()
    case.poll(FakeError(FATAL))
    await case.event(SessionFailed)
    await case.session.close((), 10)


async def test_a_session_without_topics_polls_on_so_that_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    await case.join()
    case.session.subscribe({})
    await case.until(("subscribe", []))
    case.step("revoke", FULL, OTHER)
    case.session.release(await case.event(Revoked), ())
    await case.until(("unassign", [FULL, OTHER]))
    await case.session.close((), 10)


async def test_a_partition_that_is_revoked_before_its_beginning_is_known_has_it_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next owner would take it for one that was added to a topic that the group knows."""
    case = Case(monkeypatch)
    asked = threading.Event()
    new = Found(Log(ID, 3, 100, 100), CommittedOffset(None, ""), False)

    def look_up(wanted: Iterable[TopicPartition], _after: object, found: Any, done: Any) -> None:
        def answer() -> None:
            asked.wait(10)
            found(dict.fromkeys(wanted, new))
            done()

        case.lookups.running = 1
        threading.Thread(target=answer).start()

    def revoke() -> None:
        asked.set()
        case.consumer.callbacks["revoke"]([OTHER])

    monkeypatch.setattr(case.lookups, "look_up", look_up)
    case.session.subscribe({TOPIC: 2})
    case.step("assign", FULL, OTHER)
    case.consumer.steps.put(revoke)
    revoked = await case.event(Revoked)
    assert revoked == Revoked((OTHER,))
    assert ("commit", [Commit(TOPIC, 1, 3, "")]) in case.consumer.calls
    case.session.release(revoked, ())
    await case.session.close((), 10)


async def test_a_beginning_that_follows_from_a_committed_offset_is_left_to_the_next_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ranges in its metadata count from the committed offset: with another one they would acknowledge what nobody has read."""
    case = Case(monkeypatch)
    monkeypatch.setattr(case.lookups, "look_up", lambda *_: None)
    expired = Found(Log(ID, 500, 1000, 1000), CommittedOffset(100, "CB"), True)
    case.session.subscribe({TOPIC: 2})
    case.step("assign", FULL, OTHER)
    await case.until(("assign", []))
    partitions = case.session._partitions
    monkeypatch.setattr(partitions._waiting, "last", lambda _wanted, **_: [(OTHER, Waiting(1), expired)])
    case.step("revoke", OTHER)
    case.session.release(await case.event(Revoked), ())
    await case.until(("unassign", []))
    assert not [call for call in case.consumer.calls if call[0] == "commit"]
    await case.session.close((), 10)


@pytest.mark.parametrize("answer", [{TOPIC, "b"}, None])
async def test_offsets_of_a_topic_that_is_asked_for_before_the_join_count(
    monkeypatch: pytest.MonkeyPatch, answer: set[str] | None
) -> None:
    """They were set by another tool, or moved from ZooKeeper: a partition without one was added since. So, too, if nobody knows."""
    case = Case(monkeypatch)
    case.consumer.at = 1
    case.session._conf.initial_offset = "newest"
    case.lookups.established_topics = answer
    added = Found(Log(ID, 3, 100, 100), CommittedOffset(None, ""), True)
    case.lookups.outcomes[("b", 3)] = added
    case.session.subscribe({TOPIC: 2})
    case.session.subscribe({TOPIC: 2, "b": 4})
    case.step("assign", FULL, ("b", 3))
    found = {(each.topic, each.partition): each.position for each in (await case.event(Assigned)).partitions}
    assert found[("b", 3)] == 3, "the oldest message"
    await case.session.close((), 10)


async def test_a_partition_that_is_not_fetched_ends_the_session_though_others_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch)
    monkeypatch.setattr(unheard_module, "LOOK_AFTER", 0.0)
    monkeypatch.setattr(unheard_module, "PATIENCE_BUSY", 0.01)
    monkeypatch.setattr(unheard_module, "PATIENCE", 1000.0)
    log = Log(ID, 0, 100, 100)
    monkeypatch.setattr(
        case.lookups, "logs", lambda wanted, found: found(dict.fromkeys(wanted, log)), raising=False
    )
    case.session._partitions.beginnings.made_again.add(TOPIC)
    await case.join()
    for offset in range(1000):  # it never runs dry
        case.poll(FakeMessage(1, offset))
    case.session.credit(OTHER, 10**6, 0)
    while not isinstance(await case.events.get(), SessionFailed):
        case.session.credit(OTHER, 10, 0)
    assert ("learn", [TOPIC]) in case.consumer.calls, "it may not have known the partition"
    await case.session.close((), 10)


async def test_a_late_release_does_not_answer_the_next_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commits would be made for partitions that others have, and the next ones would go without theirs."""
    case = Case(monkeypatch)
    await case.join()
    monkeypatch.setattr(case.session._conf, "drain_timeout", -1.0)  # its wait ends at once
    case.step("revoke", FULL)
    late = await case.event(Revoked)
    await case.until(("unassign", [FULL]))
    monkeypatch.setattr(case.session._conf, "drain_timeout", 10.0)
    case.step("revoke", OTHER)
    revoked = await case.event(Revoked)
    case.session.release(late, [Commit(TOPIC, 0, 5, "")])
    awaited = case.session._awaited
    assert awaited is not None and not awaited.came.is_set(), "it waits on"
    case.session.release(revoked, [Commit(TOPIC, 1, 7, "")])
    await case.until(("unassign", [OTHER]))
    commits = [argument for call, argument in case.consumer.calls if call == "commit"]
    assert commits == [[Commit(TOPIC, 1, 7, "")]]
    await case.session.close((), 10)


@pytest.mark.parametrize("code", [22, 27, 113])
async def test_a_last_commit_is_tried_again_while_the_group_rebalances(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """At a stop, and when partitions are revoked."""
    case = Case(monkeypatch)
    await case.join()
    case.consumer.refusals = [code, code]
    case.step("revoke", FULL)
    case.session.release(await case.event(Revoked), [Commit(TOPIC, 0, 5, "")])
    await case.until(("commit", [Commit(TOPIC, 0, 5, "")]))
    case.consumer.refusals = [code, code]
    await case.session.close([Commit(TOPIC, 1, 6, "")], 10)
    assert ("commit", [Commit(TOPIC, 1, 6, "")]) in case.consumer.calls


async def test_a_last_commit_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once if another attempt is of no use, and else when the time is over."""
    case = Case(monkeypatch)
    monkeypatch.setattr(member_thread, "LAST_COMMIT", 0.1)
    await case.join()
    case.consumer.refusals = [25, 25]
    case.step("revoke", FULL)
    case.session.release(await case.event(Revoked), [Commit(TOPIC, 0, 5, "")])
    await case.until(("unassign", [FULL]))
    assert case.consumer.refusals == [25]
    case.consumer.refusals = [22] * 1000
    await case.session.close([Commit(TOPIC, 1, 6, "")], 10)
    assert case.session._ended.done() and not [each for each in case.consumer.calls if each[0] == "commit"]


async def test_a_revocation_during_a_stop_commits_inside_the_callback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stop has drained all partitions before the group hears of the revocation. After it, another member may have
    committed more.
    """
    case = Case(monkeypatch)
    await case.join()
    case.step("revoke", FULL)
    revoked = await case.event(Revoked)
    commits = [Commit(TOPIC, 0, 5, ""), Commit(TOPIC, 1, 6, "")]
    closing = asyncio.create_task(case.session.close(commits, 10))
    await asyncio.sleep(0)
    case.session.release(revoked, ())
    await case.session.close((), 10)  # the actor drains again, for the revocation, and there is nothing left
    await closing
    assert [each for each in case.consumer.calls if each[0] in ("commit", "unassign")] == [
        ("commit", commits[:1]),
        ("unassign", [FULL]),
        ("commit", commits[1:]),
    ]


async def test_a_partition_that_was_revoked_before_the_end_is_not_committed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch)
    await case.join()
    case.step("revoke", FULL)
    case.session.release(await case.event(Revoked), [Commit(TOPIC, 0, 5, "")])
    await case.session.close([Commit(TOPIC, 0, 5, ""), Commit(TOPIC, 1, 6, "")], 10)
    assert [each for each in case.consumer.calls if each[0] == "commit"] == [
        ("commit", [Commit(TOPIC, 0, 5, "")]),
        ("commit", [Commit(TOPIC, 1, 6, "")]),
    ]


async def test_a_partition_that_goes_and_comes_back_before_it_has_a_leader_begins_as_at_the_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The beginnings that the group has committed for the other partitions make it no older than it was."""
    case = Case(monkeypatch)
    case.session._conf.initial_offset = "newest"
    case.consumer.at = 1
    case.lookups.down = {OTHER}
    await case.join()
    case.consumer.at = 2
    case.step("lost", OTHER)
    await case.event(Lost)
    case.lookups.down = set()
    case.lookups.outcomes[OTHER] = Found(Log(ID, 0, 100, 100, 40), CommittedOffset(None, ""), True)
    case.step("assign", OTHER)
    (late,) = (await case.event(Assigned)).partitions
    assert (late.partition, late.position, late.new) == (1, 40, True)
    await case.session.close((), 10)


@pytest.mark.slow
async def test_a_group_in_which_nothing_happens_polls_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a message or a command comes. While a partition waits for its beginning, polls are short."""
    case = Case(monkeypatch)
    clock = time.monotonic
    later = 0.0
    monkeypatch.setattr(session_module.time, "monotonic", lambda: clock() + later)
    case.lookups.down = {FULL}
    assert await case.join()
    assert case.session._poll_time() == session_module._POLL_STARTING
    case.lookups.down.clear()
    await case.until(lambda: not case.session._partitions.waiting)
    assert case.session._poll_time() == session_module._POLL
    later += 2 * session_module._QUIET_AFTER
    assert case.session._poll_time() == session_module._POLL_QUIET
    case.consumer.polls, woken = 0, case.consumer.woken
    await case.until(lambda: case.consumer.polls > 30)
    assert case.consumer.woken <= woken + 1, "librdkafka is woken for nobody"
    case.poll(FakeMessage(1, 0))
    await case.event(Assigned)
    await case.event(Fetched)
    assert case.session._poll_time() == session_module._POLL
    later += 2 * session_module._QUIET_AFTER
    case.session.seek(OTHER, 0, case.session.next_epoch())
    assert case.session._poll_time() == session_module._POLL


async def test_a_member_that_its_group_has_removed_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """If librdkafka does not notice, a refused commit is the only sign."""
    case = Case(monkeypatch)
    await case.join()
    now = 1000.0
    monkeypatch.setattr("pixy.membership.kafka.session.time", SimpleNamespace(monotonic=lambda: now))
    gone = KafkaError("gone", 25, "UNKNOWN_MEMBER_ID")
    for seconds in (0.0, 3.0, 4.0):
        now = 1000.0 + seconds
        case.session._committed(None, {FULL: gone})
        assert (await case.event(Committed)).partitions == {FULL: gone}
    polls = case.consumer.polls
    await case.until(lambda: case.consumer.polls > polls + 2)
    now += 4.0
    case.session._committed(gone, {})
    await case.event(Committed)
    failed = await case.event(SessionFailed)
    assert str(failed.error) == "kafka: the group removed this member, and the client has not noticed for 8 s"
    await case.session.close((), 10)


@pytest.mark.slow
async def test_a_member_that_never_heard_of_its_assignment_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer with it came too late, and librdkafka does not ask again."""
    monkeypatch.setattr(left_behind, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(left_behind, "PATIENCE", 0.1)
    case = Case(monkeypatch)
    await case.join()
    case.consumer.unanswered_heartbeats = 1
    polls = case.consumer.polls
    await case.until(lambda: case.consumer.polls > polls + 20)
    case.lookups.is_behind = 1
    failed = await case.event(SessionFailed)
    assert str(failed.error).startswith("kafka: the answer with this member's assignment was lost")
    await case.session.close((), 10)

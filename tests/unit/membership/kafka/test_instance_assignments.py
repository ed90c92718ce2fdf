"""Assignments of chosen partitions by an instance's session, also those that fail."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pixy.errors import KafkaError
from pixy.kafka.consumer import Commit, CommittedOffset
from pixy.kafka.instance_consumer import END
from pixy.kafka.partition_logs import FirstAttempt, Log
from pixy.membership.instances import Assigned, Done, Earlier, EarlierPosition, Fetched, Met, MetTopic
from pixy.wire.connection import Broker
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition
from tests.unit.engine.records import TOPIC
from tests.unit.membership.kafka.instance_case import NEW, OTHER, PARTITION, Case, Client, Lookups, Message

REFUSED = KafkaError("no coordinator", 15, "COORDINATOR_NOT_AVAILABLE")
HUNDRED = (Commit(*PARTITION, 100, ""),)


async def done(case: Case, token: int) -> Any:
    return await case.event(lambda event: isinstance(event, Done) and event.token == token)


async def test_an_assignment_that_failed_continues_at_the_same_positions_when_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = Earlier({PARTITION: EarlierPosition(7, frozenset())})
    case = Case(monkeypatch, earlier)
    case.session.committed(1, ())
    await case.result(1)  # the client is there
    case.client.assign_fails = [REFUSED]
    case.session.assign(2, (PARTITION, OTHER), {}, repeated=True)
    assert (await done(case, 2)).error is REFUSED
    assert not case.session._topics._ids, "what is not assigned is not compared"
    case.session.assign(3, (PARTITION, OTHER), {}, repeated=True)
    assert (await done(case, 3)).value == {PARTITION: 7, OTHER: 10}
    case.session.assign(4, (OTHER,), {})
    assert (await done(case, 4)).value == {OTHER: 10}
    case.session.assign(5, (PARTITION, OTHER), {})
    assert (await done(case, 5)).value == {PARTITION: 10, OTHER: 10}, "the position was for the restart"
    await case.session.close((), 10)


async def test_an_assignment_that_fails_leaves_what_is_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.session.assign(1, (PARTITION,), {})
    await done(case, 1)
    case.client.assign_fails = [REFUSED]
    case.session.assign(2, (PARTITION, OTHER), {PARTITION: 50})
    assert (await done(case, 2)).error is REFUSED
    assert set(case.session._topics._ids) == set(case.session._assigned) == {PARTITION}
    await case.session.close((), 10)


async def test_the_instance_hears_of_the_id_of_a_topic_that_is_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its next session would take a topic that was made again for this one."""
    case, made = Case(monkeypatch), uuid.UUID(int=1)
    case.session.assign(1, (PARTITION,), {})
    assert (await case.event(lambda event: isinstance(event, Met))).topics == {}
    await done(case, 1)
    monkeypatch.setattr(Lookups, "ids", {TOPIC: made})
    case.client.in_poll.put(lambda: Message(0, 10))
    case.session.want(1, 1000)
    await case.event(lambda event: isinstance(event, Fetched))
    case.session.want(1, 1000)
    assert (await case.event(lambda event: isinstance(event, Met))).topics == {TOPIC: MetTopic(made)}
    await case.session.close((), 10)


class Remade:
    """A session whose chosen partition belongs to a topic that is made again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.restarted: list[tuple[TopicPartition, int]] = []
        self.fetched: list[dict[TopicPartition, int]] = []
        self._old, self._new = uuid.UUID(int=1), uuid.UUID(int=2)
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(Client, "topic_ids", lambda *_: {TOPIC: self._old})
        monkeypatch.setattr(Client, "restart", lambda _, *start: self.restarted.append(start), raising=False)
        monkeypatch.setattr(Client, "assign_only", lambda _, starts: self.fetched.append(dict(starts)))
        self.case = Case(monkeypatch)
        self.session = self.case.session

    async def chosen(self) -> Remade:
        self.session.assign(1, (PARTITION,), {})
        await done(self.case, 1)
        return self

    def compare(self) -> None:
        """Find in the session's thread that the topic was made again."""
        topics = self.session._topics
        self._monkeypatch.setattr(Client, "topic_ids", lambda *_: {TOPIC: self._new})
        self.session._run_soon(lambda: topics._compared(dict(topics._ids), {TOPIC: self._new}))

    def compare_and_wait(self) -> None:
        """As :meth:`compare`. The instance has heard of nothing when this returns, because the loop waits here."""
        compared = threading.Event()
        self.compare()
        self.session._run_soon(compared.set)
        assert compared.wait(30)


async def test_a_topic_that_is_found_made_again_while_an_assignment_waits_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The instance has not heard of it when it tells the position to keep."""
    remade, told = await Remade(monkeypatch).chosen(), threading.Event()
    remade.session._run_soon(lambda: told.wait(30))
    remade.compare()
    remade.session.assign(2, (PARTITION, OTHER), {PARTITION: 100})
    told.set()
    assert (await done(remade.case, 2)).value[PARTITION] == 0
    assert remade.restarted == [(PARTITION, 0)] and remade.fetched[-1][PARTITION] == 0
    remade.session.assign(3, (PARTITION, OTHER), {PARTITION: 7})
    assert (await done(remade.case, 3)).value[PARTITION] == 7, "the reader has read on"
    await remade.session.close((), 10)


@pytest.mark.parametrize("keep", [{PARTITION: 100}, {}])
async def test_so_does_one_that_is_found_made_again_before_that_and_the_news_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch, keep: dict[TopicPartition, int]
) -> None:
    """Or half of it: the instance has heard that the partition is lost."""
    remade = await Remade(monkeypatch).chosen()
    remade.compare_and_wait()
    remade.session.commit(2, HUNDRED, assigned_only=True)
    remade.session.assign(3, (PARTITION, OTHER), keep)
    assert (await done(remade.case, 2)).value == ()
    assert (await done(remade.case, 3)).value[PARTITION] == 0
    remade.session.commit(4, HUNDRED, assigned_only=True)
    assert (await done(remade.case, 4)).value == HUNDRED, "it is the reader's in the new topic"
    await remade.session.close((), 10)


async def test_neither_is_the_last_position_in_a_topic_that_is_gone_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remade = await Remade(monkeypatch).chosen()
    remade.compare_and_wait()
    await remade.session.close(HUNDRED, 10)
    assert remade.case.client.commits == []


# -- partitions that wait for their leader --------------------------------------------------------


class Leaders:
    """Replaces :class:`pixy.kafka.topics.Topics`: the first partition has no leader."""

    def leader(self, partition: TopicPartition) -> object:
        return None if partition == PARTITION else Broker("b", 1)

    def leader_epoch(self, _partition: TopicPartition) -> int:
        return 0


class Late:
    """A session that begins at the end, and of whose first partition that end is not known yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, earlier: Earlier = NEW) -> None:
        self.fetched: list[dict[TopicPartition, int]] = []
        self.paused: set[TopicPartition] = set()
        self.asked: list[Callable[[Mapping[TopicPartition, Log]], None]] = []
        committed = {PARTITION: CommittedOffset(None, ""), OTHER: CommittedOffset(10, "")}
        methods: dict[str, Any] = {
            "committed": lambda _, partitions, _timeout: {each: committed[each] for each in partitions},
            "topics": lambda *_: Leaders(),
            "assign_only": lambda _, starts: self.fetched.append(dict(starts)),
            "restart": lambda _, *start: self.fetched.append(dict([start])),
            "pause": lambda _, partitions: self.paused.update(partitions),
            "resume": lambda _, partitions: self.paused.difference_update(partitions),
        }
        for name, method in methods.items():
            monkeypatch.setattr(Client, name, method, raising=False)
        monkeypatch.setattr(
            Lookups, "logs", lambda _, _partitions, found, _since=None: self.asked.append(found)
        )
        self.case = Case(monkeypatch, earlier)
        self.session = self.case.session
        self.session._starts._oldest = False

    async def chosen(self) -> Late:
        self.session.assign(1, (PARTITION,), {})
        assert (await done(self.case, 1)).value == {PARTITION: END}
        return self

    async def until_asked(self) -> None:
        while not self.asked:
            await asyncio.sleep(0.001)

    @property
    def waiting(self) -> dict[TopicPartition, FirstAttempt]:
        return self.session._late._waiting


async def test_a_partition_that_waits_for_its_leader_still_does_after_another_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it begins where its log ended at the first one."""
    late = await Late(monkeypatch).chosen()
    first = late.waiting[PARTITION]
    late.session.assign(2, (PARTITION, OTHER), {PARTITION: END})
    assert (await done(late.case, 2)).value == {PARTITION: END, OTHER: 10}
    assert late.fetched[-1] == {PARTITION: 0, OTHER: 10} and late.paused == {PARTITION}
    assert late.waiting == {PARTITION: first}
    await late.until_asked()
    late.asked[-1]({PARTITION: Log(NULL_UUID, 0, 100, 100, 70)})
    assert (await late.case.event(lambda event: isinstance(event, Assigned))).starts == {PARTITION: 70}
    assert late.fetched[-1] == {PARTITION: 70}
    late.session.assign(3, (PARTITION, OTHER), {PARTITION: 75, OTHER: 10})
    assert (await done(late.case, 3)).value == {PARTITION: 75, OTHER: 10}, "the reader has read on"
    await late.session.close((), 10)


async def test_a_choice_that_comes_before_the_instance_has_heard_of_a_beginning_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = await Late(monkeypatch).chosen()
    await late.until_asked()
    told = threading.Event()
    late.session._run_soon(lambda: told.wait(30))
    late.asked[-1]({PARTITION: Log(NULL_UUID, 0, 100, 100, 70)})
    late.session.assign(2, (PARTITION, OTHER), {PARTITION: END})
    late.session.assign(3, (PARTITION, OTHER), {PARTITION: 90, OTHER: 10})
    told.set()
    assert (await done(late.case, 2)).value == {PARTITION: 70, OTHER: 10}
    assert (await done(late.case, 3)).value == {PARTITION: 70, OTHER: 10}, "as a seek may have failed"
    await late.session.close((), 10)


async def test_a_seek_before_another_choice_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    late = await Late(monkeypatch).chosen()
    late.session.seek(2, {PARTITION: 100})
    late.session.assign(3, (PARTITION, OTHER), {PARTITION: 100})
    assert (await done(late.case, 3)).value == {PARTITION: 100, OTHER: 10}
    assert late.fetched[-1] == {PARTITION: 100, OTHER: 10} and not late.paused
    await late.session.close((), 10)


async def test_a_seek_that_fails_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    late = await Late(monkeypatch).chosen()
    first = late.waiting[PARTITION]
    late.case.client.seek_fails[PARTITION] = REFUSED
    late.session.seek(2, {PARTITION: 100})
    late.session.assign(3, (PARTITION, OTHER), {PARTITION: 100})
    assert (await done(late.case, 3)).value == {PARTITION: END, OTHER: 10}
    assert late.waiting == {PARTITION: first}
    await late.session.close((), 10)


async def test_a_partition_that_waits_for_its_leader_still_does_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch)
    late.session.assign(1, (PARTITION,), {})
    met = await late.case.event(lambda event: isinstance(event, Met))
    await done(late.case, 1)
    first = late.waiting[PARTITION]
    assert met.late == {PARTITION: first}
    await late.session.close((), 10)
    again = Late(monkeypatch, Earlier(late=met.late))
    monkeypatch.setattr(Leaders, "leader", lambda *_: Broker("b", 1))  # it is back
    again.session.assign(2, (PARTITION,), {}, repeated=True)
    assert (await done(again.case, 2)).value == {PARTITION: END}
    assert again.waiting == {PARTITION: first}
    await again.session.close((), 10)

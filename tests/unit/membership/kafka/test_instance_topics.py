"""Another topic of the same name: what an instance compares, and what it does then."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from pixy.errors import KafkaError, Unavailable
from pixy.kafka.consumer import Commit
from pixy.kafka.partition_logs import Log
from pixy.membership.instances import MetTopic
from pixy.membership.kafka import instance_topics, unheard
from pixy.membership.kafka.instance_topics import InstanceTopics
from pixy.membership.kafka.start_lookups import MOST
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition
from tests.unit.engine.records import TOPIC, Record

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
PARTITION, SECOND = (TOPIC, 0), (TOPIC, 1)


class Case:
    """Topics of a session, and what it was told to begin anew."""

    def __init__(self, topic_id: uuid.UUID = ONE) -> None:
        self.ids = {TOPIC: topic_id}
        self.counts: dict[str, int] = {}
        self.error: Unavailable | None = None
        self.anew: list[set[TopicPartition]] = []
        self.described = 0
        self.running = 0
        self.looked_up: list[TopicPartition] = []
        self.log: Log | None = None
        """What look-ups of logs find."""
        self.learned: list[str] = []
        self.learned_ids: list[dict[str, uuid.UUID]] = []
        """What it knew whenever it had learned of new topics."""
        fake: Any = self

        def learned() -> None:
            self.learned_ids.append(dict(self.topics.ids))

        self.topics = InstanceTopics(fake, fake, lambda act: act(), self.anew.append, learned=learned)

    def topic_ids(self, _topics: Iterable[str], _timeout: float) -> dict[str, uuid.UUID]:
        if self.error is not None:
            raise self.error
        return dict(self.ids)

    def describe(self, _topics: Iterable[str], found: Callable[[Any], None], _since: float = 0.0) -> None:
        self.described += 1
        found(SimpleNamespace(ids=self.ids, counts=self.counts))

    def logs(self, partitions: Iterable[TopicPartition], found: Callable[[Any], None]) -> None:
        self.looked_up += partitions
        if self.log is not None:
            found(dict.fromkeys(self.looked_up, self.log))

    def learn(self, topics: Iterable[str]) -> None:
        self.learned += topics

    def commits(self, *commits: Commit) -> tuple[Commit, ...]:
        check = self.topics.check(commits)
        topics = SimpleNamespace(ids=self.ids, counts=self.counts, gone=lambda topic: topic not in self.ids)
        offsets: Any = SimpleNamespace(topics=lambda *_, **__: topics)
        return commits if check is None else check(offsets, commits)


def test_a_commit_for_another_topic_commits_its_beginning_and_begins_it() -> None:
    case = Case()
    case.topics.added([PARTITION])
    old, elsewhere = Commit(TOPIC, 0, 5, ""), Commit("elsewhere", 0, 5, "")
    assert case.commits(old, elsewhere) == (old, elsewhere)
    case.ids = {}
    assert case.commits(old, elsewhere) == (elsewhere,), "it is deleted, and may be made again in this moment"
    case.ids = {TOPIC: OTHER}
    assert case.commits(old, elsewhere) == (Commit(TOPIC, 0, 0, ""), elsewhere)
    assert case.anew == [{PARTITION}]
    assert case.commits(old) == (old,), "it is the new topic's by now"


def test_partitions_that_a_topic_made_again_lacks_are_left_out_until_it_has_grown() -> None:
    case = Case()
    first, second = Commit(TOPIC, 0, 5, ""), Commit(TOPIC, 1, 5, "")
    case.topics.added([(TOPIC, 0), (TOPIC, 1)])
    case.counts = {TOPIC: 1}
    assert case.commits(first, second) == (first, second), "a broker that has not heard of a new partition"
    case.ids = {TOPIC: OTHER}
    assert case.commits(first, second) == (Commit(TOPIC, 0, 0, ""),)
    assert case.commits(first, second) == (first,) == case.topics.existing([first, second])
    case.counts = {TOPIC: 2}
    assert case.commits(first, second) == (first, second) == case.topics.existing([first, second])


def test_ids_are_compared_when_it_is_time() -> None:
    case = Case()
    case.topics.added([PARTITION])
    case.ids = {TOPIC: OTHER}
    case.topics.compare()
    assert not case.described
    case.topics._compare_at = 0.0
    case.running = MOST
    case.topics.compare()
    assert not case.described and not case.topics.due, "as many look-ups run as may"
    case.topics._compare_at, case.running = 0.0, MOST - 1
    case.topics.compare()
    assert case.anew == [{PARTITION}], "look-ups that wait for a leader do not keep it from comparing"


def test_a_silent_partition_is_looked_up_beside_lookups_that_wait_for_a_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unheard, "LOOK_AFTER", 0.0)
    case = Case()
    case.topics.added([PARTITION])
    case.ids = {TOPIC: OTHER}
    case.commits(Commit(TOPIC, 0, 5, ""))
    case.topics.started({PARTITION: 0})
    case.running = MOST
    case.topics.check_unheard(busy=False)
    assert not case.looked_up
    case.running = MOST - 1
    case.topics.check_unheard(busy=False)
    assert case.looked_up == [PARTITION]


def test_a_partition_that_the_client_does_not_know_yet_is_no_reason_to_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new topic lacked it, and the client asks every 10 s only. Once it has asked, it fetches."""
    now = 0.0
    monkeypatch.setattr(instance_topics, "time", SimpleNamespace(monotonic=lambda: now))
    case = Case()
    case.topics.added([PARTITION])
    case.ids = {TOPIC: OTHER}
    case.commits(Commit(TOPIC, 0, 5, ""))
    case.topics.started({PARTITION: 0})
    case.log = Log(NULL_UUID, 0, 100, 100)
    while not case.learned:
        now += 0.5
        case.topics.check_unheard(busy=False)
    now += unheard.PATIENCE - 0.5
    case.topics.check_unheard(busy=False)
    case.topics.heard(Record(0, 0))
    now += 100
    case.topics.check_unheard(busy=False)
    assert case.learned == [TOPIC]


def test_what_a_session_tells_the_next_one_are_the_ids_that_its_positions_belong_to() -> None:
    case = Case()
    assert case.topics.added([PARTITION, SECOND]) == set()
    assert case.topics.ids == {TOPIC: ONE}
    case.ids = {TOPIC: OTHER}
    case.commits(Commit(TOPIC, 0, 5, ""))
    assert case.topics.ids == {TOPIC: ONE}, "one of the partitions has not begun anew"
    case.commits(Commit(TOPIC, 1, 5, ""))
    assert case.topics.ids == {TOPIC: OTHER}
    again = Case(OTHER)
    again.topics = restarted(again, TOPIC, OTHER)
    assert again.topics.added([PARTITION]) == set()
    again.topics = restarted(again, TOPIC, ONE)
    assert again.topics.added([PARTITION]) == {PARTITION}, "it was made again meanwhile"


def restarted(case: Any, topic: str, topic_id: uuid.UUID) -> InstanceTopics:
    return InstanceTopics(case, case, lambda act: act(), case.anew.append, {topic: MetTopic(topic_id)})


def test_brokers_without_ids_are_asked_nothing_more() -> None:
    case = Case(NULL_UUID)
    case.topics.added([PARTITION])
    case.topics._compare_at = 0.0
    case.topics.compare()
    assert not case.described
    assert case.topics.check((Commit(TOPIC, 0, 5, ""),)) is None


def test_a_message_that_goes_back_shows_another_topic() -> None:
    case = Case()
    case.topics.added([PARTITION])
    case.topics.returned(Record(0, 4))
    assert not case.topics.gone_before(Record(0, 5))
    assert not case.topics.gone_before(Record(0, 0)), "the reader's position was restored, say"
    case.topics.returned(Record(0, 4))
    case.ids = {TOPIC: OTHER}
    case.error = Unavailable("no coordinator")
    assert not case.topics.gone_before(Record(0, 0)), "reads go on; the next comparison sees it"
    case.topics.returned(Record(0, 4))
    case.error = None
    assert case.topics.gone_before(Record(0, 0)) == {PARTITION}
    assert case.anew == [{PARTITION}]


def test_a_topic_that_comes_back_was_made_again() -> None:
    case = Case()
    assert case.topics.added([PARTITION]) == set()
    case.topics.forget([PARTITION])
    assert case.topics.added([PARTITION]) == set()
    case.topics.forget([PARTITION])
    case.ids = {TOPIC: OTHER}
    assert case.topics.added([PARTITION]) == {PARTITION}


def test_a_topic_that_is_made_again_before_a_partition_of_it_comes_was_made_again() -> None:
    """Other members had all of them. It is described after the subscription, and again if it does not exist or nobody answers."""
    case = Case()
    case.ids = {}
    case.topics.subscribed([TOPIC])
    assert case.described == 1 and not case.learned_ids
    case.ids = {TOPIC: ONE}
    compare(case)
    assert case.learned_ids == [{TOPIC: ONE}], "a restart of the session knows it, too"
    compare(case)
    assert case.described == 2, "it is known"
    case.ids = {TOPIC: OTHER}
    assert case.topics.added([PARTITION]) == {PARTITION}


def test_a_kept_partition_is_compared_with_the_topic_that_it_began_in() -> None:
    case = Case()
    case.topics.added([PARTITION])
    case.ids = {TOPIC: OTHER}
    case.topics.added([PARTITION])
    case.topics._compare_at = 0.0
    case.topics.compare()
    assert case.anew == [{PARTITION}]


def compare(case: Case) -> None:
    case.topics._compare_at = 0.0
    case.topics.compare()


def test_a_topic_that_is_made_after_its_partition_was_chosen_is_known_once_it_was_described() -> None:
    case = Case()
    case.ids = {}
    case.topics.added([PARTITION])
    compare(case)
    assert case.described == 1 and not case.anew
    case.ids = {TOPIC: ONE}
    compare(case)
    assert not case.anew, "it is the topic that the reader waits for"
    case.ids = {TOPIC: OTHER}
    compare(case)
    assert case.anew == [{PARTITION}]
    case.topics.forget([PARTITION])
    assert case.topics.added([PARTITION]) == {PARTITION}, "it was made again since it was first read"


def test_the_first_record_of_a_new_topic_shows_that_it_is_there_and_a_restart_knows_it_then() -> None:
    """Without waiting for the next comparison: the instance may fail before, and the topic be made again meanwhile."""
    case = Case()
    case.ids = {}
    case.topics.added([PARTITION])
    case.topics.compare()
    assert not case.topics.due and not case.learned_ids
    case.ids = {TOPIC: ONE}
    case.topics.returned(Record(0, 0))
    case.topics.compare()
    assert case.learned_ids == [{TOPIC: ONE}]
    case.topics.returned(Record(0, 1))
    case.topics.compare()
    assert case.described == 1 and not case.topics.due


def test_a_commit_learns_the_id_of_a_topic_that_is_new() -> None:
    case = Case()
    case.ids = {}
    case.topics.added([PARTITION])
    case.ids = {TOPIC: ONE}
    mine = Commit(TOPIC, 0, 5, "")
    assert case.commits(mine) == (mine,)
    case.ids = {TOPIC: OTHER}
    assert case.commits(mine) == (Commit(TOPIC, 0, 0, ""),)
    assert case.anew == [{PARTITION}]


def test_a_new_topic_without_an_id_is_described_no_more() -> None:
    """Before Kafka 2.8."""
    case = Case()
    case.ids = {}
    case.topics.added([PARTITION])
    case.ids = {TOPIC: NULL_UUID}
    compare(case)
    compare(case)
    assert case.described == 1


def test_a_topic_that_was_missing_after_a_restart_and_is_made_then_is_another_one() -> None:
    case = Case()
    case.topics = restarted(case, TOPIC, ONE)
    case.ids = {}
    assert case.topics.added([PARTITION]) == set()
    compare(case)
    assert not case.anew
    case.ids = {TOPIC: OTHER}
    mine = Commit(TOPIC, 0, 100, "")
    assert case.commits(mine) == (Commit(TOPIC, 0, 0, ""),), "the position is the old topic's"
    assert case.anew == [{PARTITION}]


def test_all_partitions_of_a_topic_that_was_missing_learn_the_same_id() -> None:
    """Else the one that learns it later would take the id of a topic that was made again meanwhile for its first."""
    case = Case()
    case.ids = {}
    case.topics.added([PARTITION, SECOND])
    case.ids = {TOPIC: ONE}
    case.commits(Commit(TOPIC, 0, 5, ""))
    case.ids = {TOPIC: OTHER}
    compare(case)
    assert case.anew == [{PARTITION, SECOND}]


def test_a_partition_that_is_added_tells_the_others_the_id_of_their_topic() -> None:
    case = Case()
    case.ids = {}
    case.topics.added([PARTITION])
    case.ids = {TOPIC: ONE}
    case.topics.added([SECOND])
    case.ids = {TOPIC: OTHER}
    compare(case)
    assert case.anew == [{PARTITION, SECOND}]


@pytest.mark.parametrize("shares_out", [True, False])
def test_a_topic_of_others_that_is_made_again_ends_a_classic_session(shares_out: bool) -> None:
    """librdkafka may not see that it is back, and so would never share it out."""
    case = Case()
    case.topics = sharing(case, shares_out)
    case.topics.subscribed([TOPIC])
    compare(case)
    case.ids = {}
    compare(case)
    case.ids = {TOPIC: OTHER}
    if shares_out:
        with pytest.raises(KafkaError, match="made again"):
            compare(case)
    compare(case)
    assert case.topics.ids == {TOPIC: ONE}, "the next session begins it at its oldest record"


def test_a_topic_that_is_made_again_does_not_end_the_session_that_has_a_partition_of_it() -> None:
    case = Case()
    case.topics = sharing(case, True)
    case.topics.subscribed([TOPIC])
    case.topics.added([PARTITION])
    compare(case)
    case.ids = {TOPIC: OTHER}
    compare(case)
    assert case.anew == [{PARTITION}]


def test_a_classic_session_asks_no_more_for_topics_without_ids() -> None:
    """Before Kafka 2.8."""
    case = Case(NULL_UUID)
    case.topics = sharing(case, True)
    case.topics.subscribed([TOPIC])
    compare(case)
    compare(case)
    assert case.described == 1


def sharing(case: Any, shares_out: bool) -> InstanceTopics:
    return InstanceTopics(case, case, lambda act: act(), case.anew.append, shares_out=shares_out)

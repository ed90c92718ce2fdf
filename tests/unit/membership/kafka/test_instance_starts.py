"""Where the partitions of an instance begin, also of one that was restarted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from pixy.errors import PixyError, Unavailable, UnknownPartition
from pixy.kafka.group_offsets import CommittedOffset
from pixy.kafka.instance_consumer import BEGINNING, END
from pixy.kafka.partition_logs import FirstAttempt
from pixy.membership.instances import Earlier, EarlierPosition, MetTopic
from pixy.membership.kafka.instance_starts import StartOffsets
from pixy.wire.connection import Broker
from tests.unit.engine.records import TOPIC

PARTITION, OTHER = (TOPIC, 0), (TOPIC, 1)


class Client:
    """The part of :class:`pixy.kafka.instance_consumer.InstanceConsumer` that finds committed offsets."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset
        self.leaders: dict[Any, Broker | str] = {PARTITION: Broker("b", 1), OTHER: "no leader"}
        self.error: PixyError | None = None
        self.layout_fails = False

    def topics(self, _topics: object, _timeout: float) -> Any:
        return SimpleNamespace(leader=self.leaders.get, leader_epoch=lambda _partition: 0)

    def ends(self, partitions: Iterable[Any], _timeout: float, *, oldest: bool) -> dict[Any, int]:
        assert oldest, "the other one has no leader"
        if self.error is not None:
            raise self.error
        return dict.fromkeys(partitions, 3)

    def committed(self, partitions: Iterable[Any], _timeout: float) -> dict[Any, CommittedOffset]:
        return {each: CommittedOffset(self._offset, "") for each in partitions}

    def layout(self, topics: Collection[str]) -> dict[str, dict[int, bool]]:
        if self.layout_fails:
            raise Unavailable("no broker answers")
        return {topic: {0: True} for topic in topics}


def starts() -> StartOffsets:
    earlier = EarlierPosition(10, frozenset({0, 7}))
    return StartOffsets("i", oldest=True, commits=True, earlier=Earlier({PARTITION: earlier}))


@pytest.mark.parametrize(
    ("committed", "begins"),
    [(None, 10), (0, 10), (7, 10), (500, 500), (9, 9)],
    ids=["nothing", "before the last commit", "the last commit", "another member's", "set back"],
)
def test_a_member_continues_where_its_reader_was_unless_another_has_committed_since(
    committed: int | None, begins: int
) -> None:
    client: Any = Client(committed)
    made = starts()
    assert made.of_member(client, [PARTITION], set()).starts == {PARTITION: begins}
    client = Client(600)
    assert made.of_member(client, [PARTITION], set()).starts == {PARTITION: 600}, "that was for once"


def test_in_chosen_partitions_the_reader_always_continues() -> None:
    """Nobody else takes them over, though others may commit for the same group."""
    client: Any = Client(500)
    assert starts().of_assignment(client, [PARTITION], {}).starts == {PARTITION: 10}
    assert starts().of_assignment(client, [PARTITION], {PARTITION: 20}).starts == {PARTITION: 20}


def test_the_oldest_offset_is_looked_up_before_the_client_begins() -> None:
    """While librdkafka looks it up, seeks are without effect. A partition without a leader delays no other."""
    client: Any = Client(None)
    made = StartOffsets("i", oldest=True, commits=True, earlier=Earlier())
    assert made.of_member(client, [PARTITION, OTHER], set()).starts == {PARTITION: 3, OTHER: BEGINNING}
    assert made.of_assignment(client, [PARTITION], {}).starts == {PARTITION: 3}
    client.error = Unavailable("a leader does not answer")
    assert made.of_member(client, [PARTITION], set()).starts == {PARTITION: BEGINNING}


def test_the_client_looks_up_no_end_of_a_partition_that_waits_for_its_leader() -> None:
    """Its answer could undo the beginning that is found."""
    client: Any = Client(None)
    client.leaders[PARTITION] = "no leader"
    made = StartOffsets("i", oldest=False, commits=False, earlier=Earlier())
    made.subscribed((TOPIC,))
    found = made.of_member(client, [PARTITION], set())
    assert (found.starts, set(found.late)) == ({PARTITION: END}, {PARTITION})
    assert found.to_fetch == {PARTITION: 0}


def restarted(*positions: tuple[str, int], partitions: int) -> StartOffsets:
    """Of an instance with ``latest`` that restarts, and had met a topic of so many partitions."""
    earlier = Earlier(
        dict.fromkeys(positions, EarlierPosition(10, frozenset({10}))), {TOPIC: MetTopic(None, partitions)}
    )
    made = StartOffsets("i", oldest=False, commits=False, earlier=earlier)
    made.subscribed((TOPIC, "another"))
    return made


@pytest.mark.parametrize("layout_fails", [False, True])
def test_a_partition_that_was_added_before_a_restart_begins_at_its_oldest_record(layout_fails: bool) -> None:
    """The instance was there: nothing of the partition is old to its reader, though the group has committed nothing."""
    client: Any = Client(None)
    client.leaders = {PARTITION: "no leader", OTHER: Broker("b", 1)}
    client.layout_fails = layout_fails
    found = restarted(partitions=1).of_member(client, [PARTITION, OTHER], set())
    assert found.starts == {PARTITION: END, OTHER: 3}


def test_all_partitions_of_a_topic_that_was_made_again_begin_at_their_oldest_records_after_a_restart() -> (
    None
):
    client: Any = Client(None)
    made = restarted(partitions=0)
    assert made.of_member(client, [PARTITION], set()).starts == {PARTITION: 3}
    assert made.known[TOPIC] == 0


def test_a_topic_that_was_made_again_during_a_restart_voids_its_positions() -> None:
    client: Any = Client(None)
    made = restarted(PARTITION, partitions=1)
    assert made.of_member(client, [PARTITION], {PARTITION}).starts == {PARTITION: 3}
    assert made.known[TOPIC] == 0


@pytest.mark.parametrize(
    ("committed", "begins"),
    [(None, 3), (7, 3), (10, 3), (500, 500)],
    ids=["nothing", "by its last commit", "in its last moment", "by another member"],
)
def test_what_an_instance_has_committed_itself_means_nothing_in_a_topic_that_was_made_again(
    committed: int | None, begins: int
) -> None:
    """The last commit of a session may come so late that Kafka takes it for the new topic."""
    client: Any = Client(committed)
    made = starts()
    assert made.of_member(client, [PARTITION], {PARTITION}).starts == {PARTITION: begins}
    assert starts().of_assignment(client, [PARTITION], {}, {PARTITION}).starts == {PARTITION: begins}
    client = Client(10)
    assert made.of_member(client, [PARTITION], {PARTITION}).starts == {PARTITION: 10}, "that was for once"


# -- what the reader has read nothing of ----------------------------------------------------------------


def waited(*, commits: bool = False) -> tuple[StartOffsets, FirstAttempt]:
    """Of an instance with ``latest`` that restarts, and whose first partition has waited for its leader, which is there now."""
    first = FirstAttempt()
    earlier = Earlier({}, {TOPIC: MetTopic(None, 2)}, {PARTITION: first})
    return StartOffsets("i", oldest=False, commits=commits, earlier=earlier), first


def test_a_partition_still_begins_where_its_log_ended_at_the_first_attempt_before_a_restart() -> None:
    """The present end would leave out what was written since."""
    client: Any = Client(None)
    made, first = waited()
    found = made.of_member(client, [PARTITION], set())
    assert (found.starts, found.to_fetch) == ({PARTITION: END}, {PARTITION: 0})
    assert found.late[PARTITION] is first
    client.leaders[PARTITION] = "no leader"
    assert made.of_member(client, [PARTITION], set()).late[PARTITION] is not first, "that was for once"


@pytest.mark.parametrize("repeated", [False, True])
def test_so_does_a_chosen_one(repeated: bool) -> None:
    client: Any = Client(None)
    made, first = waited()
    for _ in range(2):  # the first attempt fails later on, say
        found = made.of_assignment(client, [PARTITION], {}, repeated=repeated)
        assert found.starts == {PARTITION: END} and found.late[PARTITION] is first
    made.assigned()
    client.leaders[PARTITION] = "no leader"
    assert made.of_assignment(client, [PARTITION], {}).late[PARTITION] is not first, "that was for once"


def test_but_not_if_the_group_has_committed_an_offset_since_or_the_topic_was_made_again() -> None:
    client: Any = Client(500)
    assert waited()[0].of_member(client, [PARTITION], set()).starts == {PARTITION: 500}
    assert waited()[0].of_assignment(client, [PARTITION], {}).starts == {PARTITION: 500}
    client = Client(None)
    assert waited()[0].of_member(client, [PARTITION], {PARTITION}).starts == {PARTITION: 3}
    assert waited()[0].of_assignment(client, [PARTITION], {}, {PARTITION}).starts == {PARTITION: 3}


def test_a_partition_that_waits_was_not_added_though_all_below_it_have_offsets() -> None:
    """They have those of their ends."""
    client: Any = Client(None)
    made, first = waited(commits=True)
    made._late = {OTHER: first}
    committed = {PARTITION: 500, OTHER: None}
    client.committed = lambda asked, _timeout: {each: CommittedOffset(committed[each], "") for each in asked}
    assert made.of_member(client, [OTHER], set()).starts == {OTHER: END}


def test_a_partition_of_which_nothing_was_read_from_its_oldest_record_on_still_begins_there() -> None:
    """With ``latest``, too. Its topic was made after it was chosen, say."""
    client: Any = Client(None)
    position = EarlierPosition(BEGINNING, frozenset({BEGINNING}))
    earlier = Earlier({PARTITION: position, OTHER: position})

    def made() -> StartOffsets:
        return StartOffsets("i", oldest=False, commits=False, earlier=earlier)

    expected = {PARTITION: 3, OTHER: BEGINNING}
    assert made().of_member(client, [PARTITION, OTHER], set()).starts == expected
    found = made().of_assignment(client, [PARTITION, OTHER], {}, repeated=True)
    assert found.starts == expected
    client.layout = lambda topics: {topic: {0: True, 1: True} for topic in topics}
    assert made().of_assignment(client, [PARTITION, OTHER], {}).starts == expected
    kept = made().of_assignment(client, [PARTITION, OTHER], {PARTITION: BEGINNING})
    assert kept.starts == dict.fromkeys(expected, BEGINNING), "the reader may have read on since"


# -- chosen partitions --------------------------------------------------------------------------------


def test_an_assignment_that_fails_keeps_the_positions_from_before_the_restart() -> None:
    """The next attempt continues there."""
    client: Any = Client(500)
    made = starts()
    for _ in range(2):
        assert made.of_assignment(client, [PARTITION], {}).starts == {PARTITION: 10}
    made.assigned()
    assert made.of_assignment(client, [PARTITION], {}).starts == {PARTITION: 500}


@pytest.mark.parametrize("repeated", [False, True])
def test_a_chosen_partition_of_a_topic_that_was_made_again_begins_at_its_oldest_record(
    repeated: bool,
) -> None:
    """With ``latest``, too: its reader was there."""
    client: Any = Client(None)
    made = restarted(PARTITION, partitions=1)
    for _ in range(2):  # the first attempt fails later on, say
        found = made.of_assignment(client, [PARTITION], {}, {PARTITION}, repeated=repeated)
        assert found.starts == {PARTITION: 3}


def test_a_partition_that_is_chosen_for_the_first_time_begins_at_its_end_though_the_topic_was_made_again() -> (
    None
):
    client: Any = Client(None)
    client.leaders[PARTITION] = "no leader"
    found = restarted(partitions=1).of_assignment(client, [PARTITION], {}, {PARTITION})
    assert found.starts == {PARTITION: END}
    found = restarted(partitions=1).of_assignment(client, [PARTITION], {}, {PARTITION}, repeated=True)
    assert found.starts == {PARTITION: BEGINNING}, "it was chosen before the restart"


def test_a_partition_that_is_gone_after_a_restart_fails_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """The topic was made again with fewer. If the partition is made again, its first record is the first to be read."""
    client: Any = Client(None)
    made = restarted(PARTITION, partitions=2)
    with pytest.raises(UnknownPartition):
        made.of_assignment(client, [PARTITION, OTHER], {})
    found = made.of_assignment(client, [PARTITION, OTHER], {}, repeated=True)
    assert found.starts == {PARTITION: 10, OTHER: BEGINNING}
    assert caplog.messages == ["i: [('t', 1)] do not exist any more; the others are read"]

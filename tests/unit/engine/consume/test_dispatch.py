"""Round robin, the partitioner, long polls, flow control, begin offsets."""

from __future__ import annotations

import pytest

from actors import Future
from pixy.engine.consume.dispatch import RoundRobin
from pixy.engine.consume.long_polls import TopicPolls
from pixy.engine.produce.partitioner import RoundRobinPartitioner, fnv1a_partition
from pixy.kafka.flow import FlowControl
from pixy.membership.start_position import StartPosition, resolve_start


def test_each_partition_in_turn() -> None:
    ready = RoundRobin()
    for partition in (3, 1, 2):
        ready.announce(partition, 2)
    assert [ready.next() for _ in range(6)] == [1, 2, 3, 1, 2, 3]
    assert not ready


def test_turns_go_on_where_they_were_and_restart_at_the_lowest() -> None:
    ready = RoundRobin()
    ready.announce(1, 5)
    ready.announce(2, 5)
    assert ready.next() == 1
    ready.announce(0, 5)
    assert ready.next() == 2
    ready.restart()
    assert ready.next() == 0
    ready.remove(1)
    assert [ready.next(), ready.next()] == [2, 0]


def test_an_idle_partition_takes_no_turn_from_a_busy_one() -> None:
    ready = RoundRobin()
    ready.announce(7, 3)
    ready.announce(8, 0)
    assert [ready.next() for _ in range(3)] == [7, 7, 7]


@pytest.mark.parametrize(
    ("partitions", "vectors"),
    [
        (
            4,
            {
                "": 3,
                "1": 0,
                "2": 1,
                "3": 2,
                "4": 3,
                "5": 0,
                "foo": 1,
                "bar": 2,
                "A": 0,
                "B": 3,
                "C": 2,
                "D": 1,
            },
        ),
        (4, dict(zip("0123456789", (3, 0, 1, 2, 3, 0, 1, 2, 3, 0), strict=True))),
        (12, {"": 3, "1": 4, "foo": 1}),
        (64, {"": 59, "foo": 41, "bar": 26, "A": 52}),
    ],
)
def test_hash_vectors(partitions: int, vectors: dict[str, int]) -> None:
    assert {key: fnv1a_partition(key.encode(), partitions) for key in vectors} == vectors


def test_the_sign_rule_is_not_a_mask() -> None:
    def masked(key: bytes, partitions: int) -> int:
        value = 2166136261
        for byte in key:
            value = (value ^ byte) * 16777619 & 0xFFFFFFFF
        return (value & 0x7FFFFFFF) % partitions

    for partitions, differ in ((64, 495), (12, 420)):
        keys = [str(n).encode() for n in range(1000)]
        assert sum(fnv1a_partition(k, partitions) != masked(k, partitions) for k in keys) == differ


def test_roundrobin_partitioner() -> None:
    chooser = RoundRobinPartitioner()
    assert [chooser.choose((0, 1, 3)) for _ in range(4)] == [0, 1, 3, 0]
    assert chooser.choose(()) == -1


def poll(polls: TopicPolls, now: float) -> Future[object]:
    reply: Future[object] = Future()
    polls.add(reply, False, now)
    return reply


def test_the_wait_begins_with_the_join_within_a_bound() -> None:
    polls = TopicPolls(3.0, 10.0)
    poll(polls, 0.0)
    assert polls.next_deadline() == 13.0
    polls.joined = True
    polls.start_waiting(4.0)
    assert polls.next_deadline() == 7.0
    poll(polls, 5.0)
    assert len(list(polls.expire(7.0))) == 1
    assert polls.next_deadline() == 8.0


def test_a_missing_topic_waits_from_the_arrival() -> None:
    polls = TopicPolls(3.0, 10.0)
    poll(polls, 0.0)
    polls.missing = True
    polls.start_waiting(0.5)
    assert polls.next_deadline() == 3.0


def test_gone_clients_are_not_served() -> None:
    polls = TopicPolls(3.0, 10.0)
    gone, there = poll(polls, 0.0), poll(polls, 0.0)
    gone.cancel()
    polls.ready.announce(0, 1)
    assert [served.reply for served in polls.assign(0.1)[0]] == [there]


def test_requests_that_are_put_back_keep_their_order() -> None:
    polls = TopicPolls(3.0, 10.0)
    replies = [poll(polls, float(at)) for at in range(4)]
    polls.ready.announce(0, 2)
    served = polls.assign(4.0)[0]
    polls.put_back(tuple(served))
    assert [waiting.reply for waiting in polls.drain()] == replies


def test_demand_is_what_the_owners_have_room_for() -> None:
    flow: FlowControl[str] = FlowControl(10, 1000)
    flow.assigned(["a", "b"])
    assert flow.demand() == 20
    flow.took("a", 4, 40)
    assert flow.demand() == 16
    flow.credit("a", 4, 40)
    assert flow.demand() == 20
    flow.took("b", 2, 1000)
    assert flow.demand() == 10, "full by bytes"
    flow.revoked(["a"])
    assert flow.demand() == 0


def test_a_full_partition_is_paused_only_while_others_starve() -> None:
    flow: FlowControl[str] = FlowControl(10, 1000)
    flow.assigned(["a"])
    flow.took("a", 10, 100)
    assert flow.changes() == ([], []), "nobody else wants anything"
    flow.assigned(["b"])
    assert flow.changes() == (["a"], [])
    assert flow.demand() == 10
    flow.credit("a", 5, 50)
    assert flow.changes() == ([], []), "hysteresis"
    flow.credit("a", 3, 30)
    assert flow.changes() == ([], ["a"])


def test_a_lone_partition_that_overflows_is_paused_at_twice_its_bound() -> None:
    flow: FlowControl[str] = FlowControl(10, 1000)
    flow.assigned(["a"])
    flow.took("a", 19, 190)
    assert flow.changes() == ([], [])
    flow.took("a", 1, 10)
    assert flow.changes() == (["a"], [])


@pytest.mark.parametrize(
    ("committed", "from_oldest", "expected"),
    [
        (None, False, StartPosition(90, 90, True)),
        (None, True, StartPosition(10, 10, True)),
        (-1, False, StartPosition(90, 90, True)),
        (-2, False, StartPosition(10, 10, True)),
        (5, False, StartPosition(10, 10, False)),
        (50, False, StartPosition(50, 50, False)),
        (90, False, StartPosition(90, 90, False)),
        (95, False, StartPosition(90, 95, False)),
    ],
)
def test_resolve_start(committed: int | None, from_oldest: bool, expected: StartPosition) -> None:
    assert resolve_start(committed, 10, 90, from_oldest=from_oldest) == expected

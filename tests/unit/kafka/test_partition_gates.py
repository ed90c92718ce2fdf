"""Gates before partitions: the rules, and a sender with a librdkafka that keeps what it is given."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings, strategies as st

from pixy.kafka.gated_sender import GatedSender, Sending
from pixy.kafka.partition_gates import UNKNOWN, Layout, TopicGates
from pixy.kafka.partitioning import fnv1a_partition


@dataclass
class Item:
    value: bytes | None = b"v"
    key: bytes | None = None
    headers: Any = None
    timestamp: int | None = None
    partition: int | None = None


def gates_of(*partitions: int, hashing: bool = True) -> TopicGates[str]:
    return TopicGates(Layout(partitions, partitions), hashing=hashing)


def test_a_key_is_predicted_and_left_to_librdkafka_which_knows_new_partitions_first() -> None:
    gates = gates_of(0, 1, 2, 3)
    assert gates.choose(b"key", -1) == (fnv1a_partition(b"key", 4), -1)
    assert gates.choose(b"x" * 513, -1) == (UNKNOWN, -1), "hashing it here would hold up the loop"
    assert gates.choose(b"key", 7) == (7, 7)


@pytest.mark.parametrize("key", [None, b"key"])
def test_without_a_hash_a_message_goes_where_it_does_not_wait(key: bytes | None) -> None:
    gates = gates_of(0, 2, 5, hashing=key is None)
    assert Counter(gates.choose(key, -1) for _ in range(100)).keys() == {(0, 0), (2, 2), (5, 5)}
    assert gates.admit(2) and gates.admit(5)
    assert {gates.choose(key, -1) for _ in range(100)} == {(0, 0)}
    assert gates.admit(0)
    assert {gates.choose(key, -1) for _ in range(100)} == {(0, 0), (2, 2), (5, 5)}


def test_a_gate_opens_when_its_probe_has_an_offset_and_nothing_is_held() -> None:
    gates = gates_of(0, 1)
    assert gates.admit(0) and not gates.admit(0)
    assert gates.hold(0, "a") and not gates.hold(0, "b")
    assert gates.landed(0, 0) == [0]
    assert gates.next(0) == ("a", False)
    assert gates.closed == {0, 1}, "what comes now must go behind what is held"
    gates.put_back(0, "a")
    assert [gates.next(0), gates.next(0), gates.next(0)] == [("a", False), ("b", False), None]
    assert gates.closed == {1}


def test_a_probe_that_fails_is_followed_by_the_next() -> None:
    gates = gates_of(0)
    gates.admit(0)
    gates.hold(0, "a")
    gates.landed(0, None)
    assert gates.next(0) == ("a", True)
    gates.landed(0, None)
    assert gates.next(0) is None and gates.closed == {0} and gates.admit(0)


def test_a_key_that_goes_elsewhere_than_predicted_opens_all_gates() -> None:
    """The topic has more partitions than it had, so the predictions are wrong."""
    gates = gates_of(0, 1)
    gates.admit(0)
    gates.hold(0, "a")
    gates.admit(1)
    gates.hold(1, "b")
    assert gates.landed(0, 3) == [0, 1]
    assert [gates.next(0), gates.next(1), gates.next(0), gates.next(1)] == [
        ("a", False),
        ("b", False),
        None,
        None,
    ]
    assert gates.closed == set()


def test_a_look_up_corrects_where_messages_without_a_key_go() -> None:
    gates = gates_of(0, 1, 2, 3)
    assert gates.admit(3) and gates.hold(3, "a")
    assert sorted(gates.found(Layout((0, 1), (1,)))) == [2, 3]
    assert {gates.choose(None, -1) for _ in range(20)} == {(1, 1)}
    assert gates.next(3) == ("a", False), "it passes: librdkafka refuses it, and it goes elsewhere"
    assert gates.next(3) is None and gates.closed == {0, 1}
    assert gates.found(Layout((0, 1), ())) == []
    assert gates.choose(None, -1) == (UNKNOWN, -1), "librdkafka knows more"


def test_keys_are_predicted_anew_only_while_nothing_waits() -> None:
    """Else the next message of a key would not wait behind those before it."""
    gates, key = gates_of(0, 1, 2, 3), b"key"
    four, seven = fnv1a_partition(key, 4), fnv1a_partition(key, 7)
    assert four != seven
    larger = Layout(tuple(range(7)), tuple(range(7)))
    gates.admit(four)
    gates.hold(four, "a")
    assert gates.found(larger) == [] and gates.choose(key, -1) == (four, -1)
    for partition in gates.landed(four, four):
        while gates.next(partition):
            pass
    assert gates.found(larger) == [] and gates.choose(key, -1) == (seven, -1)
    assert gates.closed == set(range(7)) - {four}


def test_a_partition_that_is_gone_waits_for_what_a_new_producer_sends_again() -> None:
    gates = gates_of(0, 1)
    gates.shut([1])
    gates.hold(1, "a")
    assert not gates.idle()
    gates.drop(1)
    assert gates.next(1) is None
    assert gates.landed(1, 1) == [1] and gates.next(1) == ("a", False) and gates.idle()


# -- the sender -----------------------------------------------------------------------------------


class Reported:
    """A message of a delivery report."""

    def __init__(self, partition: int, offset: int | None) -> None:
        self.partition, self.offset = (lambda: partition), (lambda: offset)


class Library:
    """Takes ``room`` messages, and lands them when it is told to."""

    def __init__(self) -> None:
        self.room = 10**6
        self.sent: list[tuple[Any, int]] = []
        self.reports: list[Any] = []
        self.refuse: set[bytes] = set()
        self.gone: set[int] = set()

    def produce(self, topic: str, item: Any, partition: int, report: Any) -> bool:
        if item.value in self.refuse:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if not self.room:
            raise BufferError
        self.room -= 1
        moved = partition in self.gone
        self.sent.append((item.value, -1 if moved else partition))
        self.reports.append(report)
        return moved


class Bench:
    """A sender of one topic, ``t``, and what becomes of its messages."""

    def __init__(self, partitions: tuple[int, ...] = (0,), **options: Any) -> None:
        self.library = Library()
        self.probes: list[tuple[Any, ...]] = []
        self.failed: list[tuple[Any, int]] = []
        self.landed: list[Any] = []
        options = {"max_bytes": 1000, "timeout": 60.0, "hashing": True, **options}
        self.sender = GatedSender(self.library.produce, self._fail, self.probes, **options)
        self.sender.shut("t", partitions)

    def _fail(self, sending: Sending, error: Any) -> None:
        error = error.args[0] if isinstance(error, KafkaException) else error
        self.failed.append((sending.item.value, error.code()))

    def put(self, value: bytes, partition: int = 0, size: int = 1) -> None:
        item = Item(value)
        self.sender.put("t", partition, Sending(item, partition, lambda *_: self.landed.append(value), size))

    def land(self, at: int, partition: int = 0, *, offset: int | None = 0, error: Any = None) -> None:
        """Deliver the report of the message that was sent as number ``at``."""
        self.library.reports[at](error, Reported(partition, offset))
        probes, self.probes[:] = list(self.probes), []
        for probe in probes:
            self.sender.landed(*probe)

    @property
    def sent(self) -> list[bytes]:
        return [value for value, _ in self.library.sent]


async def test_one_message_goes_ahead_and_the_others_follow_in_order() -> None:
    bench = Bench((0, 1))
    for value in (b"a", b"b", b"c"):
        bench.put(value)
    bench.put(b"z", 1)
    assert bench.sent == [b"a", b"z"]
    bench.land(0)
    assert bench.sent == [b"a", b"z", b"b", b"c"] and bench.landed == [b"a"]
    bench.put(b"d")
    assert bench.sent[-1] == b"d"
    assert "t" in bench.sender._topics, "partition 1 has no answer yet"
    bench.land(1, 1)
    assert bench.sender._topics == {}, "all gates are open"


@pytest.mark.parametrize("outcome", [{"error": KafkaError(KafkaError._MSG_TIMED_OUT)}, {"offset": None}])
async def test_the_next_message_is_the_probe_if_one_fails(outcome: dict[str, Any]) -> None:
    bench = Bench()
    for value in (b"a", b"b", b"c"):
        bench.put(value)
    bench.land(0, **outcome)
    assert bench.sent == [b"a", b"b"]
    bench.land(1)
    assert bench.sent == [b"a", b"b", b"c"]


async def test_held_messages_wait_for_room_in_librdkafka() -> None:
    bench = Bench()
    for value in (b"a", b"b", b"c"):
        bench.put(value)
    bench.library.room = 1
    bench.land(0)
    assert bench.sent == [b"a", b"b"]
    bench.put(b"d")
    bench.library.room = 10
    async with asyncio.timeout(5):
        while len(bench.sent) < 4:
            await asyncio.sleep(0.001)
    assert bench.sent == [b"a", b"b", b"c", b"d"]


async def test_a_full_gate_refuses_messages_as_a_full_librdkafka_does() -> None:
    bench = Bench(max_bytes=10)
    bench.put(b"probe")
    bench.put(b"larger than all", size=11)
    with pytest.raises(BufferError):
        bench.put(b"b")


async def test_a_message_that_librdkafka_refuses_is_no_probe() -> None:
    bench = Bench()
    bench.library.refuse = {b"a", b"c"}
    with pytest.raises(KafkaException):
        bench.put(b"a")
    for value in (b"b", b"c", b"d"):
        bench.put(value)
    bench.land(0, error=KafkaError(KafkaError._MSG_TIMED_OUT))
    assert bench.sent == [b"b", b"d"]
    assert bench.failed == [(b"c", KafkaError._UNKNOWN_PARTITION)]


async def test_a_message_is_not_held_longer_than_it_may_take() -> None:
    bench = Bench(timeout=0.02)
    for value in (b"a", b"b", b"c"):
        bench.put(value)
    async with asyncio.timeout(5):
        while len(bench.failed) < 2:
            await asyncio.sleep(0.001)
    assert bench.failed == [(b"b", KafkaError._MSG_TIMED_OUT), (b"c", KafkaError._MSG_TIMED_OUT)]
    bench.put(b"d")
    bench.land(0)
    assert bench.sent == [b"a", b"d"]


async def test_a_drain_waits_for_held_messages_then_gives_them_up() -> None:
    bench = Bench()
    for value in (b"a", b"b"):
        bench.put(value)
    assert await bench.sender.drain(0.01) == 1
    assert bench.failed == [(b"b", KafkaError._PURGE_QUEUE)]
    bench.put(b"c")
    draining = asyncio.ensure_future(bench.sender.drain(60))
    await asyncio.sleep(0)
    assert not draining.done()
    bench.land(0)
    assert await draining == 0 and bench.sent == [b"a", b"c"]


async def test_gates_go_with_the_topic_s_producer_unless_they_hold_something() -> None:
    bench = Bench()
    bench.put(b"a")
    bench.put(b"b")
    bench.sender.forget("t")
    bench.land(0)
    assert bench.sent == [b"a", b"b"]
    bench.sender.shut("t", (0,))
    bench.put(b"c")
    bench.sender.forget("t")
    assert bench.sender._topics == {}
    bench.land(2)


async def test_all_gates_are_closed_for_a_new_producer_also_those_that_were_open() -> None:
    """No leader knows the new producer, whatever it knew of the one before."""
    bench = Bench((0, 1))
    bench.put(b"a")
    bench.land(0)
    bench.sender.shut("u", (0,))
    bench.sender.shut_again()
    for value in (b"b", b"c"):
        bench.put(value)
    bench.put(b"z", 1)
    assert bench.sent == [b"a", b"b", b"z"]
    bench.land(1)
    assert bench.sent == [b"a", b"b", b"z", b"c"]
    assert bench.sender._topics.keys() == {"t", "u"}


async def test_a_partition_that_does_not_exist_has_no_gate() -> None:
    bench = Bench((0, 1, 2))
    for value in (b"a", b"b"):
        bench.put(value, 1)
    bench.library.gone = {1, 2}
    for value in (b"x", b"y"):
        bench.put(value, 2)
    assert bench.library.sent == [(b"a", 1), (b"x", -1), (b"y", -1)]
    bench.land(0, error=KafkaError(KafkaError._UNKNOWN_PARTITION))
    assert bench.library.sent[3:] == [(b"b", -1)]
    assert {bench.sender.choose("t", [Item()], [-1])[0][0] for _ in range(20)} == {0}
    bench.put(b"c")
    bench.land(1)  # x: what lands elsewhere proves nothing here
    bench.land(4)
    assert bench.sender._topics == {}


async def test_a_look_up_opens_the_gates_of_partitions_that_are_gone() -> None:
    bench = Bench((0, 1))
    for value in (b"a", b"b"):
        bench.put(value, 1)
    bench.library.gone = {1}
    bench.sender.found("t", Layout((0,), (0,)))
    bench.sender.found("unknown", Layout((0,), (0,)))
    assert bench.library.sent == [(b"a", 1), (b"b", -1)] and bench.sender._topics["t"].closed == {0}
    bench.put(b"c")
    bench.land(2)
    assert bench.sender._topics == {}
    bench.sender.found("t", Layout((0, 1, 2), (1, 2)))
    bench.sender.shut_again()
    assert {bench.sender.choose("t", [Item()], [-1])[0][0] for _ in range(20)} == {1, 2}
    bench.sender.forget("t")
    assert bench.sender.gate_of("t", b"key", -1) is None


class Name(str):
    """A topic's name that counts comparisons."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


async def test_many_topics_with_messages_sent_again_take_no_more_than_their_number() -> None:
    bench = Bench()
    for number in range(300):
        bench.sender.shut(Name(number), (0,))
    Name.compared = 0
    bench.sender.shut_again([(Name(number), 0) for number in range(300)])
    assert Name.compared < 300 * 10, "every topic was compared with every other"


async def test_held_messages_of_a_gate_that_was_proved_begin_with_a_probe_for_a_new_producer() -> None:
    bench = Bench()
    for value in (b"a", b"b", b"c", b"d"):
        bench.put(value)
    bench.library.room = 1
    bench.land(0)
    assert bench.sent == [b"a", b"b"]
    bench.sender.shut_again()
    bench.library.room = 10
    async with asyncio.timeout(5):
        while len(bench.sent) < 3:
            await asyncio.sleep(0.001)
    assert bench.sent == [b"a", b"b", b"c"]
    bench.land(2)
    assert bench.sent == [b"a", b"b", b"c", b"d"]


async def test_new_messages_wait_for_those_that_a_new_producer_sends_again_and_others_do_not() -> None:
    bench = Bench((0, 1))
    for partition in (0, 1):
        bench.put(b"first", partition)
        bench.land(partition, partition)
    bench.sender.shut_again([("t", 0), ("u", 1)])
    for value in (b"a", b"b"):
        bench.put(value)
    bench.put(b"z", 1)
    assert bench.sent[2:] == [b"z"]
    bench.sender.landed("t", 0, 0)
    assert bench.sent[2:] == [b"z", b"a", b"b"]


async def test_a_held_message_does_not_go_beside_one_that_a_new_producer_sends_again() -> None:
    """The sender, which had no room, tries again while that one is on its way."""
    bench = Bench()
    for value in (b"a", b"b", b"c"):
        bench.put(value)
    bench.library.room = 0
    bench.land(0, error=KafkaError(KafkaError._PURGE_QUEUE))  # taken back: it is sent again
    bench.library.room = 10
    bench.sender.shut_again([("t", 0)])
    bench.sender._release("t", 0)
    assert bench.sent == [b"a"]
    bench.sender.landed("t", 0, 0)
    assert bench.sent == [b"a", b"b", b"c"]


async def test_a_key_that_goes_elsewhere_does_not_open_the_gate_of_messages_sent_again() -> None:
    bench = Bench((0, 1))
    bench.put(b"x", 1)
    bench.land(0, 1)
    bench.sender.shut_again([("t", 0)])
    bench.put(b"a")
    bench.put(b"y", 1)
    bench.land(1, 3)
    assert bench.sent == [b"x", b"y"]
    bench.sender.landed("t", 0, 0)
    assert bench.sent == [b"x", b"y", b"a"]


@settings(deadline=None)
@given(st.data())
def test_the_order_of_a_partition_never_changes(data: st.DataObject) -> None:
    """Whatever fails, expires or finds no room: messages of a partition go in the order in which they came."""

    async def play() -> None:
        bench = Bench((0, 1))
        put = 0
        landed = 0
        for _ in range(data.draw(st.integers(1, 40))):
            match data.draw(st.sampled_from(["put", "land", "fail", "room"])):
                case "put" if bench.sender._topics:
                    bench.put(b"%04d" % put, put % 2)
                    put += 1
                case "land" | "fail" as how if landed < len(bench.sent):
                    partition = bench.library.sent[landed][1]
                    bench.land(landed, partition, offset=0 if how == "land" else None)
                    landed += 1
                case "room":
                    await asyncio.sleep(0)
        for partition in (0, 1):
            values = [value for value, at in bench.library.sent if at == partition]
            assert values == sorted(values)

    asyncio.run(play())


async def test_messages_whose_gates_are_open_take_the_short_way() -> None:
    bench = Bench((0, 1))
    choose = bench.sender.choose
    assert choose("t", [Item(), Item()], [1, 0]) == ([1, 0], [1, 0])
    bench.put(b"a")
    bench.land(0)
    assert choose("t", [Item(), Item()], [0, 0]) == ([0, 0], None)
    assert choose("t", [Item(), Item()], [0, 1]) == ([0, 1], [0, 1])
    assert choose("another", [Item()], [-1]) == ([-1], None)


async def test_keys_of_open_gates_take_the_short_way_though_other_gates_are_closed() -> None:
    bench = Bench((0, 1, 2))
    choose = bench.sender.choose
    keys = {fnv1a_partition(key, 3): Item(key=key) for key in (b"%d" % number for number in range(30))}
    assert choose("t", [keys[0]], [-1]) == ([-1], [0])
    bench.put(b"first")
    bench.land(0)
    assert choose("t", [keys[0], keys[0]], [-1, -1]) == ([-1, -1], None)
    assert choose("t", [keys[0], keys[1]], [-1, -1]) == ([-1, -1], [0, 1])
    assert choose("t", [Item(key=b"x" * 513)], [-1]) == ([-1], None), "it cannot be predicted"
    keyless, targets = choose("t", [Item()], [-1])
    assert keyless[0] in (0, 1, 2) and targets in (None, list(keyless))

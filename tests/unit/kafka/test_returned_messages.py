"""Messages that landed without an offset, with a librdkafka that takes as many as there is room for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, strategies as st

from pixy.kafka.returned_messages import MOST_RETURNS, ReturnedMessages


class Reported:
    """A message of a delivery report."""

    def __init__(self, offset: int | None) -> None:
        self.topic, self.partition, self.offset = (lambda: "t"), (lambda: 3), (lambda: offset)


class Library:
    """Keeps what it is given, as (topic, item, partition, callback)."""

    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.sent: list[tuple[str, Any, int, Any]] = []
        self.broken = False
        self.code = KafkaError._UNKNOWN_PARTITION

    def produce(self, topic: str, item: Any, partition: int, report: Any) -> None:
        if self.broken:
            raise KafkaException(KafkaError(self.code))
        if len(self.sent) == self.room:
            raise BufferError
        self.sent.append((topic, item, partition, report))


class Results:
    """What the callers hear."""

    def __init__(self) -> None:
        self.got: list[tuple[Any, Any]] = []

    def __call__(self, error: Any, message: Any) -> None:
        self.got.append((None if error is None else error.code(), message.offset()))


def order_of(item: Any) -> int:
    """The number of a message in these tests: that of its first letter."""
    return ord(item[0])


def add(returned: ReturnedMessages, item: Any, message: Any, results: Any) -> None:
    returned.add(item, message, results, order_of(item))


def adopt(returned: ReturnedMessages, topic: str, item: Any, partition: int, results: Any) -> None:
    returned.adopt(topic, item, partition, results, order_of(item))


def take_back(returned: ReturnedMessages, item: Any, error: Any, message: Any, results: Any) -> bool:
    return returned.take_back(item, error, message, results, order_of(item))


def test_a_message_goes_to_its_partition_again_and_its_caller_hears_the_final_result() -> None:
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    add(returned, Item("item"), Reported(None), results)
    [(topic, item, partition, report)] = library.sent
    assert (topic, item, partition) == ("t", "item", 3) and results.got == []
    report(None, Reported(7))
    assert results.got == [(None, 7)] and len(returned) == 0


def test_a_message_that_never_gets_an_offset_fails() -> None:
    library, results = Library(), Results()
    add(ReturnedMessages(library.produce), Item("item"), Reported(None), results)
    for _ in range(MOST_RETURNS):
        assert results.got == []
        library.sent[-1][3](None, Reported(None))
    assert len(library.sent) == MOST_RETURNS
    assert results.got == [(KafkaError._MSG_TIMED_OUT, None)]


def test_without_idempotence_a_message_that_was_taken_back_is_written_without_an_offset() -> None:
    """required_acks no_response: Kafka names no offset of any message."""
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce, idempotent=False)
    returned.hold()
    take_back(returned, Item("item"), purged(), Reported(None), results)
    returned.release()
    library.sent[0][3](None, Reported(None))
    assert len(library.sent) == 1 and results.got == [(None, None)]


@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_PARTITION, KafkaError._DESTROY])
def test_a_message_whose_partition_is_gone_goes_to_any_unless_its_caller_asked_for_that_one(
    caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """A producer that does not know the topic yet takes it for any partition."""
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    returned.hold()
    for item in (Anywhere("a"), Item("b")):
        take_back(returned, item, purged(), Reported(None), results)
    returned.release()
    gone = KafkaError(code)
    for _, _, partition, report in list(library.sent):
        assert partition == 3
        report(gone, Reported(None))
    assert results.got == [(KafkaError._UNKNOWN_PARTITION, None)] and returned.failed == 1
    assert [(item, partition) for _, item, partition, _ in library.sent[2:]] == [("a", -1)]
    library.sent[2][3](None, Reported(0))
    assert results.got[1:] == [(None, 0)]
    returned.log()
    assert caplog.messages == ["t: 1 messages go to other partitions: theirs do not exist any more"]


def test_a_message_that_finds_no_partition_fails() -> None:
    library, results = Library(), Results()
    gone = KafkaError(KafkaError._UNKNOWN_PARTITION)
    returned = ReturnedMessages(library.produce)
    assert take_back(returned, Anywhere("a"), gone, Reported(None), results)
    while library.sent:
        library.sent.pop()[3](gone, Reported(None))
    assert results.got == [(gone.code(), None)]


def test_messages_wait_in_order_for_room_and_fail_if_they_are_given_up() -> None:
    library, results = Library(room=1), Results()
    returned = ReturnedMessages(library.produce)
    for item in ("a", "b", "c"):
        add(returned, Item(item), Reported(None), results)
    assert len(returned) == 2
    library.room = 2
    returned.send()
    assert [item for _, item, _, _ in library.sent] == ["a", "b"]
    returned.give_up()
    assert results.got == [(KafkaError._PURGE_QUEUE, None)] and len(returned) == 0


@given(st.data())
def test_messages_are_sent_again_in_the_order_in_which_they_were_sent_however_they_come_back(
    data: st.DataObject,
) -> None:
    """On an overloaded machine what was queued, in a request, or refused comes back in any order."""
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    back: dict[str, Any] = {item: partial(come_back, returned, Item(item), results) for item in "abcdef"}
    reasons = [purged(), purged(KafkaError._PURGE_INFLIGHT), sequence_error(), None]
    for _ in range(3):
        returned.hold(fatal=True)
        for item in data.draw(st.permutations("abcdef")):
            back[item](data.draw(st.sampled_from(reasons)), Reported(None))
        assert len(returned) == 6
        returned.release()
        assert "".join(item for _, item, _, _ in library.sent) == "abcdef" and len(returned) == 0
        back = {item: report for _, item, _, report in library.sent}
        library.sent = []
    assert results.got == []


def come_back(returned: ReturnedMessages, item: Any, results: Results, error: Any, message: Any) -> None:
    """A delivery callback."""
    if error is None:
        add(returned, item, message, results)
    else:
        assert take_back(returned, item, error, message, results)


def sequence_error() -> KafkaError:
    return KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_a_message_that_librdkafka_refuses_fails() -> None:
    library, results = Library(), Results()
    library.broken = True
    add(ReturnedMessages(library.produce), Item("item"), Reported(None), results)
    assert results.got == [(KafkaError._UNKNOWN_PARTITION, None)]


@pytest.mark.parametrize(
    "refusal", [TypeError("an integer is required"), ValueError("embedded null character")]
)
def test_a_message_that_confluent_kafka_cannot_take_fails_and_the_next_is_sent(refusal: Exception) -> None:
    library, results = Library(), Results()

    def produce(topic: str, item: Any, partition: int, report: Any) -> None:
        if item == "a":
            raise refusal
        library.produce(topic, item, partition, report)

    returned = ReturnedMessages(produce)
    returned.hold()
    for item in "ab":
        take_back(returned, Item(item), purged(), Reported(None), results)
    returned.release()
    assert results.got == [(KafkaError._INVALID_ARG, None)]
    assert [item for _, item, _, _ in library.sent] == ["b"] and len(returned) == 0


def test_a_message_that_librdkafka_refuses_because_of_its_own_fatal_error_waits_for_another_producer() -> (
    None
):
    library, results = Library(), Results()
    library.broken, library.code = True, KafkaError._FATAL
    returned = ReturnedMessages(library.produce)
    add(returned, Item("item"), Reported(None), results)
    returned.hold(fatal=True)
    library.broken = False
    returned.release()
    assert [item for _, item, _, _ in library.sent] == ["item"] and results.got == []


def test_after_a_fatal_error_what_failed_what_came_back_and_what_was_refused_keep_their_order() -> None:
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    failed, queued = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER), KafkaError(KafkaError._PURGE_QUEUE)
    assert not take_back(returned, Item("x"), failed, Reported(None), results), "no replacement"
    returned.hold()
    assert not take_back(returned, Item("x"), failed, Reported(None), results), "not because of an error"
    returned.hold(fatal=True)
    for error, item in ((failed, "a"), (queued, "f"), (failed, "b"), (queued, "g")):
        assert take_back(returned, Item(item), error, Reported(None), results)
    adopt(returned, "t", Item("h"), 3, results)
    add(returned, Item("c"), Reported(None), results)
    for item in "de":
        assert take_back(returned, Item(item), queued, Reported(None), results)
    assert len(returned) == 8
    returned.release()
    assert "".join(item for _, item, _, _ in library.sent) == "abcdefgh" and len(returned) == 0


def test_what_the_second_producer_had_no_room_for_stays_behind_what_it_gives_back() -> None:
    library, results = Library(room=3), Results()
    returned = ReturnedMessages(library.produce)
    returned.hold(fatal=True)
    for item in "abcde":
        take_back(returned, Item(item), purged(), Reported(None), results)
    returned.release()
    sent, library.sent = library.sent, []
    assert [item for _, item, _, _ in sent] == ["a", "b", "c"] and len(returned) == 2
    returned.hold(fatal=True)
    sent[0][3](KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER), Reported(None))
    for _, _, _, report in sent[1:]:
        report(purged(), Reported(None))
    library.room = 10
    returned.release()
    assert "".join(item for _, item, _, _ in library.sent) == "abcde" and results.got == []


def test_a_message_that_makes_each_producer_fail_fails() -> None:
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    failed = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
    returned.hold(fatal=True)
    take_back(returned, Item("item"), failed, Reported(None), results)
    returned.release()
    for _ in range(MOST_RETURNS):
        assert results.got == []
        returned.hold(fatal=True)
        library.sent.pop()[3](failed, Reported(None))
        returned.release()
    assert results.got == [(failed.code(), None)] and library.sent == []


def test_a_message_that_came_back_is_not_sent_when_its_time_is_over() -> None:
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce, patience=0.0)
    returned.hold()
    take_back(returned, Item("item"), purged(), Reported(None), results)
    returned.release()
    assert library.sent == [] and results.got == [(KafkaError._MSG_TIMED_OUT, None)]


def test_one_line_says_how_many_messages_came_back(caplog: pytest.LogCaptureFixture) -> None:
    returned = ReturnedMessages(Library().produce)
    for item in ("a", "b"):
        add(returned, Item(item), Reported(None), Results())
    returned.log()
    returned.log()
    assert caplog.messages == ["t: 2 messages landed without an offset and are sent again"]


def purged(code: int = KafkaError._PURGE_QUEUE) -> KafkaError:
    return KafkaError(code)


def test_messages_that_are_taken_back_are_sent_in_order_once_there_is_a_new_producer() -> None:
    library, results = Library(room=2), Results()
    returned = ReturnedMessages(library.produce)
    assert not take_back(returned, Item("x"), purged(), Reported(None), results), "given up, not taken back"
    returned.hold()
    for item in "abc":
        assert take_back(returned, Item(item), purged(), Reported(None), results)
    timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert not take_back(returned, Item("d"), timed_out, Reported(None), results)
    returned.send()
    assert library.sent == [] and len(returned) == 3
    returned.release()
    assert [item for _, item, _, _ in library.sent] == ["a", "b"] and len(returned) == 1
    library.room = 3
    returned.send()
    for offset, (_, _, _, report) in enumerate(library.sent):
        report(None, Reported(offset))
    assert results.got == [(None, 0), (None, 1), (None, 2)]


@pytest.mark.parametrize("code", [KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT])
def test_a_message_is_taken_back_however_often_its_producer_is_replaced(code: int) -> None:
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    add(returned, Item("item"), Reported(None), results)
    for _ in range(MOST_RETURNS + 2):
        returned.hold()
        library.sent.pop()[3](purged(code), Reported(None))
        assert library.sent == [] and results.got == []
        returned.release()
    library.sent.pop()[3](purged(code), Reported(None))
    assert results.got == [(code, None)], "a purge at the end is no replacement"


class Item(str):
    """A message: a letter, and a digit for the gate that its key has."""

    __slots__ = ()
    partition = 3  # what its caller asks for

    @property
    def key(self) -> bytes | None:
        return self[1:].encode() or None


class Anywhere(Item):
    """A message whose caller asks for no partition."""

    __slots__ = ()
    partition = None  # type: ignore[assignment]


class Placed(Reported):
    """A message of a delivery report, of any partition."""

    def __init__(self, partition: int | None, offset: int | None = None) -> None:
        super().__init__(offset)
        self.partition = lambda: partition  # type: ignore[assignment, return-value]


class Moved:
    """Messages that move to a new producer: of three partitions, and one without."""

    def __init__(
        self, messages: Mapping[int | None, Iterable[str]], room: int = 100, *, broken: bool = False
    ) -> None:
        self.library, self.results = Library(room), Results()
        self.library.broken = broken
        self.probes: list[tuple[str, int, int | None]] = []
        self.returned = ReturnedMessages(self.library.produce, gate_of=self.gate_of, probes=self.probes)
        self.returned.hold(fatal=True)
        for partition, items in messages.items():
            for item in items:
                take_back(self.returned, Item(item), purged(), Placed(partition), self.results)
        self.returned.release()

    @staticmethod
    def gate_of(_topic: str, key: bytes | None, partition: int) -> int | None:
        if key is not None:
            return int(key) if partition in (-1, int(key)) else None
        return None if partition in (-1, 9) else partition

    @property
    def sent(self) -> str:
        return "".join(item for _, item, _, _ in self.library.sent)

    def land(self, item: str, offset: int | None, error: Any = None) -> None:
        at = self.sent.rindex(item)
        self.library.sent[at][3](error, Reported(offset))


def test_one_message_of_each_partition_goes_ahead_to_a_new_producer_and_the_others_follow() -> None:
    moved = Moved({0: "abc", 1: "mn", None: "xy"})
    assert moved.sent == "xyam", "without a partition there is none to prove"
    assert sorted(moved.returned.busy()) == [("t", 0), ("t", 1)] and len(moved.returned) == 3
    moved.land("a", 0)
    assert moved.sent == "xyambc" and moved.probes == [("t", 0, 0, None)], "new messages go behind these"
    moved.land("m", 0)
    assert moved.sent == "xyambcn" and moved.probes == [("t", 0, 0, None), ("t", 1, 1, None)]
    assert moved.returned.busy() == [] and len(moved.returned) == 0


def test_the_one_that_goes_ahead_is_sent_again_if_it_has_no_offset_and_followed_if_it_fails() -> None:
    moved = Moved({0: "ab"})
    moved.returned.busy()
    moved.land("a", None)
    assert moved.sent == "aa" and moved.probes == []
    moved.land("a", None, KafkaError(KafkaError._MSG_TIMED_OUT))
    assert moved.sent == "aab" and moved.results.got == [(KafkaError._MSG_TIMED_OUT, None)]
    moved.land("b", None, KafkaError(KafkaError._MSG_TIMED_OUT))
    assert moved.probes == [("t", 0, None, None)] and moved.returned.busy() == []


def test_gates_hear_of_what_is_given_up_behind_one_that_went_ahead() -> None:
    moved = Moved({0: "ab", 1: "m"})
    moved.land("m", 0)
    moved.returned.busy()
    moved.returned.give_up(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    assert moved.probes == [("t", 0, None, None)]


def test_messages_behind_one_that_went_ahead_wait_for_room_and_new_ones_for_them() -> None:
    moved = Moved({0: "abc"}, room=2)
    moved.returned.busy()
    moved.land("a", 0)
    assert moved.sent == "ab" and moved.probes == [] and len(moved.returned) == 1
    moved.library.room = 3
    moved.returned.send()
    assert moved.sent == "abc" and moved.probes == [("t", 0, 0, None)]


def test_a_second_fatal_error_while_messages_wait_behind_one_that_went_ahead_keeps_the_order() -> None:
    moved = Moved({0: "abc", 1: "mno"})
    moved.land("m", 0)
    moved.library.sent, sent = [], moved.library.sent
    assert [item for _, item, _, _ in sent] == ["a", "m", "n", "o"]
    moved.returned.hold(fatal=True)
    failed = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
    sent[2][3](failed, Placed(1))
    sent[0][3](purged(), Placed(0))
    sent[3][3](purged(), Placed(1))
    adopt(moved.returned, "t", Item("d"), 0, moved.results)
    assert len(moved.returned) == 6
    moved.returned.release()
    assert sorted(moved.sent) == ["a", "n"]
    moved.land("a", 1)
    moved.land("n", 1)
    assert [item for item in moved.sent if item in "abcd"] == list("abcd")
    assert [item for item in moved.sent if item in "mno"] == list("no")


def test_what_an_earlier_producer_gives_back_late_leaves_those_alone_that_went_ahead() -> None:
    moved = Moved({0: "ab"})
    moved.returned.busy()
    moved.returned.hold(fatal=True)
    take_back(moved.returned, Item("z"), purged(), Placed(0), moved.results)
    moved.returned.release_late()
    assert moved.sent == "az"
    moved.land("a", 0)
    assert moved.sent == "azb" and moved.probes == [("t", 0, 0, None)]


def test_messages_that_have_no_gate_are_sent_at_once_and_so_is_all_of_their_partition() -> None:
    moved = Moved({9: "ab", 1: "mn"})
    assert moved.sent == "abm"
    moved = Moved({1: ["m", "n2", "o"]})
    assert moved.sent == "mn2o", "the key of one belongs to another partition: new ones like it do not wait"


def test_a_partition_whose_messages_all_fail_at_once_has_no_result_for_its_gate() -> None:
    moved = Moved({0: "ab"}, broken=True)
    assert moved.results.got == [(KafkaError._UNKNOWN_PARTITION, None)] * 2
    assert moved.probes == [] and moved.returned.busy() == []


def test_a_message_that_no_producer_has_placed_stays_behind_those_of_the_partition_of_its_key() -> None:
    moved = Moved({1: "ab"})
    moved.returned.hold(fatal=True)
    adopt(moved.returned, "t", Item("c1"), -1, moved.results)
    moved.library.sent.pop()[3](purged(), Placed(1))
    moved.returned.release()
    assert moved.sent == "a"
    moved.land("a", 0)
    assert moved.sent == "abc1" and moved.library.sent[-1][2] == -1, "librdkafka may know more partitions"

"""Messages that landed without an offset, with a librdkafka that takes as many as there is room for."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

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


def test_a_message_goes_to_its_partition_again_and_its_caller_hears_the_final_result() -> None:
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    returned.add("item", Reported(None), results)  # type: ignore[arg-type]
    [(topic, item, partition, report)] = library.sent
    assert (topic, item, partition) == ("t", "item", 3) and results.got == []
    report(None, Reported(7))
    assert results.got == [(None, 7)] and len(returned) == 0


def test_a_message_that_never_gets_an_offset_fails() -> None:
    library, results = Library(), Results()
    ReturnedMessages(library.produce).add("item", Reported(None), results)  # type: ignore[arg-type]
    for _ in range(MOST_RETURNS):
        assert results.got == []
        library.sent[-1][3](None, Reported(None))
    assert len(library.sent) == MOST_RETURNS
    assert results.got == [(KafkaError._MSG_TIMED_OUT, None)]


def test_messages_wait_in_order_for_room_and_fail_if_they_are_given_up() -> None:
    library, results = Library(room=1), Results()
    returned = ReturnedMessages(library.produce)
    for item in ("a", "b", "c"):
        returned.add(item, Reported(None), results)  # type: ignore[arg-type]
    assert len(returned) == 2
    library.room = 2
    returned.send()
    assert [item for _, item, _, _ in library.sent] == ["a", "b"]
    returned.give_up()
    assert results.got == [(KafkaError._PURGE_QUEUE, None)] and len(returned) == 0


def test_what_a_producer_gives_back_later_was_before() -> None:
    """While a producer is replaced, its queue comes back first; a request that fails meanwhile is queued again, and comes back next."""
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    returned.hold()
    queued, under_way = KafkaError(KafkaError._PURGE_QUEUE), KafkaError(KafkaError._PURGE_INFLIGHT)
    for error, *items in ((queued, "d", "e"), (queued, "c"), (queued, "b"), (under_way, "a")):
        for item in items:
            assert returned.take_back(item, error, Reported(None), results)
        if items != ["b"]:
            returned.next_round()
    assert len(returned) == 5
    returned.release()
    assert "".join(item for _, item, _, _ in library.sent) == "abcde" and len(returned) == 0


def test_a_message_that_librdkafka_refuses_fails() -> None:
    library, results = Library(), Results()
    library.broken = True
    ReturnedMessages(library.produce).add("item", Reported(None), results)  # type: ignore[arg-type]
    assert results.got == [(KafkaError._UNKNOWN_PARTITION, None)]


def test_a_message_that_librdkafka_refuses_because_of_its_own_fatal_error_waits_for_another_producer() -> (
    None
):
    library, results = Library(), Results()
    library.broken, library.code = True, KafkaError._FATAL
    returned = ReturnedMessages(library.produce)
    returned.add("item", Reported(None), results)  # type: ignore[arg-type]
    returned.hold(fatal=True)
    library.broken = False
    returned.release()
    assert [item for _, item, _, _ in library.sent] == ["item"] and results.got == []


def test_after_a_fatal_error_what_failed_goes_first_then_what_came_back_last_then_what_was_refused() -> None:
    library, results = Library(), Results()
    returned = ReturnedMessages(library.produce)
    failed, queued = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER), KafkaError(KafkaError._PURGE_QUEUE)
    assert not returned.take_back("x", failed, Reported(None), results), "no replacement"  # type: ignore[arg-type]
    returned.hold()
    assert not returned.take_back("x", failed, Reported(None), results), "not because of an error"  # type: ignore[arg-type]
    returned.hold(fatal=True)
    for error, item in ((failed, "a"), (queued, "f"), (failed, "b"), (queued, "g")):
        assert returned.take_back(item, error, Reported(None), results)  # type: ignore[arg-type]
    returned.next_round()
    returned.adopt("t", "h", 3, results)  # type: ignore[arg-type]
    returned.add("c", Reported(None), results)  # type: ignore[arg-type]
    for item in "de":
        assert returned.take_back(item, queued, Reported(None), results)  # type: ignore[arg-type]
    assert len(returned) == 8
    returned.release()
    assert "".join(item for _, item, _, _ in library.sent) == "abcdefgh" and len(returned) == 0


def test_what_the_second_producer_had_no_room_for_stays_behind_what_it_gives_back() -> None:
    library, results = Library(room=3), Results()
    returned = ReturnedMessages(library.produce)
    returned.hold(fatal=True)
    for item in "abcde":
        returned.take_back(item, purged(), Reported(None), results)  # type: ignore[arg-type]
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
    returned.take_back("item", failed, Reported(None), results)  # type: ignore[arg-type]
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
    returned.take_back("item", purged(), Reported(None), results)  # type: ignore[arg-type]
    returned.release()
    assert library.sent == [] and results.got == [(KafkaError._MSG_TIMED_OUT, None)]


def test_one_line_says_how_many_messages_came_back(caplog: pytest.LogCaptureFixture) -> None:
    returned = ReturnedMessages(Library().produce)
    for item in ("a", "b"):
        returned.add(item, Reported(None), Results())  # type: ignore[arg-type]
    returned.log()
    returned.log()
    assert caplog.messages == ["t: 2 messages landed without an offset and are sent again"]


def purged(code: int = KafkaError._PURGE_QUEUE) -> KafkaError:
    return KafkaError(code)


def test_messages_that_are_taken_back_are_sent_in_order_once_there_is_a_new_producer() -> None:
    library, results = Library(room=2), Results()
    returned = ReturnedMessages(library.produce)
    assert not returned.take_back("x", purged(), Reported(None), results), "given up, not taken back"  # type: ignore[arg-type]
    returned.hold()
    for item in "abc":
        assert returned.take_back(item, purged(), Reported(None), results)  # type: ignore[arg-type]
    timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert not returned.take_back("d", timed_out, Reported(None), results)  # type: ignore[arg-type]
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
    returned.add("item", Reported(None), results)  # type: ignore[arg-type]
    for _ in range(MOST_RETURNS + 2):
        returned.hold()
        library.sent.pop()[3](purged(code), Reported(None))
        assert library.sent == [] and results.got == []
        returned.release()
    library.sent.pop()[3](purged(code), Reported(None))
    assert results.got == [(code, None)], "a purge at the end is no replacement"

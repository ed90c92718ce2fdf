"""What a topic's producer has gathered."""

from __future__ import annotations

from typing import Any

import pytest

from pixy.config import Producer
from pixy.engine.produce.gathered import Gathered, Pending
from pixy.engine.produce.messages import Produce
from pixy.engine.produce.pending_records import PendingBatch, PendingMessage
from tests.unit.engine.produce.scripted_client import Rec

ANY: Any = object()


def single(size: int = 1) -> PendingMessage:
    return PendingMessage(Produce(None, b"v" * size), size, None, ANY, 0.0)


def batch(count: int, sent: int = 0) -> PendingBatch:
    made = PendingBatch([Rec()] * count, 1000, ANY, ANY)
    made.sent = sent
    return made


def gathered(*items: Pending, **conf: Any) -> Gathered:
    made = Gathered(Producer(**conf))
    for item in items:
        made.add(item)
    return made


def test_what_comes_back_goes_in_front_of_what_came_later_and_counts_towards_the_bytes() -> None:
    first, second, third = single(10), batch(2), single(100)
    found = gathered(third)
    found.put_back([second, first])
    assert found.items == [first, second, third] and found.bytes == 112
    assert found.newest == third.order


@pytest.mark.parametrize(
    ("conf", "parameter"),
    [
        ({"channel_buffer_size": 2}, "producer.channel_buffer_size"),
        ({"buffer_max_bytes": 8}, "producer.buffer_max_bytes"),
    ],
)
def test_nothing_more_is_taken_once_a_bound_is_reached(conf: dict[str, int], parameter: str) -> None:
    found = gathered(single(3), **conf)
    assert found.refusal() is None
    found.add(single(5))
    assert parameter in str(found.refusal())
    found.take_all()
    assert found.refusal() is None and found.bytes == 0


def test_the_rest_of_a_batch_that_was_sent_in_part_counts_as_not_sent() -> None:
    found = gathered(batch(5, sent=2), single(), batch(3))
    assert found.parts() == 1 and found.unsent() == 3 + 1 + 3


def test_what_came_before_a_look_up_is_taken_and_what_came_later_stays() -> None:
    early, sought, late = single(1), single(2), single(4)
    found = gathered(early, sought, late)
    assert found.take_until(sought.order) == [early, sought]
    assert found.items == [late] and found.bytes == 4


def test_each_message_expires_at_its_own_time_whatever_is_before_it() -> None:
    first, second = single(1), single(2)
    found = gathered(second, retry_max=0, timeout=70)
    found.begin_to_wait(10.0)
    found.put_back([first])
    found.begin_to_wait(50.0)
    assert found.expires_at() == 80.0
    assert found.take_expired(79.9) == [] and found.take_expired(80.0) == [second]
    assert found.expires_at() == 120.0 and found.bytes == 1
    found.take_all()
    assert found.expires_at() is None

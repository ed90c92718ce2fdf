"""The long polls of a topic: deadlines, order, clients that have gone."""

from __future__ import annotations

from actors import Future
from pixy.engine.consume.long_polls import TopicPolls


def poll(polls: TopicPolls, now: float) -> Future[object]:
    reply: Future[object] = Future()
    polls.add(reply, False, now)
    return reply


def test_the_wait_begins_with_the_join_which_is_limited() -> None:
    polls = TopicPolls(3.0, 10.0)
    poll(polls, 0.0)
    assert polls.next_deadline() == 13.0
    polls.joined = True
    polls.start_waiting(4.0)
    assert polls.next_deadline() == 7.0
    poll(polls, 5.0)
    assert len(list(polls.expire(7.0))) == 1
    assert polls.next_deadline() == 8.0


def test_requests_for_a_missing_topic_wait_from_their_arrival() -> None:
    polls = TopicPolls(3.0, 10.0)
    poll(polls, 0.0)
    polls.missing = True
    polls.start_waiting(0.5)
    assert polls.next_deadline() == 3.0


def test_clients_that_have_gone_are_not_served() -> None:
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

"""When a producer's topics are looked up, and what counts as evidence for a new producer."""

from __future__ import annotations

import uuid

from pixy.kafka.remade_topics import LOOK_EVERY, RemadeTopics

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def known(*topics: str) -> RemadeTopics:
    """Topics that were written to at 0 s, when they were the old ones."""
    remade = RemadeTopics(60.0)
    for topic in topics:
        assert remade.used(topic, 0.0)
    names, troubled = remade.look(0.5, 1, 0)
    assert sorted(names) == sorted(topics) and not troubled
    assert remade.found(dict.fromkeys(topics, OLD), troubled) == []
    return remade


def test_a_topic_is_asked_for_until_its_id_is_known_and_then_only_in_trouble() -> None:
    remade = RemadeTopics(60.0)
    assert remade.used("t", 0.0) and not remade.used("t", 1.0)
    assert remade.look(1.0, 0, 0) == (["t"], False)
    remade.found({}, False)
    assert remade.look(6.0, 0, 0) == (["t"], False)
    remade.found({"t": OLD}, False)
    assert remade.look(11.0, 0, 0) == ([], False)


def test_messages_that_wait_at_two_looks_or_fail_between_them_are_trouble() -> None:
    remade = known("t")  # with one that waits
    assert remade.look(5.0, 1, 0) == (["t"], True)
    assert remade.look(10.0, 0, 0) == ([], False)
    assert remade.look(15.0, 1, 0) == ([], False)
    assert remade.look(20.0, 0, 0) == ([], False)
    assert remade.look(25.0, 0, 1) == (["t"], True)
    assert remade.look(30.0, 0, 1) == ([], False)


def test_another_id_is_evidence_in_trouble_alone_and_once() -> None:
    remade = known("t", "u")
    assert remade.found({"t": NEW, "u": OLD}, False) == [], "the producer may be in trouble with it later"
    assert remade.found({"u": OLD}, True) == [], "a topic that does not exist now"
    assert remade.found({"t": NEW, "u": OLD}, True) == ["t"]
    assert remade.found({"t": NEW, "u": OLD}, True) == []


def test_a_broker_without_ids_gives_no_evidence() -> None:
    remade = known("t")
    assert remade.found({"t": uuid.UUID(int=0)}, True) == []


def test_topics_whose_messages_must_have_their_results_are_not_asked_for() -> None:
    remade = known("t", "u")
    remade.used("u", 100.0)
    remade.look(100.0, 1, 0)
    late = 60.0 + 2 * LOOK_EVERY
    assert remade.look(late, 1, 0) == (["t", "u"], True) or remade.look(late, 1, 0) == (["u", "t"], True)
    assert remade.look(late + 0.1, 1, 0) == (["u"], True)

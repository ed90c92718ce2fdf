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


def test_another_cluster_at_the_same_addresses_is_evidence_without_ids_too() -> None:
    """In trouble alone and once, as another id of a topic is."""
    without = dict.fromkeys(("t", "u"), uuid.UUID(int=0))
    remade = RemadeTopics(60.0)
    for topic in without:
        remade.used(topic, 0.0)
    remade.look(0.5, 1, 0)
    assert remade.found(without, False, "old") == []
    assert remade.found(without, True, "old") == []
    assert remade.found(without, True, "") == [], "a broker that names no cluster"
    assert remade.found(without, False, "new") == []
    assert remade.found({}, True, "new") == [], "the other cluster has none of the topics yet"
    assert remade.found(without, True, "new") == ["t", "u"]
    assert remade.found(without, True, "new") == []
    remade.renewed()
    assert remade.found(without, True, "newer") == [], "the new producer has not known another one"


def test_topics_whose_messages_must_have_their_results_are_not_asked_for() -> None:
    remade = known("t", "u")
    remade.used("u", 100.0)
    remade.look(100.0, 1, 0)
    late = 60.0 + 2 * LOOK_EVERY
    assert remade.look(late, 1, 0) == (["t", "u"], True) or remade.look(late, 1, 0) == (["u", "t"], True)
    assert remade.look(late + 0.1, 1, 0) == (["u"], True)


def test_a_new_producer_remembers_no_topic_of_the_one_before() -> None:
    """Else the next trouble with a topic that was made again at the same time replaces a producer that is in order."""
    remade = known("t", "u")
    remade.used("t", 100.0)
    assert remade.look(100.0, 1, 0) == (["t"], True)
    assert remade.found({"t": NEW}, True) == ["t"]
    remade.renewed()
    assert remade.look(100.5, 0, 0) == (["t"], False) and remade.found({"t": NEW}, False) == []
    assert remade.used("u", 200.0), "the new producer has not written to it"
    assert remade.look(200.0, 1, 0) == (["u"], False) and remade.found({"u": NEW}, False) == []
    assert remade.look(205.0, 1, 0) == (["u"], True) and remade.found({"u": NEW}, True) == []


def test_a_topic_whose_messages_a_new_producer_has_taken_over_is_asked_for() -> None:
    remade = known("t", "u")
    remade.used("u", 5.0)
    assert remade.look(5.0, 1, 0)[1]
    assert remade.found({"t": NEW}, True) == ["t"], "u does not exist at this moment"
    remade.renewed()
    names, troubled = remade.look(5.5, 0, 0)
    assert sorted(names) == ["t", "u"] and not troubled
    assert remade.found({"t": NEW, "u": NEW}, False) == []
    assert remade.look(10.0, 1, 0)[1] is False and remade.look(15.0, 1, 0)[1]
    assert remade.found({"t": NEW, "u": NEW}, True) == []

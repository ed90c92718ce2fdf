"""Each rule on snapshots made by hand: what it finds, and what it must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pixy import findings
from pixy.findings import Snapshot, consuming, find
from pixy.findings.snapshot import (
    Block,
    Broker,
    Cluster,
    Group,
    Mailbox,
    Partition,
    Paused,
    Refused,
    Topic,
    Unacked,
)

HELD = Unacked(7, age=200.0, held=200.0, attempts=1, out=True, due=100.0, client="10.0.0.9")
FRESH = Unacked(7, age=1.0, held=1.0, attempts=1, out=True, due=299.0, client="10.0.0.9")
TRIED = replace(HELD, attempts=3, held=1.0)
OWN = Partition("orders", 3, age=900.0, position=7, pending=1, oldest=FRESH, most_tried=FRESH)
TOPIC = Topic("orders", polls=1, oldest_poll=0.5, unowned=(), leaderless=())


def group(*partitions: Partition, topic: Topic = TOPIC, **fields: object) -> Snapshot:
    made = Group("main", "billing", (topic,), partitions, **fields)  # type: ignore[arg-type]
    return Snapshot(1e9, (Cluster("main"),), (made,))


def cluster(**fields: object) -> Snapshot:
    return Snapshot(1e9, (Cluster("main", **fields),))  # type: ignore[arg-type]


TROUBLE = {
    "a group that an operator has paused": (
        "paused",
        group(paused=(Paused("", -1, "key:ops", 60.0),)),
    ),
    "a partition that an operator has paused": (
        "paused",
        group(OWN, paused=(Paused("orders", 3, "key:ops", 60.0),)),
    ),
    "a client that holds messages for long": (
        "never-acked",
        group(replace(OWN, oldest=HELD, most_tried=HELD)),
    ),
    "a client that let messages go": (
        "never-acked",
        group(replace(OWN, oldest=replace(HELD, out=False, due=-1.0))),
    ),
    "a client that has filled its partition": (
        "never-acked",
        group(replace(OWN, full=True, pending=301, oldest=replace(HELD, age=6.0))),
    ),
    "a message that was offered three times": (
        "poison-message",
        group(replace(OWN, oldest=TRIED, most_tried=TRIED), acks=99),
    ),
    "a position that stands still": (
        "behind-one-message",
        group(replace(OWN, done_above=50, stuck=30.0, oldest=HELD), acks=99),
    ),
    "a topic that nobody asks for": (
        "paused-and-forgotten",
        group(replace(OWN, buffered=5), topic=replace(TOPIC, polls=0, idle=60.0)),
    ),
    "a partition without an owner": (
        "partition-without-owner",
        group(OWN, topic=replace(TOPIC, unowned=(1, 2), unowned_age=60.0)),
    ),
    "a partition without a leader": ("leaderless", group(OWN, topic=replace(TOPIC, leaderless=(4,)))),
    "a group that Kafka refuses": ("group-failing", group(failure="not authorized", failing=9.0)),
    "a topic that does not exist": ("unknown-topic", group(topic=replace(TOPIC, missing=True))),
    "many rebalances": ("rebalance-storm", group(OWN, rebalances=(1.0, 20.0, 30.0, 50.0, 70.0, 90.0, 100.0))),
    "commits that fail": ("commits-failing", group(OWN, commit_error="refused", commits_failing=6.0)),
    "a subscription that has expired": ("subscription-expired", group(expired={"orders": (60.0, 2)})),
    "a blocked loop": ("blocked-loop", Snapshot(1e9, blocks=(Block(9.0, 1.5, "/service/x"),))),
    "a loop without a processor": (
        "short-of-processor",
        Snapshot(1e9, blocks=(Block(9.0, 1.5, "/service/x", starved=1.4),)),
    ),
    "a full mailbox": ("crowded-mailbox", Snapshot(1e9, mailboxes=(Mailbox("/a", 1000, 1024, 0.1),))),
    "an old message in a mailbox": (
        "crowded-mailbox",
        Snapshot(1e9, mailboxes=(Mailbox("/a", 1, 1024, 9.0),)),
    ),
    "a slow broker": ("broker-slow", cluster(brokers=(Broker("b:1", 0.9), Broker("b:2", 0.001)))),
    "no broker": ("kafka-unreachable", cluster(down="refused", down_for=5.0)),
    "no broker at the first look": ("kafka-unreachable", cluster(down="refused")),
    "as many groups as there may be": ("quota-reached", cluster(groups=(256, 256))),
    "requests that are refused": (
        "quota-reached",
        Snapshot(1e9, refused=(Refused("grpc", "Produce", "RESOURCE_EXHAUSTED", 50),)),
    ),
    "a journal that drops": ("journal-dropping", cluster(journal=(100, 100, 7, 9))),
}

HEALTH = {
    "nothing at all": Snapshot(1e9),
    "a message that was just taken": group(OWN),
    "a message held for long by one client while others acknowledge": group(
        replace(OWN, oldest=HELD, most_tried=HELD), acks=5
    ),
    "a message that was given back once": group(replace(OWN, most_tried=replace(FRESH, attempts=2))),
    "acks out of order": group(replace(OWN, done_above=3, stuck=60.0)),
    "an idle topic without messages": group(OWN, topic=replace(TOPIC, polls=0, idle=600.0)),
    "a hand-over": group(topic=replace(TOPIC, unowned=(1,), unowned_age=5.0)),
    "three other daemons that were restarted": group(OWN, rebalances=(1.0, 12.0, 31.0, 42.0, 61.0, 72.0)),
    "rebalances of an hour ago": group(OWN, rebalances=(3600.0,) * 9),
    "a commit that was repeated": group(OWN, commit_error="moved", commits_failing=0.6),
    "a subscription that ended clean": group(expired={"orders": (60.0, 0)}),
    "a block of an hour ago": Snapshot(1e9, blocks=(Block(3600.0, 1.5, "/x"),)),
    "a short block": Snapshot(1e9, blocks=(Block(9.0, 0.3),)),
    "a short wait for a processor": Snapshot(1e9, blocks=(Block(9.0, 0.4, "/x", starved=0.3),)),
    "a busy mailbox": Snapshot(1e9, mailboxes=(Mailbox("/a", 500, 1024, 0.1),)),
    "a broker that has nothing to answer": cluster(brokers=(Broker("b:1"),)),
    "a journal": cluster(journal=(99, 100, 0, 3)),
    "a few refusals": Snapshot(1e9, refused=(Refused("rest", "consume", "429", 3),)),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_has_its_name_and_nothing_else(name: str) -> None:
    rule, snapshot = TROUBLE[name]
    found = find(snapshot)
    assert [each.rule for each in found] == [rule]
    assert found[0].cause and found[0].todo and found[0].where
    assert found[0].document(1e9)["since"] <= 1e9


@pytest.mark.parametrize("name", HEALTH)
def test_health_has_no_finding(name: str) -> None:
    assert find(HEALTH[name]) == []


def test_every_finding_has_a_name_that_is_known_and_tried() -> None:
    assert sorted({rule for rule, _ in TROUBLE.values()}) == sorted(findings.NAMES)


def test_it_says_who_holds_which_message_since_when_and_what_to_do() -> None:
    (found,) = find(TROUBLE["a client that has filled its partition"][1])
    assert found.severity == "error"
    assert found.where == {
        "cluster": "main", "group": "billing", "topic": "orders", "partition": 3, "client": "10.0.0.9",
    }  # fmt: skip
    assert found.evidence["pending"] == 301 and found.age == 6.0
    assert "10.0.0.9" in found.cause and "consumer.ack_timeout" in found.todo


def test_errors_come_first_and_then_the_oldest() -> None:
    snapshot = replace(
        TROUBLE["a partition without an owner"][1],
        blocks=(Block(9.0, 1.5, "/service/x"),),
        mailboxes=(Mailbox("/a", 1, 1024, 20.0), Mailbox("/b", 1024, 1024, 0.0)),
    )
    assert [each.rule for each in find(snapshot)] == [
        "partition-without-owner", "crowded-mailbox", "crowded-mailbox", "blocked-loop",
    ]  # fmt: skip


def test_a_rule_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_snapshot: Snapshot) -> list[findings.Finding]:
        raise ZeroDivisionError

    monkeypatch.setattr(findings, "RULES", (broken, *findings.RULES))
    assert [each.rule for each in find(TROUBLE["no broker"][1])] == ["kafka-unreachable"]
    assert "rule broken has failed" in caplog.text


def test_a_thousand_partitions_need_no_thousand_lines() -> None:
    many = [replace(OWN, partition=at, oldest=HELD, most_tried=HELD) for at in range(1000)]
    (found,) = find(group(*many))
    assert found.where["client"] == "10.0.0.9" and "partition" not in found.where
    assert (
        found.evidence["pending"] == 1000
        and "orders/0, 1, 2" in found.cause
        and "and 990 more" in found.cause
    )
    tried = [replace(OWN, partition=at, oldest=TRIED, most_tried=TRIED) for at in range(1000)]
    assert len(find(group(*tried))) == findings.MOST
    assert len(list(consuming.poison(group(*tried)))) == 1000


def test_one_lost_event_is_one() -> None:
    (found,) = find(cluster(journal=(100, 100, 1, 9)))
    assert "has lost 1 event in" in found.cause

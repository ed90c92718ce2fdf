"""Findings: each rule with the state that makes it hold, and the state that ends it."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from pixy.tap import events
from pixy.tap.table import render
from pixy.wire import frames
from tests.unit.tap.stage import Joiner, Stage, assignment, forward, settle
from tests.unit.tap.test_observer import commit, offset_fetch, produced


def rules(stage: Stage) -> list[str]:
    return [each["rule"] for each in stage.observer.findings.to_json(stage.now)]


def beat(stage: Stage, member: Joiner, seconds: int) -> None:
    for _ in range(seconds // 5):
        stage.wait(5)
        member.heartbeat()


def test_records_that_wait_for_a_group_without_members() -> None:
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 100})
    produced(client)
    stage.wait(1)
    assert rules(stage) == []
    stage.wait(61)
    found = stage.observer.findings.to_json(stage.now)
    assert [each["rule"] for each in found] == ["no-consumer"]
    assert found[0]["where"] == {"group": "g", "topic": "t"} and found[0]["evidence"]["records"] == 10
    assert found[0]["age"] == 61 and len(stage.told("finding")) == 1
    offset_fetch(client, {0: 100})
    stage.wait(1)
    found = stage.observer.findings.to_json(stage.now)
    assert found[0]["severity"] == "error" and found[0]["evidence"]["certain"], "the coordinator has told it"
    commit(client, 7, {0: 110})
    stage.wait(1)
    assert rules(stage) == [] and [each["rule"] for each in stage.told("finding.over")] == ["no-consumer"]


def test_a_member_that_commits_nothing_is_found_and_one_that_does_is_not() -> None:
    stage = Stage()
    member = Joiner(stage.client("app"))
    settle(1, {member: ("m", assignment(t=[0]))})
    commit(member.client, 7, {0: 100})
    produced(member.client, count=50)
    for offset in range(101, 120):
        beat(stage, member, 5)
        commit(member.client, 7, {0: offset})
    assert rules(stage) == [], "it is behind, but moves"
    beat(stage, member, 70)
    assert rules(stage) == ["stalled-partition"]


def test_a_finding_that_rests_on_an_old_commit_says_that_later_ones_may_have_gone_elsewhere() -> None:
    stage = Stage()
    here = Joiner(stage.client("here"))
    asked = here.ask_join()
    here.joined(asked, 1, "m1", "m1", ["m1", "m2"])
    plan = {"m1": assignment(t=[1]), "m2": assignment(t=[0])}
    here.synced(here.ask_sync(plan), plan["m1"])
    commit(
        here.client, 7, {0: 100, 1: 100}
    )  # partition 0 belongs to a member that does not connect through the tap
    produced(here.client)
    beat(stage, here, 70)
    found = stage.observer.findings.to_json(stage.now)
    assert [(each["rule"], each["severity"]) for each in found] == [("stalled-partition", "warning")]
    assert "the last commit seen is 70 s old, and later ones may have gone elsewhere" in found[0]["cause"]
    assert found[0]["evidence"]["commit_age"] == 70 and not found[0]["evidence"]["certain"]


def test_the_fallback_to_an_earlier_version_is_no_failing_request() -> None:
    """Each client of an older broker, and of the sandbox, begins so."""
    stage = Stage()
    client = stage.client("reader")
    client.correlation_id += 1
    asked = frames.encode_request("ApiVersions", 3, client.correlation_id, "reader", {})
    forward(client.conversation.to_broker, asked)
    refusal = client.correlation_id.to_bytes(4, "big") + b"\0\x23" + bytes.fromhex("01001200000004000000")
    forward(client.conversation.to_client, frames.frame(refusal))
    stage.wait(1)
    assert stage.observer.counts["api_versions_fallbacks"] == 1 and rules(stage) == []


def test_failing_and_throttled_clients() -> None:
    stage = Stage()
    client = stage.client("writer")
    produced(client, error=29)
    client.call("Metadata", 12, {"Topics": []}, {"ThrottleTimeMs": 2500, "Topics": []})
    stage.wait(1)
    found: dict[str, Any] = {each["rule"]: each for each in stage.observer.findings.to_json(stage.now)}
    assert found["failing-requests"]["where"] == {
        "api": "Produce",
        "client": "writer",
        "error": "TOPIC_AUTHORIZATION_FAILED",
        "topic": "t",
    }
    assert found["throttled"]["evidence"] == {"responses": 1, "seconds": 2.5}
    stage.wait(61)
    assert rules(stage) == []


def test_rebalances_that_are_many_or_long() -> None:
    stage = Stage()
    member = Joiner(stage.client("app"))
    for generation in range(1, 6):
        settle(generation, {member: ("m", assignment(t=[0]))})
    stage.wait(0)
    assert rules(stage) == ["rebalances-often"]
    beat(stage, member, 310)
    assert rules(stage) == []
    member.ask_join()
    stage.wait(59)
    assert rules(stage) == []
    stage.wait(0.5)
    stage.observer.findings.tick(stage.now + 1, lambda *_, **__: None)
    assert rules(stage) == ["long-rebalance"]


def test_errors_that_belong_to_the_protocol_are_no_findings() -> None:
    stage = Stage()
    member = Joiner(stage.client("app"))
    member.first("m")
    settle(1, {member: ("m", assignment(t=[0]))})
    member.heartbeat(error=27)
    stage.wait(1)
    assert rules(stage) == []


def test_a_broker_that_cannot_be_reached_is_named_also_in_the_table() -> None:
    """The table said only that there is no group yet, while each client was turned away."""
    stage = Stage()
    stage.put(events.Opened(1, stage.now, "10.0.0.1:50001", "localhost:9999"))
    reason = "no connection to localhost:9999: connection refused"
    stage.put(events.Closed(1, stage.now, reason, "localhost:9999"))
    stage.wait(1)
    (found,) = stage.observer.findings.to_json(stage.now)
    assert (found["rule"], found["severity"]) == ("broker-unreachable", "error")
    assert found["cause"] == f"Clients are turned away: {reason}."
    assert found["where"] == {"broker": "localhost:9999"} and found["evidence"]["count"] == 1
    snapshot = {**stage.observer.snapshot(stage.now), "timeline": [], "clients": [], "backlog": 0}
    console = Console(width=80, height=24, file=io.StringIO())
    console.print(render(snapshot, console, ["127.0.0.1:29093"]))
    assert "connection refused" in " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    stage.wait(61)
    assert rules(stage) == []

"""KIP-848 groups, from crafted heartbeats: null means unchanged."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.unit.tap.stage import Client, Joiner, Stage, assignment, settle, subscription

T = uuid.UUID("12345678-1234-1234-1234-123456789abc")


def topics(partitions: list[int] | None) -> Any:
    return None if partitions is None else [{"TopicId": T, "Partitions": partitions}] if partitions else []


def beat(
    client: Client,
    member: str,
    epoch: int,
    answer: int,
    given: list[int] | None = None,
    owned: list[int] | None = None,
    error: int = 0,
    version: int = 1,
    chosen_id: str | None = None,
    **request: Any,
) -> None:
    client.call(
        "ConsumerGroupHeartbeat",
        version,
        {
            "GroupId": "g",
            "MemberId": member,
            "MemberEpoch": epoch,
            "TopicPartitions": topics(owned),
            **request,
        },
        {
            "ErrorCode": error,
            "MemberId": chosen_id if chosen_id is not None else member,
            "MemberEpoch": answer,
            "HeartbeatIntervalMs": 5000,
            "Assignment": None if given is None else {"TopicPartitions": topics(given)},
        },
    )


def join(client: Client, member: str, epoch: int, given: list[int] | None, **request: Any) -> None:
    beat(
        client,
        member,
        0,
        epoch,
        given,
        [],
        RebalanceTimeoutMs=300_000,
        **{"SubscribedTopicNames": ["t"], **request},
    )


def owners(stage: Stage) -> dict[str, Any]:
    return {member["member"]: member["partitions"] for member in stage.group()["members"]}


def one(stage: Stage) -> Client:
    client = stage.client("a", ("librdkafka", "2.16.0"))
    stage.topic(client, "t", 4, T)
    join(client, "ma", 1, [0, 1, 2, 3])
    beat(client, "ma", 1, 1, None, [0, 1, 2, 3])
    return client


def test_one_member() -> None:
    stage = Stage()
    one(stage)
    group = stage.group()
    assert (group["kind"], group["state"], group["generation"], group["path"]) == (
        "consumer",
        "Stable",
        1,
        "heartbeat",
    )
    assert owners(stage) == {"ma": {"t": [0, 1, 2, 3]}} and group["members"][0]["subscription"] == ["t"]
    assert [each["trigger"] for each in stage.timeline()] == ["new member"]


def test_nulls_change_nothing() -> None:
    stage = Stage()
    client = one(stage)
    before = stage.group()["members"]
    stage.wait(5)
    beat(client, "ma", 1, 1)
    after = stage.group()["members"]
    assert [{**each, "last_seen": 0} for each in before] == [{**each, "last_seen": 0} for each in after]


def test_a_topic_id_becomes_a_name_once_a_response_tells_it() -> None:
    stage = Stage()
    client = stage.client("a")
    join(client, "ma", 1, [0])
    assert owners(stage) == {"ma": {"EjRWeBI0EjQSNBI0VniavA": [0]}}
    stage.topic(client, "t", 1, T)
    assert owners(stage) == {"ma": {"t": [0]}}


def test_create_topics_responses_tell_names_too() -> None:
    stage = Stage()
    client = stage.client("a")
    join(client, "ma", 1, [0])
    client.call(
        "CreateTopics", 7, {"Topics": []}, {"Topics": [{"Name": "t", "TopicId": T, "NumPartitions": 2}]}
    )
    assert owners(stage) == {"ma": {"t": [0]}} and stage.observer.topics.count("t") == 2


def test_a_member_joins_and_the_first_gives_up_partitions() -> None:
    stage = Stage()
    a = one(stage)
    b = stage.client("b")
    stage.now += 1
    join(b, "mb", 2, [])
    assert stage.group()["state"] == "Reconciling"
    beat(a, "ma", 1, 1, [0, 1])
    stage.now += 0.5
    beat(a, "ma", 1, 2, None, [0, 1])
    assert stage.group()["state"] == "Reconciling", "the coordinator has partitions left for b"
    beat(b, "mb", 2, 2, [2, 3])
    beat(b, "mb", 2, 2, None, [2, 3])
    stage.wait(0)
    group = stage.group()
    assert group["state"] == "Stable" and not group["anomalies"]
    assert owners(stage) == {"ma": {"t": [0, 1]}, "mb": {"t": [2, 3]}}
    assert [(each["trigger"], each["client_id"]) for each in stage.timeline()] == [
        ("new member", "a"),
        ("new member", "b"),
    ]


def test_the_broker_chooses_the_ids_of_version_0_members() -> None:
    stage = Stage()
    client = stage.client("a")
    beat(client, "", 0, 1, [0], [], version=0, chosen_id="broker-made", SubscribedTopicNames=["t"])
    assert set(owners(stage)) == {"broker-made"}


def test_leave_and_static_leave() -> None:
    stage = Stage()
    a, b = one(stage), stage.client("b")
    join(b, "mb", 2, [], InstanceId="i")
    beat(b, "mb", -2, -2)
    assert {each["member"]: each["status"] for each in stage.group()["members"]}["mb"] == "disconnected"
    again = stage.client("b")
    join(again, "mc", 2, [2, 3], InstanceId="i")
    assert set(owners(stage)) == {"ma", "mc"} and stage.group()["gone"][-1]["how"] == "replaced"
    beat(again, "mc", -1, -1)
    assert set(owners(stage)) == {"ma"} and stage.group()["gone"][-1]["how"] == "left"
    assert stage.timeline()[-1]["trigger"] == "leave"
    beat(a, "ma", -1, -1)
    assert stage.group()["state"] == "Empty"


@pytest.mark.parametrize("error", [25, 82, 110])
def test_a_fenced_member_loses_its_partitions(error: int) -> None:
    stage = Stage()
    client = one(stage)
    beat(client, "ma", 1, 0, error=error)
    assert owners(stage) == {} and stage.group()["gone"][-1]["how"] == "expelled"
    join(client, "ma", 3, [0])
    assert owners(stage) == {"ma": {"t": [0]}}


def test_other_errors_change_nothing() -> None:
    stage = Stage()
    client = one(stage)
    beat(client, "ma", 1, 0, error=16)
    assert owners(stage) == {"ma": {"t": [0, 1, 2, 3]}}


def test_a_changed_subscription_and_a_pattern() -> None:
    stage = Stage()
    client = one(stage)
    beat(client, "ma", 1, 2, SubscribedTopicNames=["t", "u"])
    assert stage.timeline()[-1]["trigger"] == "subscription change"
    beat(client, "ma", 2, 3, SubscribedTopicRegex="t.*")
    assert stage.group()["members"][0]["pattern"] == "t.*"


def test_a_member_times_out() -> None:
    stage = Stage()
    a, b = one(stage), stage.client("b")
    join(b, "mb", 2, [])
    beat(a, "ma", 1, 2, None, [0, 1, 2, 3])
    b.close()
    for _ in range(10):
        stage.wait(4.6)
        beat(a, "ma", 2, 2)
    assert set(owners(stage)) == {"ma"} and stage.group()["gone"][-1]["how"] == "probably timed out"
    beat(a, "ma", 2, 3)
    assert stage.timeline()[-1]["trigger"] == "session expired"


def test_a_member_that_is_fenced_though_it_was_heard_has_not_timed_out() -> None:
    """The coordinator fences one that does not give up partitions in time, too: nothing tells which it was."""
    stage = Stage()
    a, b = one(stage), stage.client("b")
    join(b, "mb", 2, [])
    beat(a, "ma", 1, 2, None, [0, 1])
    beat(b, "mb", 2, 2, [2, 3])
    stage.wait(5)
    beat(a, "ma", 2, 3)
    beat(b, "mb", 2, 0, error=25)
    entry = stage.timeline()[-1]
    assert (entry["trigger"], entry["left"]) == ("unknown", ["mb"])


def test_more_partitions_bump_the_epoch() -> None:
    stage = Stage()
    client = one(stage)
    stage.topic(client, "t", 5, T)
    beat(client, "ma", 1, 2, [0, 1, 2, 3, 4])
    assert stage.timeline()[-1]["trigger"] == "metadata change" and stage.group()["state"] == "Stable"
    beat(client, "ma", 2, 2, None, [0, 1, 2, 3, 4])
    assert stage.group()["state"] == "Stable"


def test_different_server_assignors() -> None:
    stage = Stage()
    a, b = stage.client("a"), stage.client("b")
    join(a, "ma", 1, [0], ServerAssignor="uniform")
    join(b, "mb", 1, [1], ServerAssignor="range")
    beat(a, "ma", 1, 1, None, [0])
    beat(b, "mb", 1, 1, None, [1])
    stage.wait(0)
    assert [each["kind"] for each in stage.group()["anomalies"]] == ["mixed assignors"]


def test_a_leave_is_the_cause_of_the_epoch_that_follows() -> None:
    stage = Stage()
    a, b = one(stage), stage.client("b")
    join(b, "mb", 2, [])
    beat(a, "ma", 1, 1, [0, 1])
    beat(a, "ma", 1, 2, None, [0, 1])
    beat(b, "mb", 2, 2, [2, 3])
    assert stage.group()["state"] == "Stable"
    stage.now += 3
    beat(b, "mb", -1, -1)
    assert stage.group()["state"] == "Reconciling", "the response does not tell the new epoch"
    stage.now += 1
    beat(a, "ma", 2, 3, [0, 1, 2, 3])
    last = stage.timeline()[-1]
    assert (last["trigger"], last["client_id"], last["seconds"], last["generation"]) == ("leave", "b", 1.0, 3)
    assert stage.group()["state"] == "Stable" and len(stage.timeline()) == 3


def test_a_finished_rebalance_does_not_change_any_more() -> None:
    stage = Stage()
    client = one(stage)
    before = stage.timeline()
    for _ in range(3):
        stage.now += 5
        beat(client, "ma", 1, 1, None, [0, 1, 2, 3])
    assert stage.timeline() == before


def test_the_wait_for_partitions_that_nobody_gets_ends() -> None:
    stage = Stage()
    client = one(stage)
    beat(client, "ma", 1, 2, [0, 1], SubscribedTopicNames=["t"])  # a member elsewhere gets the others
    assert stage.group()["state"] == "Reconciling"
    for _ in range(3):
        stage.wait(5)
        beat(client, "ma", 2, 2)
    stage.wait(0)
    group = stage.group()
    assert group["state"] == "Stable"
    assert [each["kind"] for each in group["anomalies"]] == ["partitions of members elsewhere"]


def test_a_group_that_migrates_loses_its_assignor() -> None:
    stage = Stage()
    old = Joiner(
        stage.client("old"), Protocols=[{"Name": "cooperative-sticky", "Metadata": subscription("t")}]
    )
    settle(1, {old: ("m", assignment(t=[0, 1]))})
    assert stage.group()["protocol_name"] == "cooperative-sticky"
    new = stage.client("new")
    join(new, "mn", 2, [])
    group = stage.group()
    assert (group["kind"], group["type"], group["protocol_name"]) == ("consumer", "consumer", None)
    asked = old.ask_join()
    old.joined(asked, 2, "m", "m", ["m"])
    group = stage.group()
    assert (group["kind"], group["protocol_name"]) == ("consumer", None), "a classic member joins it again"


@pytest.mark.parametrize("told", [None, [0, 1]])
def test_a_member_that_was_only_taken_for_timed_out_has_what_it_had(told: list[int] | None) -> None:
    """A coordinator that was away counts the sessions anew, and tells its members nothing that has not changed."""
    stage = Stage()
    a, b = one(stage), stage.client("b")
    join(b, "mb", 2, [])
    beat(a, "ma", 1, 2, [0, 1], [0, 1, 2, 3])
    beat(b, "mb", 2, 2, [2, 3])
    beat(a, "ma", 2, 2, None, [0, 1])
    beat(b, "mb", 2, 2, None, [2, 3])
    stage.wait(60)
    assert (stage.group()["state"], owners(stage)) == ("Empty", {})
    stage.events.clear()
    beat(a, "ma", 2, 2, told, told)
    beat(b, "mb", 2, 2)
    group = stage.group()
    assert (group["state"], owners(stage)) == ("Stable", {"ma": {"t": [0, 1]}, "mb": {"t": [2, 3]}})
    assert group["gone"] == [] and group["anomalies"] == []
    assert group["members"][0]["subscription"] == ["t"]
    assert [each["member"] for each in stage.events if each["event"] == "member.joined"] == ["ma", "mb"]


def test_a_member_that_joins_again_has_nothing_of_its_last_time() -> None:
    stage = Stage()
    a = one(stage)
    stage.wait(60)
    join(a, "ma", 2, [])
    assert owners(stage) == {"ma": {}} and len(stage.group()["gone"]) == 1

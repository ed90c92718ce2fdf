"""Classic groups, from crafted frames."""

from __future__ import annotations

import pytest

from tests.unit.tap.stage import Joiner, Stage, assignment, settle, subscription


def two(stage: Stage) -> tuple[Joiner, Joiner]:
    """Make a stable group of two members."""
    a = Joiner(stage.client("a", ("librdkafka", "2.16.0")))
    b = Joiner(stage.client("b"))
    stage.topic(a.client, "t", 4)
    settle(1, {a: ("ma", assignment(t=[0, 1])), b: ("mb", assignment(t=[2, 3]))})
    stage.wait(1)
    return a, b


def owners(stage: Stage) -> dict[str, object]:
    return {member["member"]: member["partitions"] for member in stage.group()["members"]}


@pytest.mark.parametrize("sync", range(6))
@pytest.mark.parametrize("join", range(10))
def test_every_version_is_understood(join: int, sync: int) -> None:
    stage = Stage()
    member = Joiner(stage.client("app", ("java", "4.1")), join=join, sync=sync)
    if join >= 4:
        member.first("m1")
    asked = member.ask_join()
    said = {"ProtocolType": "consumer"} if join >= 7 else {}
    member.joined(asked, 3, "m1", "m1", ["m1"], **said)
    group = stage.group()
    assert group["path"] == ("stateless" if join >= 7 else "learnt")
    assert (group["state"], group["generation"], group["protocol_name"]) == (
        "CompletingRebalance",
        3,
        "range",
    )
    said = {"ProtocolType": "consumer", "ProtocolName": "range"} if sync >= 5 else {}
    given = assignment(t=[0, 1], u=[5])
    member.synced(member.ask_sync({"m1": given}, **said), given, **said)
    group = stage.group()
    found = group["members"][0]
    assert group["state"] == "Stable" and found["partitions"] == {"t": [0, 1], "u": [5]}
    assert found["path"] == group["path"] == ("stateless" if sync >= 5 else "learnt")
    assert found["subscription"] == ["t"] and found["status"] == "stable"
    assert (found["client_id"], found["software"], found["host"]) == ("app", "java 4.1", "10.0.0.1:50001")


def test_a_null_protocol_type_is_taken_from_the_request() -> None:
    """Null is legal in JoinGroup v7 and SyncGroup v5 (apache/kafka#14800)."""
    stage = Stage()
    member = Joiner(stage.client(), join=7, sync=5)
    member.joined(member.ask_join(), 1, "m", "m", ["m"], ProtocolType=None, ProtocolName=None)
    given = assignment(t=[0])
    member.synced(member.ask_sync({"m": given}, ProtocolType=None, ProtocolName=None), given)
    assert stage.group()["path"] == "learnt" and owners(stage) == {"m": {"t": [0]}}


def test_sync_v5_alone_is_enough() -> None:
    """KIP-559 exists for this case: the tap has seen no JoinGroup."""
    stage = Stage()
    member = Joiner(stage.client(), sync=5)
    member.member_id, member.generation = "m", 4
    said = {"ProtocolType": "consumer", "ProtocolName": "range"}
    member.synced(member.ask_sync(None, **said), assignment(t=[2]), **said)
    assert owners(stage) == {"m": {"t": [2]}} and stage.group()["path"] == "stateless"


def test_partitions_stay_unknown_in_sync_v3_without_its_join() -> None:
    stage = Stage()
    member = Joiner(stage.client())
    member.member_id, member.generation = "m", 4
    member.synced(member.ask_sync(), assignment(t=[2]))
    assert owners(stage) == {"m": None} and stage.group()["members"][0]["path"] == "unknown"


def test_other_protocol_types_stay_opaque() -> None:
    stage = Stage()
    member = Joiner(
        stage.client(), ProtocolType="connect", Protocols=[{"Name": "sessioned", "Metadata": b"\0\2xyz"}]
    )
    member.joined(member.ask_join(), 1, "m", "m", [])
    member.synced(member.ask_sync({"m": b"\0\1opaque"}), b"\0\1opaque")
    group = stage.group()
    assert group["protocol_type"] == "connect" and owners(stage) == {"m": None} and group["state"] == "Stable"
    assert not stage.observer.counts["undecodable"]


def test_metadata_in_a_foreign_format_is_ignored() -> None:
    stage = Stage()
    member = Joiner(stage.client(), Protocols=[{"Name": "own", "Metadata": b"{json}"}])
    member.joined(member.ask_join(), 1, "m", "m", [])
    member.synced(member.ask_sync({"m": b"\xff"}), b"\xff")
    assert owners(stage) == {"m": None} and not stage.observer.counts["defects"]


def test_the_leaders_list_names_members_that_are_elsewhere() -> None:
    stage = Stage()
    member = Joiner(stage.client())
    member.joined(member.ask_join(), 1, "m", "m", ["m", "far"])
    given = assignment(t=[0])
    member.synced(member.ask_sync({"m": given, "far": assignment(t=[1])}), given)
    group = stage.group()
    assert owners(stage) == {"m": {"t": [0]}, "far": {"t": [1]}}
    assert {each["member"]: each["status"] for each in group["members"]} == {
        "m": "stable",
        "far": "elsewhere",
    }
    stage.wait(3600)
    assert "far" in owners(stage), "its last request did not pass through the tap"


def test_a_third_member_joins() -> None:
    stage = Stage()
    a, b = two(stage)
    c = Joiner(stage.client("c"), join=8, Reason="because")
    c.first("mc")
    assert stage.group()["state"] == "Stable", "requesting an id does not start a rebalance"
    asked = c.ask_join()
    assert stage.group()["state"] == "PreparingRebalance"
    stage.now += 0.25
    a.heartbeat(27)
    b.heartbeat(27)
    again = {each: each.ask_join() for each in (a, b)}
    a.joined(again[a], 2, "ma", "ma", ["ma", "mb", "mc"])
    b.joined(again[b], 2, "mb", "ma")
    c.joined(asked, 2, "mc", "ma")
    plan = {"ma": assignment(t=[0]), "mb": assignment(t=[1]), "mc": assignment(t=[2, 3])}
    for each in (b, c, a):
        each.synced(each.ask_sync(plan if each is a else None), plan[each.member_id])
    assert owners(stage) == {"ma": {"t": [0]}, "mb": {"t": [1]}, "mc": {"t": [2, 3]}}
    entry = stage.timeline()[-1]
    assert (entry["trigger"], entry["member"], entry["client_id"], entry["reason"]) == (
        "new member",
        "mc",
        "c",
        "because",
    )
    assert (entry["generation_before"], entry["generation"], entry["seconds"], entry["joined"]) == (
        1,
        2,
        0.25,
        ["mc"],
    )
    assert [each["client_id"] for each in stage.told("member.joined")] == ["a", "b", "c"]


def test_a_member_leaves() -> None:
    stage = Stage()
    a, b = two(stage)
    b.leave(Reason="the consumer is being closed")
    assert [(each["member"], each["how"]) for each in stage.group()["gone"]] == [("mb", "left")]
    a.heartbeat(27)
    stage.now += 1
    settle(2, {a: ("ma", assignment(t=[0, 1, 2, 3]))})
    entry = stage.timeline()[-1]
    assert (entry["trigger"], entry["member"], entry["reason"], entry["left"]) == (
        "leave",
        "mb",
        "the consumer is being closed",
        ["mb"],
    )
    assert owners(stage) == {"ma": {"t": [0, 1, 2, 3]}}
    a.leave()
    assert stage.group()["state"] == "Empty"


def test_a_refused_leave_changes_nothing() -> None:
    stage = Stage()
    a, _ = two(stage)
    a.client.call(
        "LeaveGroup",
        4,
        {"GroupId": "g", "Members": [{"MemberId": "mb"}]},
        {
            "Members": [{"MemberId": "mb", "GroupInstanceId": None, "ErrorCode": 25}],
        },
    )
    a.client.call("LeaveGroup", 1, {"GroupId": "g", "MemberId": "mb"}, {"ErrorCode": 25})
    assert set(owners(stage)) == {"ma", "mb"}
    a.client.call("LeaveGroup", 1, {"GroupId": "g", "MemberId": "mb"}, {})
    assert set(owners(stage)) == {"ma"}


def test_a_dead_connection_then_a_session_timeout() -> None:
    stage = Stage()
    a, b = two(stage)
    b.client.close("connection reset by peer")
    assert {each["member"]: each["status"] for each in stage.group()["members"]} == {
        "ma": "stable",
        "mb": "disconnected",
    }
    for _ in range(4):
        stage.wait(2.2)
        a.heartbeat()
    assert set(owners(stage)) == {"ma", "mb"}
    a.heartbeat(27)  # the coordinator's clock started before the tap's
    assert (
        stage.timeline()[-1]["trigger"] == "heartbeat expiration" and stage.timeline()[-1]["member"] == "mb"
    )
    settle(2, {a: ("ma", assignment(t=[0, 1, 2, 3]))})
    assert [(each["member"], each["how"]) for each in stage.group()["gone"]] == [
        ("mb", "not in the next generation")
    ]


def test_a_silent_member_times_out() -> None:
    stage = Stage()
    a, _ = two(stage)
    for _ in range(5):
        stage.wait(2.5)
        a.heartbeat()
    assert [(each["member"], each["how"]) for each in stage.group()["gone"]] == [("mb", "probably timed out")]
    stage.wait(0.5)
    # To the coordinator they are still the silent member's, as far as the tap knows.
    assert stage.group()["anomalies"] == []
    a.heartbeat(27)
    assert stage.timeline()[-1]["trigger"] == "heartbeat expiration"
    settle(2, {a: ("ma", assignment(t=[0, 1]))})
    stage.wait(0.5)
    assert [each["kind"] for each in stage.group()["anomalies"]] == ["unowned partitions"]


@pytest.mark.parametrize("silent", ["one", "both"])
def test_a_member_that_was_only_taken_for_timed_out_has_what_it_had(silent: str) -> None:
    """A coordinator that was away counts the sessions anew, and its members go on in their generation."""
    stage = Stage()
    a, b = two(stage)
    before = owners(stage)
    for _ in range(5):
        stage.wait(2.5)
        if silent == "one":
            a.heartbeat()
    assert set(owners(stage)) == ({"ma"} if silent == "one" else set())
    a.heartbeat()
    b.heartbeat()
    stage.wait(0.5)
    group = stage.group()
    assert owners(stage) == before and group["state"] == "Stable"
    assert group["gone"] == [] and group["anomalies"] == []


def test_a_coordinator_that_goes_in_a_rebalance_leaves_the_group_in_the_generation_before() -> None:
    stage = Stage()
    a, b = two(stage)
    generation = stage.group()["generation"]
    found = stage.observer.registry.group("g")
    found.generation = generation + 1  # of a JoinGroup response; no SyncGroup was answered
    a.heartbeat()
    b.heartbeat()
    stage.wait(0.5)
    assert (stage.group()["generation"], stage.group()["anomalies"]) == (generation, [])


def test_a_member_that_waits_in_join_is_not_timed_out() -> None:
    stage = Stage()
    a, b = two(stage)
    a.ask_join()
    b.ask_join()
    stage.wait(30)
    assert set(owners(stage)) == {"ma", "mb"}
    stage.wait(31)
    assert not owners(stage), "the rebalance timeout is over too"


def test_an_expelled_member() -> None:
    stage = Stage()
    a, b = two(stage)
    b.heartbeat(25)
    assert set(owners(stage)) == {"ma"} and stage.group()["gone"][-1]["how"] == "expelled"
    a.heartbeat(22)
    assert set(owners(stage)) == {"ma"}, "an illegal generation does not expel a member"


def test_a_changed_subscription() -> None:
    stage = Stage()
    a, _ = two(stage)
    a.request["Protocols"] = [{"Name": "range", "Metadata": subscription("t", "u")}]
    a.ask_join()
    assert (stage.timeline()[-1]["trigger"], stage.timeline()[-1]["member"]) == ("subscription change", "ma")


def test_more_partitions() -> None:
    stage = Stage()
    a, _ = two(stage)
    stage.topic(a.client, "t", 6)
    a.ask_join()
    assert stage.timeline()[-1]["trigger"] == "metadata change"


def test_a_cooperative_follow_up() -> None:
    stage = Stage()
    a = Joiner(
        stage.client("a"), join=9, Protocols=[{"Name": "cooperative-sticky", "Metadata": subscription("t")}]
    )
    settle(1, {a: ("ma", assignment(t=[0]))})
    a.request["Reason"] = "need to revoke partitions and re-join"
    a.ask_join()
    entry = stage.timeline()[-1]
    assert (entry["trigger"], entry["reason"]) == (
        "cooperative follow-up",
        "need to revoke partitions and re-join",
    )


def test_a_rebalance_of_unknown_cause() -> None:
    stage = Stage()
    a, _ = two(stage)
    a.heartbeat(27)
    assert stage.timeline()[-1]["trigger"] == "unknown"
    assert len(stage.timeline()) == 2
    a.heartbeat(27)
    assert len(stage.timeline()) == 2


def test_a_member_that_bypasses_the_tap_is_not_said_to_be_silent() -> None:
    stage = Stage()
    a = Joiner(stage.client("a"))
    a.joined(a.ask_join(), 1, "ma", "ma", ["ma", "elsewhere"])
    a.synced(a.ask_sync({"ma": assignment(t=[0])}), assignment(t=[0]))
    a.heartbeat(27)
    settle(2, {a: ("ma", assignment(t=[0, 1]))})
    assert stage.timeline()[-1]["left"] == ["elsewhere"] and stage.timeline()[-1]["trigger"] == "unknown"


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    stage = Stage()
    a = Joiner(stage.client("a"), GroupInstanceId="i")
    settle(1, {a: ("m1", assignment(t=[0]))})
    before = len(stage.timeline())
    again = Joiner(stage.client("a"), GroupInstanceId="i")
    again.joined(again.ask_join(), 1, "m2", "m2")
    again.synced(again.ask_sync(), assignment(t=[0]))
    assert owners(stage) == {"m2": {"t": [0]}} and stage.group()["gone"][-1]["how"] == "replaced"
    assert len(stage.timeline()) == before and stage.group()["state"] == "Stable"


def test_a_member_that_joined_before_the_tap_started() -> None:
    stage = Stage()
    a = Joiner(stage.client("a"))
    a.member_id, a.generation = "ma", 7
    a.heartbeat()
    group = stage.group()
    assert (group["state"], group["generation"]) == ("Stable", 7) and owners(stage) == {"ma": None}
    stage.topic(a.client, "t", 4)
    stage.wait(1)
    assert not group["anomalies"], "the member may own any partition"


def test_mixed_assignors_and_double_owners() -> None:
    stage = Stage()
    a = Joiner(
        stage.client("a"),
        Protocols=[
            {"Name": "range", "Metadata": subscription("t")},
            {"Name": "roundrobin", "Metadata": subscription("t")},
        ],
    )
    b = Joiner(stage.client("b"))
    settle(1, {a: ("ma", assignment(t=[0, 1])), b: ("mb", assignment(t=[1]))})
    stage.wait(1)
    assert [(each["kind"], each["detail"]) for each in stage.group()["anomalies"]] == [
        ("mixed assignors", "range / range, roundrobin"),
        ("partition with two owners", "t-1: ma, mb"),
    ]
    assert {each["kind"] for each in stage.told("anomaly")} == {
        "mixed assignors",
        "partition with two owners",
    }
    b.leave()
    stage.wait(1)
    settle(2, {a: ("ma", assignment(t=[0, 1]))})
    stage.wait(1)
    assert not stage.group()["anomalies"] and len(stage.told("anomaly.over")) == 2


def test_a_split_generation() -> None:
    stage = Stage()
    a, _ = two(stage)
    a.ask_join()
    a.joined(a.client.correlation_id, 2, "ma", "ma", ["ma", "mb"])
    plan = {"ma": assignment(t=[0, 1]), "mb": assignment(t=[2, 3])}
    a.synced(a.ask_sync(plan), plan["ma"])
    stage.observer.registry.group("g").members.get(
        "mb"
    ).generation = 1  # it still commits in the old generation
    stage.wait(1)
    assert [each["kind"] for each in stage.group()["anomalies"]] == ["generation split"]


def test_a_late_response_of_an_earlier_generation_is_ignored() -> None:
    stage = Stage()
    a, b = two(stage)
    late = b.ask_join()
    settle(5, {a: ("ma", assignment(t=[0, 1, 2, 3]))})
    b.joined(late, 4, "mb", "ma")
    assert stage.group()["generation"] == 5 and set(owners(stage)) == {"ma"}


def test_limits_of_groups_and_members() -> None:
    stage = Stage(groups=3, members=2, timeline=4)
    client = stage.client()
    for i in range(10):
        member = Joiner(client, group=f"g{i}")
        member.member_id, member.generation = f"m{i}", 1
        member.heartbeat()
    for i in range(10):
        member = Joiner(client, group="g9")
        member.member_id, member.generation = f"n{i}", 1
        member.heartbeat()
    assert len(stage.observer.snapshot(stage.now)["groups"]) == 3 and len(stage.group("g9")["members"]) == 2
    assert stage.observer.totals()["forgotten"] == {"groups": 7, "members": 9}

"""Share groups, Streams groups and descriptions, from crafted messages; addresses in share responses are hidden."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pixy.wire import frames
from tests.unit.tap.stage import Client, Joiner, Stage, assignment, forward, settle, subscription

T = uuid.UUID("12345678-1234-1234-1234-123456789abc")


def share_beat(client: Client, epoch: int, answer: int, given: list[int] | None = None) -> None:
    assigned = None if given is None else {"TopicPartitions": [{"TopicId": T, "Partitions": given}]}
    client.call(
        "ShareGroupHeartbeat",
        1,
        {
            "GroupId": "g",
            "MemberId": "m",
            "MemberEpoch": epoch,
            "SubscribedTopicNames": None if epoch else ["t"],
        },
        {"MemberId": "m", "MemberEpoch": answer, "HeartbeatIntervalMs": 5000, "Assignment": assigned},
    )


def acknowledge(kinds: list[int], first: int = 0) -> list[dict[str, Any]]:
    last = first + max(len(kinds), 1) - 1
    batches = [{"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": kinds}] if kinds else []
    return [{"TopicId": T, "Partitions": [{"PartitionIndex": 0, "AcknowledgementBatches": batches}]}]


def share_fetched(
    acquired: list[tuple[int, int, int]], *, error: int = 0, leaders: int = 0
) -> dict[str, Any]:
    partition = {
        "PartitionIndex": 0,
        "ErrorCode": error,
        "CurrentLeader": {"LeaderId": 1, "LeaderEpoch": 2},
        "Records": b"r" * 500,
        "AcquiredRecords": [
            {"FirstOffset": first, "LastOffset": last, "DeliveryCount": count}
            for first, last, count in acquired
        ],
    }
    return {
        "Responses": [{"TopicId": T, "Partitions": [partition]}],
        "NodeEndpoints": [{"NodeId": i, "Host": f"kafka-{i}" * 20, "Port": 9092} for i in range(leaders)],
    }


def test_a_share_group_with_acquired_and_acknowledged_records() -> None:
    stage = Stage()
    client = stage.client("worker")
    stage.topic(client, "t", 2, T)
    share_beat(client, 0, 1, [0, 1])
    asked = {"GroupId": "g", "MemberId": "m", "ShareSessionEpoch": 1}
    client.call(
        "ShareFetch", 1, {**asked, "Topics": acknowledge([])}, share_fetched([(0, 9, 1), (10, 11, 2)])
    )
    client.call("ShareFetch", 1, {**asked, "Topics": acknowledge([1, 1, 2, 3])}, share_fetched([]))
    body = {"Responses": [{"TopicId": T, "Partitions": [{"PartitionIndex": 0, "CurrentLeader": {}}]}]}
    client.call("ShareAcknowledge", 1, {**asked, "Topics": acknowledge([1], 4)}, body)
    refused = {
        "Responses": [
            {"TopicId": T, "Partitions": [{"PartitionIndex": 0, "ErrorCode": 121, "CurrentLeader": {}}]}
        ]
    }
    client.call("ShareAcknowledge", 1, {**asked, "Topics": acknowledge([1], 5)}, refused)
    group = stage.group()
    one = group["members"][0]
    assert (group["kind"], group["state"], group["generation"]) == ("share", "Stable", 1)
    assert one["partitions"] == {"t": [0, 1]} and one["subscription"] == ["t"] and one["path"] == "heartbeat"
    assert (one["acquired"], one["redelivered"]) == (12, 2)
    assert one["acknowledged"] == {"accepted": 3, "rejected": 1, "released": 1}
    assert stage.observer.traffic.errors()["errors"][0]["error"] == "INVALID_RECORD_STATE"
    share_beat(client, -1, -1)
    assert stage.group()["state"] == "Empty" and stage.group()["gone"][-1]["how"] == "left"
    assert not stage.observer.counts["defects"]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("step", [0, 1, 7])
@pytest.mark.parametrize("leaders", [0, 1, 3])
@pytest.mark.parametrize("api", ["ShareFetch", "ShareAcknowledge"])
def test_addresses_in_share_responses_are_hidden(version: int, step: int, leaders: int, api: str) -> None:
    stage = Stage()
    client = stage.client(rewrite=lambda *_: None)
    body = share_fetched([(0, 9, 1)], error=6, leaders=leaders)
    if api == "ShareAcknowledge":
        body["Responses"] = [
            {
                "TopicId": T,
                "Partitions": [{"PartitionIndex": 0, "ErrorCode": 6, "CurrentLeader": {"LeaderId": 1}}],
            }
        ]
    number = client.ask(api, version, {"GroupId": "g", "MemberId": "m", "Topics": []})
    sent = frames.encode_response(api, version, number, body)
    got = forward(client.conversation.to_client, sent, step)
    assert len(got) == len(sent) and (got == sent) == (leaders == 0)
    found = frames.decode_response(got[4:], api, version).body
    assert found["NodeEndpoints"] == []
    assert found["Responses"] == frames.decode_response(sent[4:], api, version).body["Responses"]
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})  # still in step
    assert not client.conversation.opaque and client.conversation.counts["hidden"] == (leaders > 0)


def test_a_streams_group() -> None:
    stage = Stage()
    client = stage.client("app")
    tasks = [{"SubtopologyId": "0", "Partitions": [0, 1]}]
    topology = {"Epoch": 1, "Subtopologies": [{"SubtopologyId": "0", "SourceTopics": ["in"]}]}
    client.call(
        "StreamsGroupHeartbeat",
        0,
        {"GroupId": "g", "MemberId": "m", "MemberEpoch": 0, "Topology": topology},
        {
            "MemberId": "m",
            "MemberEpoch": 1,
            "Status": None,
            "ActiveTasks": tasks,
            "StandbyTasks": [],
            "WarmupTasks": [],
        },
    )
    group = stage.group()
    assert (group["kind"], group["state"], group["generation"]) == ("streams", "Stable", 1)
    assert group["members"][0]["partitions"] == {"0": [0, 1]} and group["members"][0]["subscription"] == [
        "in"
    ]
    assert group["members"][0]["standby"] == {} and not group["anomalies"]


def test_a_description_shows_members_that_bypass_the_tap() -> None:
    stage = Stage()
    admin = stage.client("admin")
    member = {
        "MemberId": "m",
        "ClientId": "app",
        "ClientHost": "/10.1.2.3",
        "MemberMetadata": subscription("t"),
        "MemberAssignment": assignment(t=[0, 1]),
    }
    described = {
        "GroupId": "g",
        "GroupState": "Stable",
        "ProtocolType": "consumer",
        "ProtocolData": "range",
        "Members": [member],
    }
    admin.call("DescribeGroups", 5, {"Groups": ["g"]}, {"Groups": [described]})
    group = stage.group()
    assert (group["state"], group["protocol_name"], group["coordinator"]["state"]) == (
        "Stable",
        "range",
        "Stable",
    )
    one = group["members"][0]
    assert (one["client_id"], one["host"], one["path"], one["status"]) == (
        "app",
        "10.1.2.3",
        "described",
        "elsewhere",
    )
    assert one["partitions"] == {"t": [0, 1]}


def test_a_description_of_a_kip_848_group_names_topics_and_assignor() -> None:
    stage = Stage()
    assigned = {"TopicPartitions": [{"TopicId": T, "TopicName": "t", "Partitions": [0]}]}
    member = {
        "MemberId": "m",
        "MemberEpoch": 4,
        "ClientId": "app",
        "ClientHost": "/10.1.2.3",
        "SubscribedTopicNames": ["t"],
        "Assignment": assigned,
        "TargetAssignment": assigned,
    }
    described = {
        "GroupId": "g",
        "GroupState": "Reconciling",
        "GroupEpoch": 4,
        "AssignmentEpoch": 4,
        "AssignorName": "uniform",
        "Members": [member],
    }
    stage.client().call("ConsumerGroupDescribe", 0, {"GroupIds": ["g"]}, {"Groups": [described]})
    group = stage.group()
    assert (group["kind"], group["state"], group["protocol_name"]) == ("consumer", "Reconciling", "uniform")
    assert group["members"][0]["partitions"] == {"t": [0]}


def test_a_described_group_that_is_dead_is_forgotten() -> None:
    stage = Stage()
    member = Joiner(stage.client())
    settle(1, {member: ("m", assignment(t=[0]))})
    dead = {"GroupId": "g", "GroupState": "Dead", "ProtocolType": "", "ProtocolData": "", "Members": []}
    member.client.call("DescribeGroups", 5, {"Groups": ["g"]}, {"Groups": [dead]})
    assert stage.group(), "it has a member, whose requests pass through the tap"
    member.leave()
    member.client.call("DescribeGroups", 5, {"Groups": ["g"]}, {"Groups": [dead]})
    assert stage.group() == {} and stage.told("group.deleted")


def test_a_connect_group_has_its_own_type() -> None:
    stage = Stage()
    worker = Joiner(
        stage.client("connect-1"), ProtocolType="connect", Protocols=[{"Name": "sessioned", "Metadata": b""}]
    )
    settle(1, {worker: ("m", b"")})
    group = stage.group()
    assert (group["type"], group["protocol_type"], group["state"]) == ("connect", "connect", "Stable")

"""Messages: known bytes, differences between versions, defaults, tags, and the table of schemas."""

from __future__ import annotations

import doctest
import uuid
from pathlib import Path
from typing import Any

import pytest

from pixy.wire import messages, schema
from pixy.wire.exceptions import DecodeError
from tests.unit.wire import bodies

ROOT = Path(__file__).resolve().parents[3]

JOIN = {
    "GroupId": "g",
    "SessionTimeoutMs": 10_000,
    "RebalanceTimeoutMs": 300_000,
    "MemberId": "",
    "GroupInstanceId": None,
    "ProtocolType": "consumer",
    "Protocols": [{"Name": "range", "Metadata": b"\1\2"}],
}
# Written by hand from the layouts of KIP-559, KIP-482 and Kafka's documentation.
KNOWN: list[tuple[str, int, dict[str, Any], str]] = [
    (
        "JoinGroupRequest",
        0,
        {k: v for k, v in JOIN.items() if k not in ("RebalanceTimeoutMs", "GroupInstanceId")},
        "0001 67 00002710 0000 0008 636f6e73756d6572 00000001 0005 72616e6765 00000002 0102",
    ),
    (
        "JoinGroupRequest",
        5,
        JOIN,
        "0001 67 00002710 000493e0 0000 ffff 0008 636f6e73756d6572 00000001 0005 72616e6765 00000002 0102",
    ),
    (
        "JoinGroupRequest",
        7,
        JOIN,
        "02 67 00002710 000493e0 01 00 09 636f6e73756d6572 02 06 72616e6765 03 0102 00 00",
    ),
    (
        "JoinGroupRequest",
        9,
        {**JOIN, "Reason": "why"},
        "02 67 00002710 000493e0 01 00 09 636f6e73756d6572 02 06 72616e6765 03 0102 00 04 776879 00",
    ),
    (
        "JoinGroupResponse",
        7,
        {
            "ThrottleTimeMs": 0,
            "ErrorCode": 0,
            "GenerationId": 3,
            "ProtocolType": "consumer",
            "ProtocolName": None,
            "Leader": "m",
            "MemberId": "m",
            "Members": [{"MemberId": "m", "GroupInstanceId": None, "Metadata": b""}],
        },
        "00000000 0000 00000003 09 636f6e73756d6572 00 02 6d 02 6d 02 02 6d 00 01 00 00",
    ),
    (
        "SyncGroupRequest",
        5,
        {
            "GroupId": "g",
            "GenerationId": 3,
            "MemberId": "m",
            "GroupInstanceId": None,
            "ProtocolType": "consumer",
            "ProtocolName": "range",
            "Assignments": [],
        },
        "02 67 00000003 02 6d 00 09 636f6e73756d6572 06 72616e6765 01 00",
    ),
    (
        "SyncGroupResponse",
        5,
        {
            "ThrottleTimeMs": 0,
            "ErrorCode": 27,
            "ProtocolType": None,
            "ProtocolName": None,
            "Assignment": b"",
        },
        "00000000 001b 00 00 01 00",
    ),
    (
        "ApiVersionsResponse",
        1,
        {
            "ErrorCode": 0,
            "ApiKeys": [{"ApiKey": 18, "MinVersion": 0, "MaxVersion": 4}],
            "ThrottleTimeMs": 5,
        },
        "0000 00000001 0012 0000 0004 00000005",
    ),
    (
        "ApiVersionsResponse",
        3,
        {
            "ErrorCode": 0,
            "ApiKeys": [{"ApiKey": 18, "MinVersion": 0, "MaxVersion": 4}],
            "ThrottleTimeMs": 0,
            "SupportedFeatures": [],
            "FinalizedFeaturesEpoch": 9,
            "FinalizedFeatures": [],
            "ZkMigrationReady": False,
        },
        "0000 02 0012 0000 0004 00 00000000 01 01 08 0000000000000009",
    ),
    (
        "ConsumerGroupHeartbeatResponse",
        0,
        {
            "ThrottleTimeMs": 0,
            "ErrorCode": 0,
            "ErrorMessage": None,
            "MemberId": "m",
            "MemberEpoch": 1,
            "HeartbeatIntervalMs": 5000,
            "Assignment": {
                "TopicPartitions": [
                    {
                        "TopicId": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
                        "Partitions": [0, 2],
                    }
                ]
            },
        },
        "00000000 0000 00 02 6d 00000001 00001388 01 02 00112233445566778899aabbccddeeff 03 00000000 00000002 00 00 00",
    ),
    (
        "ConsumerGroupHeartbeatResponse",
        0,
        {
            "ThrottleTimeMs": 0,
            "ErrorCode": 0,
            "ErrorMessage": None,
            "MemberId": None,
            "MemberEpoch": 1,
            "HeartbeatIntervalMs": 5000,
            "Assignment": None,
        },
        "00000000 0000 00 00 00000001 00001388 ff 00",
    ),
    ("SaslHandshakeRequest", 1, {"Mechanism": "PLAIN"}, "0005 504c41494e"),
    (
        "FetchRequest",
        18,
        {
            "ClusterId": "c",
            "ReplicaState": {"ReplicaId": 1, "ReplicaEpoch": -1},
            "MaxWaitMs": 1,
            "MinBytes": 2,
            "MaxBytes": 3,
            "IsolationLevel": 1,
            "SessionId": 0,
            "SessionEpoch": -1,
            "Topics": [],
            "ForgottenTopicsData": [],
            "RackId": "",
        },
        "00000001 00000002 00000003 01 00000000 ffffffff 01 01 01 02 00 02 02 63 01 0d 00000001 ffffffffffffffff 00",
    ),
]


@pytest.mark.parametrize(("name", "version", "body", "data"), KNOWN, ids=[f"{n}-{v}" for n, v, _, _ in KNOWN])
def test_known_bytes(name: str, version: int, body: dict[str, Any], data: str) -> None:
    assert messages.encode(name, version, body).hex(" ") == bytes.fromhex(data).hex(" ")
    found = messages.decode(name, version, bytes.fromhex(data))
    assert found == body and list(found) == list(body)
    for form in (bytearray, memoryview):
        assert messages.decode(name, version, form(b"??" + bytes.fromhex(data)), 2) == body


def test_the_examples_in_the_docstring() -> None:
    assert doctest.testmod(messages).failed == 0


@pytest.mark.parametrize(
    ("name", "first", "last", "flexible"),
    [
        ("Produce", 0, 13, 9),
        ("Fetch", 0, 18, 12),
        ("ListOffsets", 0, 11, 6),
        ("Metadata", 0, 13, 9),
        ("OffsetCommit", 0, 10, 8),
        ("OffsetFetch", 0, 10, 6),
        ("FindCoordinator", 0, 6, 3),
        ("JoinGroup", 0, 9, 6),
        ("Heartbeat", 0, 4, 4),
        ("LeaveGroup", 0, 5, 4),
        ("SyncGroup", 0, 5, 4),
        ("ApiVersions", 0, 4, 3),
        ("CreateTopics", 0, 7, 5),
        ("DeleteTopics", 0, 6, 4),
        ("DescribeGroups", 0, 6, 5),
        ("ListGroups", 0, 5, 3),
        ("InitProducerId", 0, 6, 2),
        ("SaslAuthenticate", 0, 2, 2),
        ("SaslHandshake", 0, 1, None),
        ("OffsetDelete", 0, 0, None),
        ("ConsumerGroupHeartbeat", 0, 1, 0),
        ("ConsumerGroupDescribe", 0, 1, 0),
        ("ControlledShutdown", 0, 3, 3),
    ],
)
def test_versions(name: str, first: int, last: int, flexible: int | None) -> None:
    for end in ("Request", "Response"):
        assert list(messages.versions(f"{name}{end}")) == list(range(first, last + 1))
        assert messages.first_flexible(f"{name}{end}") == flexible
    key = messages.api_key(name)
    assert key is not None and key == messages.api_key(f"{name}Response")
    assert (messages.request_name(key), messages.response_name(key)) == (f"{name}Request", f"{name}Response")


@pytest.mark.parametrize(
    ("name", "version", "request_header", "response_header"),
    [
        ("JoinGroup", 0, 1, 0),
        ("JoinGroup", 5, 1, 0),
        ("JoinGroup", 6, 2, 1),
        ("JoinGroup", 9, 2, 1),
        ("ApiVersions", 2, 1, 0),
        ("ApiVersions", 3, 2, 0),
        ("ApiVersions", 4, 2, 0),
        ("ControlledShutdown", 0, 0, 0),
        ("ControlledShutdown", 1, 1, 0),
        ("ControlledShutdown", 3, 2, 1),
        ("SaslHandshake", 1, 1, 0),
        ("ConsumerGroupHeartbeat", 1, 2, 1),
    ],
)
def test_header_versions(name: str, version: int, request_header: int, response_header: int) -> None:
    key = messages.api_key(name)
    assert key is not None
    assert messages.request_header_version(key, version) == request_header
    assert messages.response_header_version(key, version) == response_header


def test_a_client_id_is_never_compact() -> None:
    header = {"RequestApiKey": 11, "RequestApiVersion": 7, "CorrelationId": 1, "ClientId": "c"}
    assert messages.encode("RequestHeader", 2, header).hex(" ") == "00 0b 00 07 00 00 00 01 00 01 63 00"


def test_the_newer_name_of_a_key() -> None:
    assert messages.api_name(74) == "ListConfigResources"
    assert messages.api_key("ListClientMetricsResourcesRequest") == 74


# -- defaults, tags ---------------------------------------------------------------------------------


def test_missing_fields_get_their_defaults() -> None:
    for name, version in bodies.ALL:
        full = messages.defaults(name, version)
        assert messages.encode(name, version, {}) == messages.encode(name, version, full)
        assert messages.decode(name, version, messages.encode(name, version, {})) == full
    assert messages.defaults("FetchRequest", 4)["MaxBytes"] == 0x7FFFFFFF
    assert messages.defaults("JoinGroupRequest", 9)["Reason"] is None
    assert messages.defaults("MetadataRequest", 4)["AllowAutoTopicCreation"] is True


def test_defaults_are_not_shared() -> None:
    messages.defaults("JoinGroupRequest", 9)["Protocols"].append("x")
    assert messages.defaults("JoinGroupRequest", 9)["Protocols"] == []
    data = messages.encode("FetchResponse", 13, {"Responses": [{"Partitions": [{}]}]})
    one = messages.decode("FetchResponse", 13, data)
    one["Responses"][0]["Partitions"][0]["CurrentLeader"]["LeaderId"] = 5
    assert (
        messages.decode("FetchResponse", 13, data)["Responses"][0]["Partitions"][0]["CurrentLeader"][
            "LeaderId"
        ]
        == -1
    )


def test_other_types_for_values_are_accepted() -> None:
    body = {
        "GroupId": "g",
        "Protocols": (
            {"Name": "n", "Metadata": bytearray(b"m")},
            {"Name": "o", "Metadata": memoryview(b"p")},
        ),
    }
    found = messages.decode("JoinGroupRequest", 9, messages.encode("JoinGroupRequest", 9, body))
    assert found["Protocols"] == [{"Name": "n", "Metadata": b"m"}, {"Name": "o", "Metadata": b"p"}]


def test_unknown_tagged_fields_are_kept() -> None:
    body = {
        "GroupId": "g",
        "Protocols": [{"Name": "n", "_tags": {0: b"", 300: b"x" * 200}}],
        "_tags": {7: b"7", 2: b"2"},
    }
    data = messages.encode("JoinGroupRequest", 7, body)
    assert data.endswith(bytes.fromhex("02 02 01 32 07 01 37"))  # in ascending order
    found = messages.decode("JoinGroupRequest", 7, data)
    assert found["_tags"] == {2: b"2", 7: b"7"} and found["Protocols"][0]["_tags"] == {
        0: b"",
        300: b"x" * 200,
    }
    assert messages.encode("JoinGroupRequest", 7, found) == data


def test_known_and_unknown_tags_together() -> None:
    data = messages.encode("ApiVersionsResponse", 3, {"FinalizedFeaturesEpoch": 4, "_tags": {2000: b"?"}})
    found = messages.decode("ApiVersionsResponse", 3, data)
    assert found["FinalizedFeaturesEpoch"] == 4 and found["_tags"] == {2000: b"?"}
    assert messages.encode("ApiVersionsResponse", 3, found) == data


def test_tags_may_come_in_any_order_but_only_once() -> None:
    found = messages.decode("HeartbeatResponse", 4, bytes.fromhex("00000000 0000 02 07 01 37 02 01 32"))
    assert found["_tags"] == {7: b"7", 2: b"2"}
    with pytest.raises(DecodeError, match="tags: tag 2 twice"):
        messages.decode("HeartbeatResponse", 4, bytes.fromhex("00000000 0000 02 02 01 37 02 01 32"))


# -- the table --------------------------------------------------------------------------------------


def test_the_table_has_every_message_in_use() -> None:
    assert len(messages.names()) == 200 and len(schema.keys()) == 93
    assert {
        "RequestHeader",
        "ResponseHeader",
        "ConsumerProtocolSubscription",
        "ConsumerProtocolAssignment",
    } <= set(messages.names())

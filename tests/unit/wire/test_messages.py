"""Messages: known bytes, differences between versions, and the texts of errors."""

from __future__ import annotations

import doctest
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from pixy.wire import exceptions, messages, schema
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError, UnsupportedVersionError
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


# -- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "data", "offset", "words"),
    [
        ("HeartbeatRequest", 0, "", 0, "GroupId: the message ends"),
        ("HeartbeatRequest", 0, "0001", 2, "GroupId: 1 bytes announced, 0 bytes are left"),
        ("HeartbeatRequest", 0, "0001 67 0000", 3, "GenerationId: the message ends"),
        ("HeartbeatRequest", 4, "05 67", 1, "GroupId: 4 bytes announced, 1 bytes are left"),
        ("HeartbeatRequest", 4, "ff", 1, "GroupId: varint"),
        (
            "JoinGroupRequest",
            0,
            "0000 00000000 0000 0000 00000002 0000 00000004 61626364 0000",
            26,
            r"Protocols\[1\].Metadata: the message ends",
        ),
        (
            "JoinGroupRequest",
            0,
            "0000 00000000 0000 0000 7fffffff",
            14,
            "Protocols: 2147483647 elements announced",
        ),
        (
            "JoinGroupRequest",
            6,
            "01 00000000 00000000 01 00 01 ffffffff0f",
            17,
            "Protocols: 4294967294 elements announced",
        ),
        (
            "OffsetFetchRequest",
            0,
            "0000 00000001 0000 40000000",
            12,
            r"Topics\[0\].PartitionIndexes: 1073741824 elements",
        ),
        ("HeartbeatResponse", 4, "00000000 0000 ffffffff0f", 11, "tags: 4294967295 tagged fields announced"),
        (
            "HeartbeatResponse",
            4,
            "00000000 0000 01 05 09 00",
            9,
            "tags: 9 bytes announced for tag 5, 1 are left",
        ),
    ],
)
def test_a_truncated_body(name: str, version: int, data: str, offset: int, words: str) -> None:
    with pytest.raises(TruncatedError, match=words) as caught:
        messages.decode(name, version, bytes.fromhex(data))
    assert caught.value.offset == offset and f"{name} v{version}: " in str(caught.value)
    with pytest.raises(TruncatedError) as caught:
        messages.decode(name, version, b"\xff" * 9 + bytes.fromhex(data), 9)
    assert caught.value.offset == offset + 9


@pytest.mark.parametrize(
    ("name", "version", "data", "offset", "words"),
    [
        ("HeartbeatRequest", 0, "ffff 00000000 0000", 2, "GroupId: null, which is not allowed"),
        ("HeartbeatRequest", 4, "00 00000000 01 00 00", 1, "GroupId: null, which is not allowed"),
        ("HeartbeatRequest", 0, "fffe 00000000 0000", 2, "GroupId: length of -2"),
        ("HeartbeatRequest", 3, "0000 00000000 0000 fffe", 10, "GroupInstanceId: length of -2"),
        ("JoinGroupRequest", 0, "0000 00000000 0000 0000 ffffffff", 14, "Protocols: null"),
        ("HeartbeatRequest", 0, "0002 67ff 00000000 0000", 3, "GroupId: not UTF-8"),
        ("HeartbeatRequest", 4, "03 67ff 00000000 01 00 00", 2, "GroupId: not UTF-8"),
        ("HeartbeatRequest", 4, "ffffffffff01", 0, "GroupId: varint"),
        ("HeartbeatRequest", 4, "828002" + "61" * 0x8001, 3, "GroupId: string of 32769 bytes"),
        ("HeartbeatResponse", 0, "0000 00", 2, "1 bytes are left over"),
        ("HeartbeatResponse", 4, "00000000 0000 00 00", 7, "1 bytes are left over"),
        ("FetchRequest", 12, "00" * 25 + "01 01 01" + "01 00 03 02 63 64", 33, "ClusterId: 1 bytes too many"),
    ],
)
def test_a_malformed_body(name: str, version: int, data: str, offset: int, words: str) -> None:
    with pytest.raises(DecodeError, match=words) as caught:
        messages.decode(name, version, bytes.fromhex(data))
    assert not isinstance(caught.value, TruncatedError)
    assert caught.value.offset == offset


def test_an_offset_outside_the_buffer() -> None:
    for offset in (-1, 3):
        with pytest.raises(DecodeError, match="begins outside of the 2 bytes"):
            messages.decode("HeartbeatResponse", 0, b"\0\0", offset)


@pytest.mark.parametrize(
    ("name", "version", "body", "words"),
    [
        (
            "JoinGroupRequest",
            7,
            {"GroupID": "g"},
            r"JoinGroupRequest v7: GroupID: no such field \(did you mean GroupId\?\)",
        ),
        (
            "JoinGroupRequest",
            7,
            {"Protocols": [{}, {"Nam": 1}]},
            r"Protocols\[1\].Nam: no such field \(did you mean Name",
        ),
        ("JoinGroupRequest", 7, {"group_id": "g"}, r"group_id: no such field \(did you mean GroupId"),
        (
            "OffsetCommitRequest",
            2,
            {"Topics": [{}, {}, {"Partitions": [{"PartitionIndex": "0"}]}]},
            r"Topics\[2\].Partitions\[0\].PartitionIndex: str where an int32 is needed",
        ),
        (
            "JoinGroupRequest",
            7,
            {"SessionTimeoutMs": 2**31},
            "SessionTimeoutMs: 2147483648 does not fit an int32",
        ),
        ("JoinGroupRequest", 7, {"SessionTimeoutMs": True}, "SessionTimeoutMs: bool where an int32"),
        ("JoinGroupRequest", 7, {"SessionTimeoutMs": 1.0}, "SessionTimeoutMs: float where an int32"),
        ("MetadataRequest", 4, {"AllowAutoTopicCreation": 1}, "AllowAutoTopicCreation: int where a bool"),
        ("JoinGroupRequest", 7, {"GroupId": b"g"}, "GroupId: bytes where a string"),
        ("JoinGroupRequest", 7, {"GroupId": None}, "GroupId: null, which version 7 does not allow"),
        ("JoinGroupRequest", 7, {"GroupId": "a" * 32768}, "GroupId: string of 32768 bytes"),
        ("JoinGroupRequest", 2, {"GroupId": "a" * 32768}, "GroupId: string of 32768 bytes"),
        ("JoinGroupRequest", 7, {"GroupId": "\ud800"}, "GroupId: not encodable"),
        ("JoinGroupRequest", 7, {"Protocols": {}}, "Protocols: dict where a list"),
        ("DescribeGroupsRequest", 0, {"Groups": "abc"}, "Groups: str where a list"),
        ("DescribeGroupsRequest", 0, {"Groups": ["a", 3]}, r"Groups\[1\]: int where a string"),
        (
            "JoinGroupRequest",
            7,
            {"Protocols": [{"Metadata": "m"}]},
            r"Protocols\[0\].Metadata: str where bytes",
        ),
        ("JoinGroupRequest", 7, {"Protocols": [3]}, r"Protocols\[0\]: int where a mapping"),
        (
            "OffsetFetchRequest",
            0,
            {"Topics": [{"PartitionIndexes": [0, 2**31]}]},
            r"PartitionIndexes\[1\]: 2147483648",
        ),
        (
            "OffsetFetchRequest",
            0,
            {"Topics": [{"PartitionIndexes": [0, False]}]},
            r"PartitionIndexes\[1\]: bool",
        ),
        ("FetchRequest", 13, {"Topics": [{"TopicId": "x"}]}, r"Topics\[0\].TopicId: str where a uuid"),
        (
            "JoinGroupRequest",
            7,
            {"Reason": "why"},
            "Reason: version 7 has no such field .*versions 8 to 9.*'why' is not its default",
        ),
        ("ProduceResponse", 0, {"ThrottleTimeMs": 1}, "ThrottleTimeMs: version 0 has no such field"),
        ("JoinGroupRequest", 5, {"_tags": {0: b""}}, "_tags: version 5 has no tagged fields"),
        ("JoinGroupRequest", 7, {"_tags": {-1: b""}}, "_tags: -1 does not fit"),
        ("JoinGroupRequest", 7, {"_tags": {1: "x"}}, r"_tags\[1\]: str where bytes"),
        ("FetchRequest", 12, {"_tags": {0: b"\0"}}, r"_tags\[0\]: this tag is the field ClusterId"),
        ("HeartbeatRequest", 0, [], "HeartbeatRequest v0: list where a mapping"),
        ("ControlledShutdownRequest", 0, None, "null where a mapping"),
    ],
)
def test_a_body_that_cannot_be_encoded(name: str, version: int, body: Any, words: str) -> None:
    with pytest.raises(EncodeError, match=words):
        messages.encode(name, version, body)


def test_a_default_in_a_field_of_another_version_is_accepted() -> None:
    plain = messages.encode("JoinGroupRequest", 0, {"GroupId": "g"})
    assert (
        messages.encode(
            "JoinGroupRequest",
            0,
            {
                "GroupId": "g",
                "RebalanceTimeoutMs": -1,
                "GroupInstanceId": None,
                "Reason": None,
            },
        )
        == plain
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: messages.decode("NoRequest", 0, b""),
        lambda: messages.encode("NoRequest", 0, {}),
        lambda: messages.decode("JoinGroupRequest", 10, b""),
        lambda: messages.encode("JoinGroupRequest", -1, {}),
        lambda: messages.request_name(9999),
        lambda: messages.versions("NoRequest"),
        lambda: messages.api_key("No"),
    ],
)
def test_unknown_messages_versions_and_keys(call: Any) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"unknown|known: 0 to 9"):
        call()


def test_all_errors_are_wire_errors() -> None:
    for each in (DecodeError, EncodeError, TruncatedError, UnsupportedVersionError):
        assert issubclass(each, exceptions.WireError) and issubclass(each, ValueError)


# -- the table --------------------------------------------------------------------------------------


def test_the_table_equals_kafkas_schemas(tmp_path: Path) -> None:
    """Derive the table again from the jars, in a process as `make messages` does, and compare."""
    if shutil.which("mvn") is None:
        if os.environ.get("CI"):
            raise RuntimeError("mvn not found")
        pytest.skip("!!! NOT TESTED against Kafka's schemas: mvn not found !!!")
    program = (
        "import sys; sys.path.insert(0, 'proto'); import kafka_messages as m; from pathlib import Path;"
        f"Path({str(tmp_path / 'table')!r}).write_text(m.table(m.fetch(m.OLD), m.fetch(m.NEW)))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=900)
    assert (tmp_path / "table").read_text() == (ROOT / "pixy/wire/messages.txt").read_text(), (
        "run `make messages`"
    )


def test_the_table_has_every_message_in_use() -> None:
    assert len(messages.names()) == 200 and len(schema.keys()) == 93
    assert {
        "RequestHeader",
        "ResponseHeader",
        "ConsumerProtocolSubscription",
        "ConsumerProtocolAssignment",
    } <= set(messages.names())

"""Messages that cannot be decoded or encoded: the errors, their offsets and texts."""

from __future__ import annotations

from typing import Any

import pytest

from pixy.wire import exceptions, messages
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError, UnsupportedVersionError


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

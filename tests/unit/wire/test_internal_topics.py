"""Records of internal topics: examples as brokers write them, every version there and back, and malformed ones."""

from __future__ import annotations

import uuid

import pytest

from pixy.wire import committed_offsets, consumer_protocol, internal_topics, messages, schema
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError, UnsupportedVersionError
from pixy.wire.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TOPICS, TRANSACTION_STATE

KINDS = [
    (topic, kind, version)
    for topic in TOPICS
    for kind in sorted(set(internal_topics.kinds(topic).values()))
    for version in messages.versions(f"{kind}Value")
]


@pytest.mark.parametrize(("topic", "kind", "version"), KINDS)
def test_every_version_there_and_back(topic: str, kind: str, version: int) -> None:
    key, value = messages.defaults(f"{kind}Key", 0), messages.defaults(f"{kind}Value", version)
    data = internal_topics.encode(topic, kind, key, value, version)
    assert internal_topics.decode(topic, *data) == (kind, key, version, value)
    assert data[1] is not None
    for size in range(len(data[1])):
        with pytest.raises(DecodeError):
            internal_topics.decode(topic, data[0], data[1][:size])
    tombstone = internal_topics.encode(topic, kind, key)
    assert internal_topics.decode(topic, *tombstone) == (kind, key, -1, None)


@pytest.mark.parametrize("version", range(5))
def test_commits_are_those_of_the_other_module(version: int) -> None:
    topic_id = uuid.UUID(int=7) if version >= 4 else None
    theirs = committed_offsets.OffsetValue(
        5, "m", 1000, 2000 if version == 1 else -1, 3 if version >= 3 else -1, topic_id, version
    )
    for key_version in (0, 1):
        key = committed_offsets.OffsetKey("g", "t", 2, key_version).marshal()
        found = internal_topics.decode(CONSUMER_OFFSETS, key, theirs.marshal())
        assert found.kind == "OffsetCommit" and found.key == {"Group": "g", "Topic": "t", "Partition": 2}
        assert found.value is not None and found.group == "g"
        assert found.value["Offset"] == 5 and found.value["CommitTimestamp"] == 1000
        assert found.value.get("TopicId") == topic_id


def test_the_members_of_a_classic_group_are_readable() -> None:
    member = {
        "MemberId": "m",
        "ClientId": "c",
        "ClientHost": "/h",
        "Subscription": consumer_protocol.encode_subscription(1, {"Topics": ["t"]}),
        "Assignment": consumer_protocol.encode_assignment(
            1, {"AssignedPartitions": [{"Topic": "t", "Partitions": [0]}]}
        ),
    }
    body = {"ProtocolType": "consumer", "Generation": 3, "Members": [member, {**member, "Assignment": b"\0"}]}
    data = internal_topics.encode(CONSUMER_OFFSETS, "GroupMetadata", {"Group": "g"}, body, 3)
    shown = internal_topics.readable(internal_topics.decode(CONSUMER_OFFSETS, *data))
    assert shown is not None
    assert shown["Members"][0]["Subscription"]["Topics"] == ["t"]
    assert shown["Members"][0]["Assignment"]["AssignedPartitions"] == [{"Topic": "t", "Partitions": [0]}]
    assert shown["Members"][1]["Assignment"] == b"\0", "what cannot be decoded stays"
    body["ProtocolType"] = "connect"
    data = internal_topics.encode(CONSUMER_OFFSETS, "GroupMetadata", {"Group": "g"}, body, 3)
    other = internal_topics.readable(internal_topics.decode(CONSUMER_OFFSETS, *data))
    assert other is not None and other["Members"][0]["Subscription"] == member["Subscription"]


def test_a_member_as_kafka_4_writes_it() -> None:
    """Its null of a tagged structure is the byte 0."""
    value = bytes(4) + b"\x02r\x0b/127.0.0.1\x02\x02t\x01" + bytes.fromhex("000493e0 00 01 00 01 00")
    found = internal_topics.decode(CONSUMER_OFFSETS, b"\0\5\0\1g\0\1m", value)
    assert found.value is not None and found.group == "g"
    assert found.value["SubscribedTopicNames"] == ["t"] and found.value["RebalanceTimeoutMs"] == 300_000
    assert found.value["ClassicMemberMetadata"] is None
    classic = {**found.value, "ClassicMemberMetadata": {"SessionTimeoutMs": 9, "SupportedProtocols": []}}
    data = internal_topics.encode(CONSUMER_OFFSETS, found.kind, found.key, classic)
    assert internal_topics.decode(CONSUMER_OFFSETS, *data).value == classic


def test_records_that_are_not_known() -> None:
    with pytest.raises(UnsupportedVersionError, match="type 99 of a record in __consumer_offsets"):
        internal_topics.decode(CONSUMER_OFFSETS, b"\0\x63", None)
    with pytest.raises(UnsupportedVersionError, match="no version 9"):
        internal_topics.decode(TRANSACTION_STATE, b"\0\0\0\1a", b"\0\x09")
    with pytest.raises(UnsupportedVersionError, match="is no internal topic"):
        internal_topics.decode("orders", b"\0\0", None)
    with pytest.raises(DecodeError, match="no key"):
        internal_topics.decode(SHARE_GROUP_STATE, None, b"")
    for key, value in ((b"\0", None), (b"\0\0\0\1a", b"\0")):
        with pytest.raises(TruncatedError, match="is cut off"):
            internal_topics.decode(TRANSACTION_STATE, key, value)
    with pytest.raises(EncodeError, match="has no GroupMetadata"):
        internal_topics.encode(TRANSACTION_STATE, "GroupMetadata", {})


def test_the_records_are_no_messages() -> None:
    assert not set(schema.internal_blocks()) & set(messages.names())
    assert internal_topics.kinds(SHARE_GROUP_STATE) == {0: "ShareSnapshot", 1: "ShareUpdate"}

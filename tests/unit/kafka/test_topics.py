"""What Metadata say about topics."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pixy.errors import UnknownTopic
from pixy.kafka.topics import PartitionInfo, Topics, differ
from pixy.wire.connection import Broker
from pixy.wire.schema import NULL_UUID

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def partition(number: int, leader: int, code: int = 0) -> dict[str, Any]:
    return {
        "PartitionIndex": number,
        "LeaderId": leader,
        "ErrorCode": code,
        "ReplicaNodes": [1, 2],
        "IsrNodes": [2],
    }


BODY: dict[str, Any] = {
    "Brokers": [{"NodeId": 1, "Host": "a", "Port": 9092}],
    "Topics": [
        {"Name": "t", "TopicId": ONE, "ErrorCode": 0, "Partitions": [partition(1, -1, 5), partition(0, 1)]},
        {"Name": "old", "ErrorCode": 0, "Partitions": [partition(0, 2)]},
        {"Name": "secret", "TopicId": NULL_UUID, "ErrorCode": 29, "Partitions": []},
        {"Name": "gone", "TopicId": NULL_UUID, "ErrorCode": 3, "Partitions": []},
    ],
}


def test_only_a_topic_that_does_not_exist_is_gone() -> None:
    topics = Topics(BODY)
    assert [name for name in ("t", "old", "secret", "gone", "never asked for") if topics.gone(name)] == [
        "gone"
    ]


def test_a_topic_has_an_id_and_each_partition_a_leader_or_a_reason() -> None:
    topics = Topics(BODY)
    assert topics.ids == {"t": ONE, "old": NULL_UUID}
    assert topics.counts == {"t": 2, "old": 1}
    assert topics.leader(("t", 0)) == Broker("a", 9092, 1)
    reasons = {
        each: getattr(topics.leader(each), "name", None)
        for each in [("t", 1), ("t", 7), ("old", 0), ("secret", 0), ("gone", 0)]
    }
    assert reasons == {
        ("t", 1): "LEADER_NOT_AVAILABLE",
        ("t", 7): "UNKNOWN_TOPIC_OR_PART",
        ("old", 0): "LEADER_NOT_AVAILABLE",  # its broker is not in the cluster now
        ("secret", 0): "TOPIC_AUTHORIZATION_FAILED",
        ("gone", 0): "UNKNOWN_TOPIC_OR_PART",
    }
    assert isinstance(topics.leader(("gone", 0)), UnknownTopic)


def test_partitions_are_in_order_and_topics_that_cannot_be_described_have_none() -> None:
    topics = Topics(BODY)
    assert topics.partitions == {
        "t": (PartitionInfo(0, 1, (1, 2), (2,)), PartitionInfo(1, -1, (1, 2), (2,))),
        "old": (PartitionInfo(0, 2, (1, 2), (2,)),),
    }
    assert {name: error.code for name, error in topics.errors.items()} == {"secret": 29, "gone": 3}
    assert (topics.cluster_id, topics.brokers) == ("", (Broker("a", 9092, 1),))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(ONE, OTHER, True), (ONE, ONE, False), (ONE, NULL_UUID, False), (NULL_UUID, ONE, False)],
)
def test_topics_without_ids_are_not_known_to_differ(one: uuid.UUID, other: uuid.UUID, expected: bool) -> None:
    assert differ(one, other) is expected

"""Changes of topics and groups over the wire library, on a broker that refuses or dies."""

from __future__ import annotations

import pytest

from pixy.errors import InvalidParameter, KafkaError, TopicExists, UnknownTopic
from pixy.kafka import brokers as module
from pixy.kafka.brokers import Brokers
from pixy.kafka.errors import UNSUPPORTED_CODES
from pixy.kafka.topic_changes import NewTopic, TopicChanges
from tests.unit.wire.fake_broker import FakeBroker

EXISTS, NO_TOPIC, BAD_PARTITIONS, NON_EMPTY = 36, 3, 37, 68


def changes_on(broker: FakeBroker) -> TopicChanges:
    settings = {
        "bootstrap.servers": broker.address,
        "client.id": "pixy",
        "security.protocol": "PLAINTEXT",
        "socket.timeout.ms": 30_000,
        "socket.connection.setup.timeout.ms": 3000,
    }
    return TopicChanges(Brokers(settings, module.LIMIT, patience=15.0, keep=2))


def test_a_topic_is_created_as_asked_and_defaults_are_the_broker_s() -> None:
    with FakeBroker() as broker:
        changes_on(broker).create(NewTopic("t", 3, 2, {"retention.ms": "1"}), validate_only=True)
        changes_on(broker).create(NewTopic("t"))
        asked = [each.body for each in broker.seen if each.name == "CreateTopicsRequest"]
    topic = asked[0]["Topics"][0]
    assert (topic["NumPartitions"], topic["ReplicationFactor"], asked[0]["validateOnly"]) == (3, 2, True)
    assert topic["Configs"] == [{"Name": "retention.ms", "Value": "1"}]
    assert (asked[1]["Topics"][0]["NumPartitions"], asked[1]["Topics"][0]["ReplicationFactor"]) == (-1, -1)


def test_a_change_is_never_sent_twice() -> None:
    """Over a connection that was kept, a request that has no answer is normally repeated."""
    with FakeBroker({"CreateTopics": lambda _request: None}) as broker:
        with pytest.raises(KafkaError):
            changes_on(broker).create(NewTopic("t"))
        assert broker.names().count("CreateTopics") == 1


def test_refusals_say_why() -> None:
    def refused(code: int, text: str | None) -> FakeBroker:
        return FakeBroker(
            {
                "CreateTopics": lambda request: broker.usual(
                    request, Topics=[{"Name": "t", "ErrorCode": code, "ErrorMessage": text}]
                )
            }
        )

    with refused(EXISTS, None) as broker, pytest.raises(TopicExists, match="topic t exists already"):
        changes_on(broker).create(NewTopic("t"))
    with refused(BAD_PARTITIONS, "too few") as broker, pytest.raises(InvalidParameter, match="t: too few"):
        changes_on(broker).create(NewTopic("t"))


@pytest.mark.parametrize("version", [4, 6])
def test_a_topic_is_deleted_by_old_and_new_brokers(version: int) -> None:
    with FakeBroker(
        {
            "DeleteTopics": lambda request: broker.usual(
                request, Responses=[{"Name": "t", "ErrorCode": NO_TOPIC}]
            )
        },
        DeleteTopics=(1, version),
    ) as broker:
        with pytest.raises(UnknownTopic):
            changes_on(broker).delete("t")
        body = broker.seen[-1].body
    assert (body["TopicNames"] == ["t"]) if version < 6 else (body["Topics"][0]["Name"] == "t")


def test_a_group_with_members_and_a_broker_that_cannot_delete() -> None:
    with FakeBroker(
        {
            "DeleteGroups": lambda request: broker.usual(
                request, Results=[{"GroupId": "g", "ErrorCode": NON_EMPTY}]
            )
        }
    ) as broker:
        with pytest.raises(KafkaError) as raised:
            changes_on(broker).delete_group("g")
        assert raised.value.code == NON_EMPTY
    with FakeBroker(CreateTopics=(99, 99)) as broker:
        with pytest.raises(KafkaError) as raised:
            changes_on(broker).create(NewTopic("t"))
        assert raised.value.code in UNSUPPORTED_CODES

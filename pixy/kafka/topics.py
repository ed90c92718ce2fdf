"""What a Metadata response says about topics: ids, partitions, leaders. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError as LibraryError

from pixy.errors import KafkaError
from pixy.kafka.errors import translate
from pixy.wire.connection import Broker
from pixy.wire.errors import ErrorCode
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition


def differ(one: uuid.UUID, other: uuid.UUID) -> bool:
    """Whether two topics of the same name are known to be different ones."""
    return one != other and NULL_UUID not in (one, other)


class Topics:
    """The topics of one Metadata response.

    Args:
        body: the body of a MetadataResponse.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.ids: dict[str, uuid.UUID] = {}
        """Topics that exist; a broker before Kafka 2.8 gives no id."""
        self.counts: dict[str, int] = {}
        """The number of partitions of each."""
        self._leaders: dict[TopicPartition, Broker | KafkaError] = {}
        brokers = {
            each["NodeId"]: Broker(each["Host"], each["Port"], each["NodeId"]) for each in body["Brokers"]
        }
        for topic in body["Topics"]:
            name = topic["Name"]
            if topic["ErrorCode"]:
                self._leaders[name, -1] = _error(topic["ErrorCode"])
                continue
            self.ids[name] = topic.get("TopicId", NULL_UUID)
            self.counts[name] = len(topic["Partitions"])
            for each in topic["Partitions"]:
                code = each["ErrorCode"] or ErrorCode.LEADER_NOT_AVAILABLE
                self._leaders[name, each["PartitionIndex"]] = brokers.get(each["LeaderId"]) or _error(code)

    def leader(self, partition: TopicPartition) -> Broker | KafkaError:
        """The leader of a partition, or the reason why there is none."""
        found = self._leaders.get(partition) or self._leaders.get((partition[0], -1))
        return found or _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _error(code: int) -> KafkaError:
    return translate(LibraryError(code))

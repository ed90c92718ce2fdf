"""Read the ids, partitions and leaders of topics from a Metadata response. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pixy.errors import KafkaError
from pixy.kafka.errors import error_of
from pixy.wire.connection import Broker
from pixy.wire.errors import ErrorCode
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's metadata; ``leader`` is -1 while there is none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def differ(one: uuid.UUID, other: uuid.UUID) -> bool:
    """Return whether two topics of the same name are known to be different ones.

    Args:
        one: a topic's id, null from a broker before Kafka 2.8: then nothing is known.
        other: likewise.
    """
    return one != other and NULL_UUID not in (one, other)


class Topics:
    """The topics of one Metadata response.

    Args:
        body: the body of a MetadataResponse.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.cluster_id: str = body.get("ClusterId") or ""
        self.controller_id: int = body.get("ControllerId", -1)
        """The broker that takes changes; with KRaft, one that passes them on."""
        self.brokers = tuple(Broker(each["Host"], each["Port"], each["NodeId"]) for each in body["Brokers"])
        self.ids: dict[str, uuid.UUID] = {}
        """Topics that exist; a broker before Kafka 2.8 gives no id."""
        self.counts: dict[str, int] = {}
        """The number of partitions of each."""
        self.partitions: dict[str, tuple[PartitionInfo, ...]] = {}
        """Of each, sorted."""
        self.errors: dict[str, KafkaError] = {}
        """Topics that do not exist, or cannot be described."""
        self._leaders: dict[TopicPartition, Broker | KafkaError] = {}
        self._epochs: dict[TopicPartition, int] = {}
        brokers = {each.node_id: each for each in self.brokers}
        for topic in body["Topics"]:
            name = topic["Name"]
            if topic["ErrorCode"]:
                self.errors[name] = error_of(topic["ErrorCode"])
                continue
            self.ids[name] = topic.get("TopicId", NULL_UUID)
            self.counts[name] = len(topic["Partitions"])
            self.partitions[name] = tuple(sorted(map(_info, topic["Partitions"]), key=_number))
            for each in topic["Partitions"]:
                code = each["ErrorCode"] or ErrorCode.LEADER_NOT_AVAILABLE
                leader = brokers.get(each["LeaderId"]) or error_of(code)
                self._leaders[name, each["PartitionIndex"]] = leader
                self._epochs[name, each["PartitionIndex"]] = each.get("LeaderEpoch", -1)

    def gone(self, topic: str) -> bool:
        """Return whether the topic does not exist."""
        error = self.errors.get(topic)
        return error is not None and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def leader(self, partition: TopicPartition) -> Broker | KafkaError:
        """Return the leader of a partition, or the reason why there is none."""
        found = self._leaders.get(partition) or self.errors.get(partition[0])
        return found or error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def leader_epoch(self, partition: TopicPartition) -> int | None:
        """Return the number of the partition's last election, also while it has no leader; None if that is not known."""
        epoch = self._epochs.get(partition, -1)
        return None if epoch < 0 else epoch


def _info(entry: Mapping[str, Any]) -> PartitionInfo:
    return PartitionInfo(
        entry["PartitionIndex"], entry["LeaderId"], tuple(entry["ReplicaNodes"]), tuple(entry["IsrNodes"])
    )


def _number(info: PartitionInfo) -> int:
    return info.partition

"""Messages of a :class:`~pixy.engine.cluster.Cluster`."""

from __future__ import annotations

from dataclasses import dataclass

from actors import ActorRef, Request
from pixy.engine.admin import Admin
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.fetcher import Fetcher
from pixy.engine.instances.registry import Instances
from pixy.engine.produce.topic_producer import TopicProducer


@dataclass(frozen=True, slots=True)
class GetProducer(Request[ActorRef[TopicProducer]]):
    """Ask for the producer of a topic; it is started if there is none, and the topic exists. Otherwise: UnknownTopic.

    Attributes:
        topic: of the producer.
        patient: whether to fail if Kafka does not answer. An asynchronous message is kept by the producer then.
    """

    topic: str
    patient: bool = True


@dataclass(frozen=True, slots=True)
class GetGroup(Request[ActorRef[GroupConsumer]]):
    """Ask for the consumer of a group; it is started if there is none, for ``caller`` (:mod:`pixy.engine.shares`)."""

    group: str
    caller: str = ""


@dataclass(frozen=True, slots=True)
class GetAdmin(Request[ActorRef[Admin]]):
    """Ask for the actor that serves offsets, topics and consumers."""


@dataclass(frozen=True, slots=True)
class GetFetcher(Request[ActorRef[Fetcher]]):
    """Ask for the actor that reads partitions by offset."""


@dataclass(frozen=True, slots=True)
class GetInstances(Request[ActorRef[Instances]]):
    """Ask for the registry of REST consumer instances."""


@dataclass(frozen=True, slots=True)
class Reach(Request[None]):
    """Wait until the cluster answers. The reply is None, or a StartError if it does not in time."""


@dataclass(frozen=True, slots=True)
class IsIdle(Request[bool]):
    """Ask whether the cluster has no producer, no group and no consumer instance."""


@dataclass(frozen=True, slots=True)
class OwnGroups(Request[dict[str, dict[str, list[int]]]]):
    """Ask for the groups that this daemon consumes for: group to topic to partitions."""


@dataclass(frozen=True, slots=True)
class KnownGroups(Request[list[str]]):
    """Ask for the groups that this daemon consumes for, and for those that it has consumed for: the newest ``consumer.max_groups``."""


@dataclass(frozen=True, slots=True)
class DrainCluster(Request[int]):
    """Accept no more requests, deliver produced messages and commit offsets.

    The reply is the number of produced messages that were given up.
    """

"""Messages of a :class:`~pixy.engine.cluster.Cluster`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from actors import ActorRef, Request
from pixy.engine.admin import Admin
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.fetcher import Fetcher
from pixy.engine.instances.registry import Instances
from pixy.engine.produce.topic_producer import TopicProducer


@dataclass(frozen=True, slots=True)
class GetProducer(Request[ActorRef[TopicProducer]]):
    """Ask for the producer of a topic. It is started if there is none and the topic exists. The reply may be UnknownTopic.

    Attributes:
        topic: of the producer.
        patient: wait for Kafka's answer about the topic, and reply with an error if none comes. False is for asynchronous
            messages: if none comes soon, the producer is started all the same, and keeps them until the topic is found.
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
class GroupRefs(Request[dict[str, ActorRef[GroupConsumer]]]):
    """Ask for the actors of the groups that this daemon consumes for, by name."""


@dataclass(frozen=True, slots=True)
class HoldGroup(Request[bool]):
    """Let requests for a group wait from now on, so that it does not start again once it has left.

    The reply is False if they wait already, for somebody else.
    """

    group: str


@dataclass(frozen=True, slots=True)
class LetGroupGo:
    """Serve the requests that wait since :class:`HoldGroup`."""

    group: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a cluster says about itself when somebody looks.

    Attributes:
        down: why no broker can be reached, as the producer last said; empty if it has not.
        groups: how many groups, and ``max_groups`` of them there may be; likewise ``producers``.
        journal: events that are held, how many may be, and how many were lost; None without a journal.
    """

    down: str
    groups: int
    max_groups: int
    producers: int
    max_producers: int
    journal: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class ViewCluster(Request[ClusterView]):
    """Ask a cluster for its :class:`ClusterView`."""


@dataclass(slots=True)
class GivenUp:
    """Produced messages that a stop has given up so far. Counted while it goes on: it may not come to its end."""

    messages: int = 0


@dataclass(frozen=True, slots=True)
class DrainCluster(Request[None]):
    """Accept no more requests, deliver produced messages and commit offsets.

    Attributes:
        within: seconds after which produced messages are given up, unless ``producer.shutdown_timeout`` is over before.
        given_up: counts them.
    """

    within: float = math.inf
    given_up: GivenUp = field(default_factory=GivenUp)

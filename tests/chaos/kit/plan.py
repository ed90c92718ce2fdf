"""The plan of a run: its length, its topics, its groups, and the daemons' configuration."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DAEMONS = 3
BROKERS = 3

ACK_TIMEOUT = 8.0
"""Seconds until a message that nobody acknowledged is offered again; see ``consumer.ack_timeout``."""
SESSION_TIMEOUT = 6.0
COMMIT_INTERVAL = 0.5
IDLE_INSTANCE = 10.0

PARTITIONERS = ("hash", "random", "roundrobin")
"""``producer.partitioner`` of the daemons: each has another one."""

MEMBERSHIPS = ("kafka", "kafka-next", "zookeeper")
"""Values of ``consumer.membership``."""


@dataclass(frozen=True)
class Group:
    """A consumer group of one topic.

    Attributes:
        name: its id.
        mode: ``ack`` (clients acknowledge), ``auto`` (auto-ack) or ``instance`` (consumer instances).
        api: ``grpc``, ``rest`` or ``restv2``.
        readers: clients for each daemon.
        chosen: whether its consumer instances choose their partitions, and are no members of the group.
    """

    name: str
    mode: str
    api: str
    readers: int = 2
    chosen: bool = False


@dataclass(frozen=True)
class Topic:
    """A topic, who writes to it and who reads it.

    Attributes:
        name: its name.
        partitions: how many at first.
        groups: who reads it.
        singles: messages a second, one in a request, half over gRPC and half over REST.
        batched: messages a second in batches over the REST v2 API.
        accepted: messages a second, one in an asynchronous request, half over gRPC and half over REST.
        asked: messages a second that ask for a partition, over the REST v2 API.
        replicas: of each partition.
        config: the topic's settings.
        odd: whether a plain producer adds odd records and transactions.
    """

    name: str
    partitions: int
    groups: tuple[Group, ...]
    singles: float = 0.0
    batched: float = 0.0
    accepted: float = 0.0
    asked: float = 0.0
    replicas: int = 3
    config: dict[str, str] = field(default_factory=dict)
    odd: bool = False


@dataclass(frozen=True)
class Plan:
    """One run."""

    seed: int
    minutes: float
    membership: str
    faults: tuple[str, ...]
    topics: tuple[Topic, ...]
    rate: float
    plant: str = "-"
    ack_timeout: float = ACK_TIMEOUT
    session_timeout: float = SESSION_TIMEOUT
    commit_interval: float = COMMIT_INTERVAL
    idle_instance: float = IDLE_INSTANCE
    drain: float = 120.0
    """Seconds in which the groups must have consumed everything, once all is healed."""
    silence: float = 15.0
    """Seconds that a partition with messages may be silent, outside of faults and of the recovery from them."""
    messages: int = 0
    """Deliveries after which the run ends before its time; 0 for no such end."""
    front: str = "portable"
    workers: int = 1
    """``server.front`` and ``server.workers`` of the daemons."""

    def plant_of(self, daemon: int) -> str:
        """Return the defect that is planted into a daemon; several with commas between go to one daemon each."""
        plants = self.plant.split(",")
        return plants[daemon - 1] if len(plants) > 1 else self.plant

    def document(self) -> dict[str, Any]:
        """Return the plan as it is written down."""
        return asdict(self)

    def command(self) -> str:
        """Return the command that repeats the run."""
        words = [f"make chaos MINUTES={self.minutes:g} SEED={self.seed} MEMBERSHIP={self.membership}"]
        if self.faults:
            words.append(f"FAULTS={','.join(self.faults)}")
        if self.plant != "-":
            words.append(f"PLANT={self.plant}")
        if self.front != "portable" or self.workers > 1:
            words.append(f"FRONT={self.front} WORKERS={self.workers}")
        return " ".join([*words, f"RATE={self.rate:g}"])


def topics(rate: float) -> tuple[Topic, ...]:
    """Return the topics of a run at ``rate`` messages a second, most of them in batches."""
    # With more single messages two cores are busy all the time, each call takes half a second, and a lone client
    # that gets a hundred messages again needs minutes for them.
    single = min(40.0, rate / 16)
    few = single / 4
    return (
        Topic("single", 6, (Group("g-grpc", "ack", "grpc"), Group("g-rest", "ack", "rest")), singles=single),
        Topic("bulk", 6, (Group("g-instances", "instance", "restv2"),), batched=rate - single - 12 * few),
        Topic("automatic", 3, (Group("g-auto", "auto", "grpc", 1),), singles=few),
        Topic("lone", 3, (Group("g-lone", "ack", "grpc", 1),), singles=few, replicas=1),
        Topic("grown", 2, (Group("g-grown", "ack", "grpc", 1),), singles=few),
        Topic(
            "recreated",
            8,
            (Group("g-recreated", "ack", "grpc"), Group("g-remade", "instance", "restv2", 1)),
            singles=few,
            accepted=few / 2,
        ),
        Topic(
            "chosen",
            6,
            (Group("g-chosen", "instance", "restv2", 1, chosen=True),),
            singles=few / 2,
            accepted=few / 2,
            asked=few,
        ),
        Topic(
            "narrow",
            2,
            (Group("g-narrow", "ack", "grpc", 1),),
            singles=few,
            accepted=few / 2,
            config={"max.message.bytes": "2000"},
        ),
        Topic("trimmed", 2, (Group("g-trimmed", "ack", "grpc", 1),), singles=few),
        Topic(
            "compacted",
            2,
            (Group("g-compacted", "ack", "rest", 1),),
            singles=few,
            config={
                "cleanup.policy": "compact",
                "segment.ms": "4000",
                "min.cleanable.dirty.ratio": "0.01",
                "max.compaction.lag.ms": "4000",
            },
        ),
        Topic(
            "expiring",
            2,
            (Group("g-expiring", "ack", "grpc", 1),),
            singles=few,
            config={"retention.ms": "30000", "segment.ms": "5000"},
        ),
        Topic("reset", 2, (Group("g-reset", "ack", "rest", 1),), singles=few),
        Topic(
            "odd",
            3,
            (Group("g-odd", "ack", "grpc", 1),),
            config={"max.message.bytes": "2000000"},
            odd=True,
        ),
    )


def configuration(
    plan: Plan, daemon: int, seeds: list[int], zookeeper: int, grpc: int, rest: int, rest_link: int
) -> dict[str, Any]:
    """Return the configuration file of a daemon.

    Args:
        plan: the run.
        daemon: its number.
        seeds: ports of the links to the brokers.
        zookeeper: port of the link to ZooKeeper.
        grpc: port of its gRPC API.
        rest: port of its REST APIs.
        rest_link: the port that its clients use.
    """
    session = f"{plan.session_timeout:g}s"
    return {
        "grpc_addr": f"127.0.0.1:{grpc}",
        "tcp_addr": f"127.0.0.1:{rest}",
        "shutdown_timeout": "20s",
        "server": {"front": plan.front, "workers": plan.workers},
        "rest": {"advertised_url": f"http://127.0.0.1:{rest_link}"},
        "proxies": {
            "main": {
                "client_id": f"d{daemon}",
                "kafka": {"seed_peers": [f"127.0.0.1:{port}" for port in seeds]},
                "zoo_keeper": {"seed_peers": [f"127.0.0.1:{zookeeper}"], "session_timeout": session},
                "producer": {
                    "timeout": "5s",
                    "retry_backoff": "5s",
                    "retry_max": 3,
                    "partitioner": PARTITIONERS[daemon - 1],
                },
                "consumer": {
                    "initial_offset": "oldest",
                    "membership": plan.membership,
                    "long_polling_timeout": "2s",
                    "ack_timeout": f"{plan.ack_timeout:g}s",
                    "session_timeout": session,
                    "subscription_timeout": "5s",
                    "fetch_max_wait": "200ms",
                },
                "instances": {
                    "session_timeout": session,
                    "idle_timeout": f"{plan.idle_instance:g}s",
                    "operation_timeout": "10s",
                },
            }
        },
    }


def broker_config(plan: Plan) -> dict[str, object]:
    """Return the brokers' settings that the timeouts need."""
    session = int(plan.session_timeout * 1000)
    of_membership = {
        "kafka": {"group.min.session.timeout.ms": session},
        "kafka-next": {
            "group.consumer.session.timeout.ms": session,
            "group.consumer.min.session.timeout.ms": session,
            "group.consumer.heartbeat.interval.ms": 1000,
            "group.consumer.min.heartbeat.interval.ms": 1000,
        },
        "zookeeper": {"zookeeper.session.timeout.ms": session, "group.min.session.timeout.ms": session},
    }
    return {
        **of_membership[plan.membership],
        "log.message.timestamp.type": "LogAppendTime",
        "log.retention.check.interval.ms": 500,
        "message.max.bytes": 2_000_000,
        "replica.fetch.max.bytes": 2_000_000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    }


RECORDS = Path("build/chaos")
"""The folder in which the records of runs are kept, unless another folder is named."""

__all__ = ["Group", "Plan", "Topic", "broker_config", "configuration", "topics"]

"""Three brokers behind links, one link for each daemon and broker, and what only an operator may do."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from pixy.config.model import Kafka, Proxy
from pixy.errors import PixyError
from pixy.kafka import brokers, settings
from pixy.kafka.group_members import GroupMembers
from pixy.wire.client import get_group_coordinator
from pixy.wire.exceptions import WireError
from tests.chaos.kit.links import Link
from tests.chaos.kit.plan import BROKERS, DAEMONS, Plan, Topic, broker_config
from tests.kafka.cluster import Cluster

SMALL_DISK = 3
"""The broker whose disk is small, if the machine lets us mount one."""
DISK_MEGABYTES = 768

BRIEF = 5.0
"""Minutes: in a run no longer than this the JVMs would spend more on their better compiler than it saves."""


P = ParamSpec("P")
T = TypeVar("T")
ATTEMPTS, PAUSE = 40, 0.5
"""Attempts at a look-up, and the seconds between them: metadata may be those before the last fault."""

UNREACHABLE = (KafkaException, PixyError, WireError, OSError)
"""Errors that look-ups raise when Kafka refuses them, or is in the middle of another fault."""

LEADERS_WITHIN = 60.0

STARTS = 4
"""Attempts at waiting for the brokers, of 90 s each."""


def insisting(look: Callable[P, T]) -> Callable[P, T]:
    """Repeat a look-up that Kafka refuses."""

    @functools.wraps(look)
    def insist(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(ATTEMPTS - 1):
            try:
                return look(*args, **kwargs)
            except UNREACHABLE:
                time.sleep(PAUSE)
        return look(*args, **kwargs)

    return insist


class Brokers:
    """The cluster and its links. Methods that block run in threads."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.links = {
            (daemon, node): Link(f"d{daemon}-broker{node}")
            for daemon in range(1, DAEMONS + 1)
            for node in range(1, BROKERS + 1)
        }
        self.zookeeper = [Link(f"d{daemon}-zookeeper") for daemon in range(1, DAEMONS + 1)]
        """The links of the daemons to ZooKeeper; used with that membership only."""
        self.cluster: Cluster
        self._consumers: dict[str, Consumer] = {}
        """By group; the one without a group's name looks bounds up."""
        self.disk: Path | None = None
        """The small disk; None if it cannot be mounted here."""

    async def start(self) -> None:
        """Open the links and start the brokers."""
        for link in self.all:
            await link.listen()
        self.disk = await asyncio.to_thread(_mount)
        advertised = {
            f"D{daemon}": {node: self.links[daemon, node].port for node in range(1, BROKERS + 1)}
            for daemon in range(1, DAEMONS + 1)
        }
        self.cluster = await asyncio.to_thread(
            lambda: Cluster(
                BROKERS,
                heap="320m",
                brief=self._plan.minutes <= BRIEF,
                zookeeper=self._plan.membership == "zookeeper",
                advertised=advertised,
                properties=broker_config(self._plan),
                data={} if self.disk is None else {SMALL_DISK: self.disk / "data"},
            )
        )
        for (daemon, node), link in self.links.items():
            link.target = self.cluster.ports[node][f"D{daemon}"]
        for link in self.zookeeper:
            link.target = int(getattr(self.cluster, "zookeeper", ":0").rpartition(":")[2])

    @property
    def all(self) -> list[Link]:
        """All links."""
        return [*self.links.values(), *self.zookeeper]

    def of(self, daemon: int) -> list[Link]:
        """Return the links of a daemon to the brokers."""
        return [self.links[daemon, node] for node in range(1, BROKERS + 1)]

    def beyond(self, daemon: int) -> list[Link]:
        """Return the links of a daemon to all that it needs."""
        return [*self.of(daemon), self.zookeeper[daemon - 1]]

    @property
    def bootstrap(self) -> str:
        """The addresses that no link stands before."""
        return ",".join(self.cluster.bootstrap())

    def create(self, topic: Topic, partitions: int) -> None:
        """Create a topic, whose partitions may have no leaders yet."""
        from confluent_kafka.admin import NewTopic

        config = {"message.timestamp.type": "LogAppendTime", **topic.config}
        if topic.replicas == 1:
            config["min.insync.replicas"] = "1"
        new = NewTopic(topic.name, partitions, topic.replicas, config=config)
        self.cluster.admin().create_topics([new])[topic.name].result(30)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.cluster.admin().delete_topics([topic])[topic].result(30)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, which has this number of them then."""
        self.cluster.admin().create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def wait_ready(self) -> None:
        """Wait until all brokers are members of the cluster again, and lead; on a busy machine a start takes minutes.

        With ZooKeeper a broker that was killed ends again while its old session lives: it is started again.
        """
        for _ in range(STARTS - 1):
            try:
                self.cluster.wait_ready()
                self._wait_for_leaders()
                return self._wait_for_answers()
            except RuntimeError:
                time.sleep(self._plan.session_timeout)
                for node in self.cluster.ended():
                    self.cluster.start(node)
        return self.cluster.wait_ready()

    def _wait_for_leaders(self) -> None:
        """Wait until each partition has a leader: a broker that died is a member until its session is over."""
        deadline = time.monotonic() + LEADERS_WITHIN
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                topics = self.cluster.admin().list_topics(timeout=5).topics.values()
                if all(each.leader >= 0 for topic in topics for each in topic.partitions.values()):
                    return
            time.sleep(PAUSE)
        raise RuntimeError(f"partitions without leaders for {LEADERS_WITHIN:g} s")

    def _wait_for_answers(self) -> None:
        """Wait until the leaders of a topic without other replicas answer: one that died still leads while its session lives."""
        lone = next((topic.name for topic in self._plan.topics if topic.replicas == 1), "")
        deadline = time.monotonic() + LEADERS_WITHIN
        while time.monotonic() < deadline and not self.cluster.ended():
            with contextlib.suppress(KafkaException):
                if not lone or lone not in self.cluster.admin().list_topics(timeout=5).topics:
                    return
                self._look_at_bounds(lone, timeout=5)
                return
            time.sleep(PAUSE)
        raise RuntimeError(
            f"a broker that leads alone does not answer for {LEADERS_WITHIN:g} s, or has ended"
        )

    @insisting
    def partitions(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition; -1 for none."""
        found = self.cluster.admin().list_topics(topic, timeout=10).topics[topic].partitions
        return {number: about.leader for number, about in found.items()}

    # Over our own library: AdminClient's calls about groups end the process while a coordinator moves (librdkafka 2.16).

    @insisting
    def coordinator(self, group: str) -> int:
        """Return the broker that coordinates a group."""
        return get_group_coordinator(self.cluster.bootstrap(), group).node_id

    @insisting
    def members(self, group: str) -> int:
        """Count the members of a group."""
        made = settings.common(Proxy(kafka=Kafka(seed_peers=self.cluster.bootstrap())))
        return len(GroupMembers(brokers.Brokers(made, patience=10.0)).describe([group]).get(group, ()))

    def trim(self, topic: str, below: dict[int, int]) -> None:
        """Delete the records below these offsets.

        Args:
            topic: its name.
            below: the first offset to keep, by partition.
        """
        for partition, offset in below.items():
            self.cluster.delete_records(topic, partition, offset)

    @insisting
    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the first and the next offset of each partition."""
        return self._look_at_bounds(topic, timeout=10)

    def _look_at_bounds(self, topic: str, timeout: float) -> dict[int, tuple[int, int]]:
        consumer = self._consumers.get("")
        if consumer is None:
            consumer = self._consumers[""] = _consumer(self.bootstrap, "chaos-bounds")
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout)
            for partition in self.partitions(topic)
        }

    @insisting
    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offset of each partition that has one."""
        consumer = _consumer(self.bootstrap, group)
        try:
            wanted = [TopicPartition(topic, partition) for partition in self.partitions(topic)]
            return {
                at.partition: at.offset for at in consumer.committed(wanted, timeout=10) if at.offset >= 0
            }
        finally:
            consumer.close()

    def set_committed(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit for a group that has no members.

        Args:
            group: its id.
            topic: of all offsets.
            offsets: by partition.
        """
        consumer = _consumer(self.bootstrap, group)
        try:
            wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
            for each in consumer.commit(offsets=wanted, asynchronous=False) or ():
                if each.error is not None:
                    raise KafkaException(each.error)
        finally:
            consumer.close()

    def fill_disk(self) -> int:
        """Fill the small disk to its last byte; return how many were free."""
        assert self.disk is not None
        written = 0
        with (self.disk / "filler").open("wb", buffering=0) as file:
            block = bytes(1 << 20)
            while block:
                try:
                    written += file.write(block)
                except OSError:
                    block = block[: len(block) // 2]
        return written

    def free_disk(self) -> None:
        """Give the space back."""
        assert self.disk is not None
        (self.disk / "filler").unlink(missing_ok=True)

    async def close(self) -> None:
        """Stop the brokers, close the links, remove the data."""
        for consumer in self._consumers.values():
            await asyncio.to_thread(consumer.close)
        if hasattr(self, "cluster"):
            await asyncio.to_thread(self.cluster.close)
        for link in self.all:
            await link.close()
        if self.disk is not None:
            await asyncio.to_thread(_unmount, self.disk)


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "log_level": 0,
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,  # topics grow
        }
    )


def _mount() -> Path | None:
    if os.geteuid() != 0:
        return None
    folder = Path(tempfile.mkdtemp(prefix="chaos-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "chaos", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        folder.rmdir()
        return None
    return folder


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=False)
    shutil.rmtree(folder, ignore_errors=True)


__all__ = ["SMALL_DISK", "Brokers", "insisting"]

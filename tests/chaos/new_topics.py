"""Write to partitions that Kafka has just made, or that just get another leader, and compare the log with the answers.

    python -m tests.chaos.new_topics --topics 5000 --elections 200

A broker accepts any first sequence number of a producer that it does not know on a partition (KAFKA-15591, until
Kafka 4.5). If a first request fails because the partition is not ready, and a second one behind it succeeds,
librdkafka takes the first one for written. About one new topic in a hundred shows it; a run of thousands shows that
nothing acknowledged is missing. Prints one line of JSON for each part and exits with 1 if a record is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError as LibraryError, TopicPartition
from confluent_kafka.admin import NewTopic

from pixy.engine.client import ClusterClient
from pixy.engine.engine import Engine
from pixy.errors import PixyError
from pixy.wire import client as wire
from tests.kafka.cluster import Cluster
from tests.support import make_config

RECORDS = 4
_ROUND = 100  # topics that exist at the same time
_CALLERS = 3  # topics made at the same time
_PARTITIONS = 4  # of a new topic
_ELECTED = 10  # partitions of a topic whose leaders are changed
_READ_TIMEOUT = 30.0


@dataclass
class Record:
    """A record of a batch."""

    value: bytes
    partition: int | None
    key: bytes | None = None
    headers: Any = None
    timestamp: int | None = None


@dataclass
class Tally:
    """What became of the records.

    Attributes:
        partitions: how many were written to while they were new or changed their leader.
        records: how many records were sent.
        refused: records that were answered with an error.
        lost: records that were acknowledged and are not in the log where the answer says.
        disordered: partitions whose log has records in another order than they were sent.
        twice: records that the log has more than once.
        leaders: partitions that got another leader.
        refusal: why a record was refused, of the last one.
    """

    partitions: int = 0
    records: int = 0
    refused: int = 0
    lost: int = 0
    disordered: int = 0
    twice: int = 0
    leaders: int = 0
    refusal: str = ""

    def add(self, sent: list[bytes], written: list[Any], log: list[bytes]) -> None:
        """Compare the answers of one partition with its log."""
        self.partitions += 1
        self.records += len(sent)
        for value, answer in zip(sent, written, strict=True):
            if isinstance(answer, PixyError):
                self.refused += 1
                self.refusal = repr(answer)
            elif answer[1] is None or log[answer[1] : answer[1] + 1] != [value]:
                self.lost += 1
        self.twice += len(log) - len(set(log))
        first = {value: at for at, value in reversed(list(enumerate(log)))}
        places = [first[value] for value in sent if value in first]
        self.disordered += places != sorted(places)


def values(partition: TopicPartition) -> list[bytes]:
    """The records to send to a partition."""
    return [f"{partition.topic} {partition.partition} {at}".encode() for at in range(RECORDS)]


async def write(cluster: ClusterClient, partition: TopicPartition) -> list[Any]:
    """Write one batch to a partition; return the answer of each record."""
    sent = values(partition)
    try:
        return list(
            await cluster.produce_many(
                partition.topic, [Record(value, partition.partition) for value in sent]
            )
        )
    except PixyError as error:
        return [error] * len(sent)


def read(kafka: Cluster, partitions: list[TopicPartition]) -> list[list[bytes]]:
    """Read partitions from beginning to end."""
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(kafka.bootstrap()),
            "group.id": "unused",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    logs: dict[tuple[str, int], list[bytes]] = {(each.topic, each.partition): [] for each in partitions}
    open_ = set(logs)
    consumer.assign([TopicPartition(*each, 0) for each in logs])
    try:
        while open_:
            message = consumer.poll(_READ_TIMEOUT)
            if message is None:
                raise RuntimeError(f"{len(open_)} partitions could not be read")
            at = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                logs[at].append(message.value())
            elif error.code() == LibraryError._PARTITION_EOF:
                open_.discard(at)
    finally:
        consumer.close()
    return list(logs.values())


async def new_topics(kafka: Cluster, count: int) -> Tally:
    """Write to ``count`` topics as soon as Kafka says that it has made them."""
    tally = Tally()
    admin = kafka.admin()
    turns = asyncio.Semaphore(_CALLERS)
    async with Engine(make_config(kafka.bootstrap())) as engine:
        cluster = engine.cluster()

        async def make_and_write(name: str) -> list[list[Any]]:
            async with turns:
                await asyncio.wrap_future(admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name])
                return await asyncio.gather(
                    *[write(cluster, TopicPartition(name, at)) for at in range(_PARTITIONS)]
                )

        for begin in range(0, count, _ROUND):
            names = [f"new-{uuid.uuid4().hex[:12]}" for _ in range(min(_ROUND, count - begin))]
            written = await asyncio.gather(*[make_and_write(name) for name in names])
            answers = [each for topic in written for each in topic]
            partitions = [TopicPartition(name, at) for name in names for at in range(_PARTITIONS)]
            logs = await asyncio.to_thread(read, kafka, partitions)
            for partition, answer, log in zip(partitions, answers, logs, strict=True):
                tally.add(values(partition), answer, log)
            await asyncio.gather(*[asyncio.wrap_future(each) for each in admin.delete_topics(names).values()])
    return tally


async def elections(kafka: Cluster, count: int) -> Tally:
    """Write to partitions that no record has reached yet, while they get another leader ``count`` times."""
    tally = Tally()
    broker = wire.PartitionClient(kafka.bootstrap(), kafka.create_topic("control"), 0)
    async with Engine(make_config(kafka.bootstrap())) as engine:
        cluster = engine.cluster()
        while tally.leaders < count:
            name = f"led-{uuid.uuid4().hex[:12]}"
            await asyncio.to_thread(kafka.create_topic, name, _ELECTED)
            before = await asyncio.to_thread(leaders, kafka, name)
            changing = asyncio.ensure_future(asyncio.to_thread(change_leaders, kafka, broker, name))
            partitions = [TopicPartition(name, number) for number in range(_ELECTED)]

            async def write_at_random(partition: TopicPartition) -> list[Any]:
                await asyncio.sleep(random.uniform(0.0, 0.15))
                return await write(cluster, partition)

            answers = await asyncio.gather(*[write_at_random(each) for each in partitions])
            await changing
            after = await asyncio.to_thread(leaders, kafka, name)
            tally.leaders += sum(after[number] != leader for number, leader in before.items())
            logs = await asyncio.to_thread(read, kafka, partitions)
            for partition, answer, log in zip(partitions, answers, logs, strict=True):
                tally.add(values(partition), answer, log)
            await asyncio.wrap_future(kafka.admin().delete_topics([name])[name])
    broker.close()
    return tally


def leaders(kafka: Cluster, topic: str) -> dict[int, int]:
    found = kafka.admin().list_topics(topic, timeout=20).topics[topic].partitions
    return {number: info.leader for number, info in found.items()}


def change_leaders(kafka: Cluster, broker: wire.PartitionClient, topic: str) -> None:
    """Make each partition's second replica its preferred one, and have that one elected."""
    found = kafka.admin().list_topics(topic, timeout=20).topics[topic].partitions
    partitions = [
        {"PartitionIndex": number, "Replicas": [*info.replicas[1:], info.replicas[0]]}
        for number, info in sorted(found.items())
    ]
    _call(broker, "AlterPartitionReassignments", {"Topics": [{"Name": topic, "Partitions": partitions}]})
    elect(broker, topic, list(found))


def elect(broker: wire.PartitionClient, topic: str, partitions: list[int]) -> None:
    """Have the preferred leaders elected that are in sync; repeat it for those that were not."""
    _call(broker, "ElectLeaders", {"TopicPartitions": [{"Topic": topic, "Partitions": partitions}]})


def _call(broker: wire.PartitionClient, api: str, body: dict[str, Any]) -> None:
    answer = broker.call(api, body)
    if answer["ErrorCode"]:
        raise RuntimeError(f"{api}: {answer}")


def run(topics: int, changes: int) -> bool:
    """Run both parts on brokers of their own; return whether nothing acknowledged was lost."""
    lost = 0
    for count, part, nodes in ((topics, new_topics, 1), (changes, elections, 3)):
        if count:
            kafka = Cluster(nodes, heap="512m" if nodes == 1 else "320m")
            try:
                tally = asyncio.run(part(kafka, count))
            finally:
                kafka.close()
            print(json.dumps({"part": part.__name__, **asdict(tally)}), flush=True)
            lost += tally.lost
    return lost == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=5000, help="topics to make and write to")
    parser.add_argument("--elections", type=int, default=200, help="leaders to change while writing")
    options = parser.parse_args()
    sys.exit(not run(options.topics, options.elections))

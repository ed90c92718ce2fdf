"""``kafka-pixy wire topic`` reads what a real broker writes about groups, commits and transactions."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer

from pixy.wire import internal_topics
from tests.kafka.cluster import Cluster
from tests.support import ROOT


def read(kafka: Cluster, topic: str, *options: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pixy.cli.main",
            "wire",
            "topic",
            topic,
            "--broker",
            kafka.bootstrap()[0],
            *options,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def member(kafka: Cluster, group: str, topic: str, protocol: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap()[0],
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 40
    while not (found := consumer.consume(1, 1.0)):
        assert time.monotonic() < deadline
    consumer.commit(found[0], asynchronous=False)
    return consumer


def test_groups_commits_and_transactions_of_a_real_broker(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0], "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x")
    producer.commit_transaction(30)
    members = [member(kafka, f"{name}-{protocol}", name, protocol) for protocol in ("classic", "consumer")]

    transactions = read(kafka, internal_topics.TRANSACTION_STATE)
    everything = transactions + read(kafka, internal_topics.CONSUMER_OFFSETS)
    unknown = [each for each in everything if "error" in each]
    assert not unknown, f"{unknown[:2]}: this library knows all that the broker writes"

    found = read(kafka, internal_topics.CONSUMER_OFFSETS, "--group", f"{name}-classic")
    groups = [each for each in found if each["kind"] == "GroupMetadata" and each["value"]["Members"]]
    assert groups[-1]["value"]["Members"][0]["ClientId"] == "reader"
    owned = groups[-1]["value"]["Members"][0]["Assignment"]["AssignedPartitions"]
    assert owned == [{"Topic": name, "Partitions": [0]}]
    commit = next(each for each in found if each["kind"] == "OffsetCommit")
    assert commit["key"] == {"Group": f"{name}-classic", "Topic": name, "Partition": 0}
    assert commit["value"]["Offset"] == 1 and commit["partition"] == groups[-1]["partition"]

    found = [each for each in everything if each["key"].get("GroupId") == f"{name}-consumer"]
    kinds = {each["kind"] for each in found}
    assert {
        "ConsumerGroupMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    } <= kinds
    described = next(
        each for each in found if each["kind"] == "ConsumerGroupMemberMetadata" and each["value"]
    )
    assert described["value"]["ClientId"] == "reader" and described["value"]["SubscribedTopicNames"] == [name]
    current = [
        each for each in found if each["kind"] == "ConsumerGroupCurrentMemberAssignment" and each["value"]
    ]
    assert current[-1]["value"]["AssignedPartitions"][0]["Partitions"] == [0]

    found = transactions
    mine = [each["value"] for each in found if each["key"] == {"TransactionalId": name}]
    assert any(each["TransactionPartitions"] == [{"Topic": name, "PartitionIds": [0]}] for each in mine)
    assert mine[-1]["TransactionStatus"] in {4, 5}, "PrepareCommit or CompleteCommit"
    for each in members:
        each.close()


def test_a_cluster_that_cannot_be_read_costs_one_line() -> None:
    # A real broker has the topic as soon as any test uses a share group.
    without = Producer({"test.mock.num.brokers": 1, "logger": logging.getLogger("mock")})
    (broker,) = without.list_topics(timeout=20).brokers.values()
    command = [sys.executable, "-m", "pixy.cli.main", "wire", "topic"]
    for options, code, words in (
        (
            ("__share_group_state", "--broker", f"{broker.host}:{broker.port}"),
            1,
            "__share_group_state: UNKNOWN_TOPIC",
        ),
        (("__transaction_state", "--broker", "127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("__transaction_state", "--broker", "nowhere:x"), 2, "not an address"),
        (("orders", "--broker", "h:1"), 2, "orders"),
        (("__transaction_state", "--broker", "h:1", "--sasl", "PLAIN"), 2, "--sasl needs"),
        (("__transaction_state", "--broker", "h:1", "--ca", "/nowhere"), 2, "/nowhere"),
    ):
        done = subprocess.run(
            [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
        assert "Traceback" not in done.stderr and not done.stdout

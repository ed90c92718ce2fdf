"""What a rebalance callback asks must not disturb the poll that runs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

PROGRAM = """
import logging, time
from confluent_kafka import Producer
from pixy.config.model import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.instance_consumer import InstanceConsumer
from pixy.kafka.sandbox import Sandbox

logging.disable()
sandbox = Sandbox()
producer = Producer({"bootstrap.servers": ",".join(sandbox.seed_peers)})
producer.produce("t", b"makes it")
assert producer.flush(30) == 0
made = settings.instance(Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers)), "g", "c", "earliest", "read_committed")
assigned = []


def assign(partitions):
    assert all(client.layout(["t"])["t"].values())
    client.assign([(each, 0) for each in partitions])
    assigned.extend(partitions)


# Each line of the log is a callback in the poll, too.
client = InstanceConsumer(
    {**made, "debug": "cgrp"}, assign=assign, revoke=lambda p: client.unassign(p),
    lost=lambda p: None, committed=lambda e, p: None,
)
client.subscribe(["t"])
deadline = time.monotonic() + 60
while not assigned and time.monotonic() < deadline:
    client.poll(0.1)
for _ in range(20):
    client.poll(0.05)
client.close()
print("assigned", len(assigned))
"""


@pytest.mark.slow
def test_topics_can_be_looked_up_inside_one() -> None:
    """confluent-kafka's own ``list_topics`` there ends the process at the next callback."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=ROOT, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "assigned 4"

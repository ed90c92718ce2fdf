"""Helpers of the pipeline's tests. ``truth`` reads Kafka with librdkafka and hashes in pure Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from pixy.config import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.bulk import read_range
from pixy.pipeline.lake.checksum import Stats, content_hash, payload_size, record_hash
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.verify import verify
from pixy.wire.types import TopicPartition
from tests import class_archives
from tests.kafka.cluster import Cluster
from tests.support import ROOT

FAST_START = {
    class_archives.OPTIONS: " ".join(
        ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *class_archives.use(class_archives.SPARK)]
    )
}
"""A JVM that lives for seconds starts faster with the simple compiler and collector, and a class archive."""


@dataclass
class World:
    """A cluster, a Spark session, and a folder for lakes."""

    spark: Any
    kafka: Cluster
    folder: Path

    @property
    def proxy(self) -> Proxy:
        return Proxy(kafka=Kafka(seed_peers=self.kafka.bootstrap()))

    @property
    def view(self) -> ClusterView:
        return ClusterView(settings.admin(self.proxy))

    def config(self) -> str:
        """Write the daemon's configuration for this cluster; return its path."""
        path = self.folder / "pixy.yaml"
        path.write_text(json.dumps({"proxies": {"main": {"kafka": {"seed_peers": self.kafka.bootstrap()}}}}))
        return str(path)

    def produce(self, topic: str, count: int, partitions: int = 1, **config: Any) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap()[0], "linger.ms": 5, **config})
        for number in range(count):
            producer.produce(topic, b"value %d" % number, b"key %d" % number, number % partitions)
        assert producer.flush(30) == 0

    def archive(self, *topics: str, lake: str = "lake", **fields: Any) -> Any:
        """Run an archive once; return its progress."""
        from pixy.pipeline.archive.archive import Archive
        from pixy.pipeline.archive.job import Job
        from pixy.pipeline.archive.subscription import Subscription

        subscription = fields.pop("subscription", None) or Subscription(topics)
        job = Job("main", fields.pop("proxy", self.proxy), str(self.folder / lake), subscription, "job")
        archive = Archive(self.spark, replace(job, **fields), self.view)
        archive.run()
        return archive.progress

    def lake(self, name: str = "lake") -> Lake:
        return Lake.open(str(self.folder / name))

    def truth(self, topic: str) -> dict[int, Stats]:
        """Compute the stats of Kafka's records, read by librdkafka and hashed in Python."""
        kinds = {"CreateTime": 0, "LogAppendTime": 1}
        kind = kinds[self.view.topic_settings(topic)["message.timestamp.type"]]
        partitions = [(topic, number) for number in range(self.view.topics()[topic])]
        found: dict[int, Stats] = {}
        for (_, partition), (start, end) in self.view.bounds(partitions, committed=False).items():
            for record in read_range(settings.common(self.proxy), topic, partition, start, end):
                content = content_hash(record.timestamp, record.key, record.value, record.headers)
                found[partition] = found.get(partition, Stats()) + Stats(
                    1,
                    payload_size(record.key, record.value, record.headers),
                    record.offset,
                    record.offset,
                    record.timestamp,
                    record.timestamp,
                    record_hash(topic, partition, record.offset, kind, content),
                    content,
                )
        return found


def await_markers(view: ClusterView, *partitions: TopicPartition) -> None:
    """Wait until no transaction is open: a broker writes the markers after its answer to the commit."""
    deadline = time.monotonic() + 60
    while view.bounds(partitions) != view.bounds(partitions, committed=False):
        assert time.monotonic() < deadline, "a transaction is open"
        time.sleep(0.02)


def assert_sound(lake: Lake) -> None:
    """Verify every record of the lake."""
    verdict = verify(lake)
    assert verdict.problems == []
    assert verdict.files and verdict.records


def contents(lake: Lake, topic: str) -> dict[int, tuple[int, int]]:
    """Return count and content checksum by partition, which a replay must keep."""
    return {
        partition: (stats.count, stats.content_checksum)
        for partition, stats in lake.state().partition_stats(topic).items()
    }


def command(*arguments: str, timeout: float = 120.0) -> tuple[int, dict[str, Any], str]:
    """Run ``kafka-pixy pipeline ... --json``; return exit code, summary and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "pixy.cli.main", "pipeline", *arguments, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **FAST_START},
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

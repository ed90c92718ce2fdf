"""The request of an archive job: topics, lake and limits."""

from __future__ import annotations

from dataclasses import dataclass

from pixy.config import Proxy
from pixy.kafka.schema_registry import Registry
from pixy.pipeline.archive.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Job:
    """An archive job's topics, lake and settings.

    Attributes:
        cluster: the cluster's name in the configuration.
        proxy: the cluster's configuration.
        lake: folder or URI of the lake.
        subscription: the topics.
        name: the job's name, in the lake's history.
        interval: seconds between batches; None archives what is there now and ends.
        start: ``start``, ``end`` or milliseconds of the epoch: where partitions begin that are new to the job.
        batch_records: the most offsets a batch covers.
        max_rate: records a second; 0 is unlimited.
        read_committed: leave out records of aborted and open transactions.
        skip_lost: continue after offsets that Kafka deleted before they were archived.
        commit_as: a group to commit the archived offsets for, so that lag tools see the job.
        decode: a schema registry, to decode keys and values into typed columns; None for their bytes alone.
    """

    cluster: str
    proxy: Proxy
    lake: str
    subscription: Subscription
    name: str
    interval: float | None = None
    start: str | int = "start"
    batch_records: int = 2_000_000
    max_rate: int = 0
    read_committed: bool = True
    skip_lost: bool = False
    commit_as: str = ""
    decode: Registry | None = None

"""Topics into a lake with Structured Streaming; see :mod:`pixy.pipeline.archive.batch` for exactly-once."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pixy.config import Proxy
from pixy.errors import PixyError
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.consumer import Commit
from pixy.pipeline.archive.batch import BatchWriter
from pixy.pipeline.archive.checkpoint import Checkpoint, Offsets, Owner
from pixy.pipeline.archive.delta import DeltaTable, refuse_without
from pixy.pipeline.archive.subscription import (
    Subscription,
    check_offsets,
    check_topic_ids,
    starting_offsets,
)
from pixy.pipeline.errors import CheckpointError, PipelineError, SourceError
from pixy.pipeline.lake.lake import CHECKPOINTS, STAGING, Lake, Manifest, State
from pixy.pipeline.lake.store import LocalStore, Store
from pixy.pipeline.spark.errors import FULL, cause
from pixy.pipeline.spark.hadoop import store_for
from pixy.pipeline.spark.kafka_options import kafka_options
from pixy.wire.types import TopicPartition

logger = logging.getLogger(__name__)

_POLL = 0.25
_FETCH = {
    # The Java client's defaults, 500 records a poll and 1 MiB a partition, cost a fifth of the rate.
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}


@dataclass(frozen=True, slots=True)
class Job:
    """What to archive and how.

    Attributes:
        checkpoint: a folder; empty: within the lake.
        interval: seconds between batches; None archives what is there now and ends.
        start: ``start``, ``end`` or milliseconds: where partitions begin that are new to the job.
        batch_records: the most a batch covers, in offsets.
        max_rate: records a second; 0 is unlimited.
        skip_lost: go on where offsets are that expired unread.
        commit_as: a group to commit the archived offsets for, so that lag tools see the job.
        delta: keep a Delta table over the lake's files too, see :mod:`pixy.pipeline.archive.delta`.
    """

    cluster: str
    proxy: Proxy
    lake: str
    subscription: Subscription
    name: str
    checkpoint: str = ""
    interval: float | None = None
    start: str | int = "start"
    batch_records: int = 2_000_000
    max_rate: int = 0
    read_committed: bool = True
    skip_lost: bool = False
    commit_as: str = ""
    delta: bool = False


@dataclass
class Progress:
    """What a run has done so far; told after each batch.

    Attributes:
        lag: by partition, offsets that the broker has and the lake has not.
        offsets: by partition, the next offset to be archived.
    """

    batches: int = 0
    records: int = 0
    bytes: int = 0
    batch_seconds: float = 0.0
    by_topic: dict[str, tuple[int, int]] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    lag: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, manifest: Manifest, seconds: float) -> None:
        """Count a published batch."""
        self.batches += 1
        self.batch_seconds = seconds
        for each in manifest.ranges:
            self.records += each.stats.count
            self.bytes += each.stats.bytes
            count, size = self.by_topic.get(each.topic, (0, 0))
            self.by_topic[each.topic] = (count + each.stats.count, size + each.stats.bytes)
            self.offsets[each.topic, each.partition] = each.end


class _Stopped(Exception):
    """Between two batches somebody asked to stop."""


class Archive:
    """A job that is checked against cluster, lake and checkpoint, ready to run.

    Args:
        told: called after each batch, in the thread of Spark's callback.

    Raises:
        PixyError: something does not fit; nothing was changed but for an empty lake that was made.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        view: ClusterView,
        told: Callable[[Progress, Manifest], None] = lambda *_: None,
    ) -> None:
        self._spark = spark
        self._job = job
        self._view = view
        self._told = told
        self.progress = Progress()
        self.stopping = threading.Event()
        self._error: BaseException | None = None
        cluster_id = view.cluster_id()
        self._lake = Lake.open_or_create(job.lake, job.cluster, cluster_id, store_for(job.lake, spark))
        if not job.delta:
            refuse_without(self._lake.store, "an archive without it")
        self._table = DeltaTable(spark, self._lake) if job.delta else None
        where = job.checkpoint or self._lake.path(f"{CHECKPOINTS}/{job.name}")
        self._store = store_for(where, spark)
        self._owner = Owner(job.name, self._lake.identity.id, cluster_id, str(job.subscription))

    def run(self) -> str:
        """Archive until there is nothing left, or until asked to stop; say which of the two.

        Raises:
            PixyError: the text names what is wrong; what was published stays.
        """
        with _locked(self._store):
            checkpoint = Checkpoint.open(self._store, self._owner)
            state = self._lake.state()
            places = self._job.subscription.find(self._view.topics())
            resume = self._resume(state, checkpoint)
            check_topic_ids(state, self._view.topic_ids({topic for topic, _ in places}))
            if not self._job.skip_lost:
                bounds = self._view.bounds(places, committed=self._job.read_committed)
                check_offsets(resume, bounds)
            if self._table is not None:
                self._table.check(state)
                self._table.follow()  # what a killed run has published and not committed
            self._lake.store.remove(f"{STAGING}/{self._job.name}")
            return self._stream(state, checkpoint, places, resume)

    def _resume(self, state: State, checkpoint: Checkpoint) -> Offsets:
        """The next offset of what was archived; checks the checkpoint against the log."""
        name = self._job.name
        last = state.jobs.get(name)
        planned, committed = checkpoint.last_planned(), checkpoint.last_committed()
        published = last.batch if last is not None and last.checkpoint == checkpoint.id else -1
        if committed > published:
            raise CheckpointError(
                f"the checkpoint of job {name} has done batch {committed}, and the lake's log has only "
                f"batches up to {published} of it: entries are missing from "
                f"{self._lake.path('_manifests')}"
                if last is None or last.checkpoint == checkpoint.id
                else f"job {name} was last archived with checkpoint {last.checkpoint}; "
                f"{checkpoint.store.root} is {checkpoint.id}, an older one"
            )
        if published > planned:
            raise CheckpointError(
                f"the lake's log has batch {published} of job {name}, the checkpoint "
                f"{checkpoint.store.root} only batches up to {planned}: it is an older copy; remove it "
                "and the job goes on where the log ends"
            )
        if planned > published + 1:
            raise CheckpointError(
                f"the checkpoint of job {name} plans batch {planned}, the lake's log ends at batch "
                f"{published}: entries are missing from {self._lake.path('_manifests')}"
            )
        ends: Offsets = {}
        for place, ranges in state.ranges.items():
            for each in ranges:
                if each.job == name:
                    ends[place] = each.range.end
        if checkpoint.last_planned() >= 0:
            ends |= checkpoint.ends(published)
        return ends

    # -- the query --------------------------------------------------------------------------------

    def _stream(
        self, state: State, checkpoint: Checkpoint, places: list[TopicPartition], resume: Offsets
    ) -> str:
        job = self._job
        writer = BatchWriter(
            self._spark,
            self._lake,
            state,
            job.name,
            checkpoint,
            "read_committed" if job.read_committed else "read_uncommitted",
            self._view.topic_ids,
        )
        records = self._source(places, resume)
        query = (
            records.writeStream.queryName(job.name)
            .option("checkpointLocation", checkpoint.spark)
            .foreachBatch(lambda rows, batch: self._on_batch(writer, rows, batch))
        )
        if job.interval is None:
            query = query.trigger(availableNow=True)
        else:
            query = query.trigger(processingTime=f"{round(job.interval * 1000)} milliseconds")
        running = query.start()
        try:
            while not running.awaitTermination(_POLL):  # type: ignore[arg-type]
                if self.stopping.is_set() and not running.status["isTriggerActive"]:
                    break
        except StreamingQueryException as error:
            if isinstance(self._error, _Stopped):
                return "asked to stop"
            if isinstance(self._error, PixyError):
                raise self._error from error
            # What failed in the batch is told better by itself than by the query that it ended.
            own = self._error if self._error is not None else error
            raise explain(f"{error}\n{own}", job, cause(str(own))) from error
        finally:
            with contextlib.suppress(Exception):
                running.stop()
        return "asked to stop" if self.stopping.is_set() else "caught up"

    def _source(self, places: list[TopicPartition], resume: Offsets) -> DataFrame:
        job = self._job
        limit = job.batch_records
        if job.max_rate:
            limit = min(limit, max(1, round(job.max_rate * (job.interval or 10.0))))
        option, topics = job.subscription.option()
        reader = self._spark.readStream.format("kafka").options(**_FETCH).options(**kafka_options(job.proxy))
        return (
            reader.option(option, topics)
            .option("includeHeaders", "true")
            .option("startingOffsets", starting_offsets(self._view, places, job.start, resume))
            .option("failOnDataLoss", str(not job.skip_lost).lower())
            .option("maxOffsetsPerTrigger", limit)
            .option("groupIdPrefix", f"kafka-pixy-{job.name}")
            .option(
                "kafka.isolation.level",
                "read_committed" if job.read_committed else "read_uncommitted",
            )
            .load()
        )

    def _on_batch(self, writer: BatchWriter, rows: DataFrame, batch: int) -> None:
        try:
            if self.stopping.is_set():
                raise _Stopped
            began = time.monotonic()
            manifest = writer.write(rows, batch)
            if manifest is None:
                return
            if self._table is not None:
                self._table.follow()
            self.progress.add(manifest, time.monotonic() - began)
            self._publish_progress(manifest)
            if self._job.max_rate:
                count = sum(each.stats.count for each in manifest.ranges)
                self.stopping.wait(count / self._job.max_rate - (time.monotonic() - began))
        except BaseException as error:
            self._error = error
            raise

    def _publish_progress(self, manifest: Manifest) -> None:
        """Tell who watches. A broker that does not answer here fails no batch."""
        ends = self.progress.offsets
        try:
            bounds = self._view.bounds(list(ends), committed=self._job.read_committed)
            self.progress.lag = {place: bounds[place][1] - end for place, end in ends.items()}
            if self._job.commit_as:
                self._view.commit(
                    self._job.commit_as,
                    [Commit(each.topic, each.partition, each.end, "") for each in manifest.ranges],
                )
        except PixyError as error:
            logger.warning("the progress of job %s can not be told: %s", self._job.name, error)
        self._told(self.progress, manifest)


def admin_view(proxy: Proxy) -> ClusterView:
    """The cluster of a configuration; a request may take ``net.dial_timeout``."""
    return ClusterView(settings.admin(proxy), proxy.net.dial_timeout)


@contextlib.contextmanager
def _locked(store: Store) -> Iterator[None]:
    """One process a job; the lock of one that was killed is free. On other file systems than a local
    one Spark's own check of the checkpoint is what there is."""
    if not isinstance(store, LocalStore):
        yield
        return
    Path(store.root).mkdir(parents=True, exist_ok=True)
    with Path(store.root, ".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"{store.root} is in use: the job runs already") from None
        yield


_CAUSES: tuple[tuple[str, Callable[[Any, str], PipelineError]], ...] = (
    (
        FULL,
        lambda job, text: PipelineError(
            f"the disk of {job.lake} (or Spark's temporary folder) is full, or files may not grow (quota, ulimit); what was "
            f"published is whole, the batch under way was not published: {text}"
        ),
    ),
    (
        r"OffsetOutOfRange|data may have been lost|KAFKA_DATA_LOSS|out of range",
        lambda _, text: SourceError(
            f"Kafka no longer has offsets that were to be archived (retention, DeleteRecords, or a topic "
            f"deleted and created again); --on-data-loss skip goes on without them: {text}"
        ),
    ),
    (
        r"UnknownTopicOrPartition|partitions? (are|is) gone",
        lambda job, text: SourceError(f"a topic of {job.subscription} was deleted: {text}"),
    ),
    (
        r"Timeout|TimeoutException|DisconnectException|Failed to (construct|create)",
        lambda job, text: SourceError(
            f"cluster {job.cluster} ({','.join(job.proxy.kafka.seed_peers)}) does not answer: {text}"
        ),
    ),
    (
        r"OutOfMemoryError",
        lambda _, text: PipelineError(
            f"Spark ran out of memory: give --conf spark.driver.memory or a smaller --batch-records: {text}"
        ),
    ),
)


def explain(text: str, job: Job, short: str = "") -> PipelineError:
    """Our error for the text of one of Spark's; ``short`` is what to show of it."""
    short = short or cause(text)
    for pattern, made in _CAUSES:
        if re.search(pattern, text):
            return made(job, short)
    return PipelineError(f"the archive of {job.subscription} failed: {short}")

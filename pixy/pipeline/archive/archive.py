"""Run an archive job with Structured Streaming; see ``batch_writer`` for exactly-once."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pixy.config import Proxy
from pixy.errors import PixyError
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.consumer import Commit
from pixy.pipeline.archive.batch_writer import BatchWriter
from pixy.pipeline.archive.checkpoint import Checkpoint, Offsets, Owner
from pixy.pipeline.archive.delta import DeltaTable, refuse_without
from pixy.pipeline.archive.failures import explain
from pixy.pipeline.archive.job import Job
from pixy.pipeline.archive.progress import Progress
from pixy.pipeline.archive.subscription import check_offsets, check_topic_ids, starting_offsets
from pixy.pipeline.errors import CheckpointError
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.layout import CHECKPOINTS, MANIFESTS, STAGING
from pixy.pipeline.lake.locking import exclusive_lock
from pixy.pipeline.lake.manifest import Manifest
from pixy.pipeline.lake.state import State
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.spark.hadoop_store import store_for
from pixy.pipeline.spark.java_errors import cause
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


class _Stopped(Exception):
    """The caller asked to stop between two batches."""


class Archive:
    """One run of a job, checked against cluster and lake.

    Args:
        spark: the session to run in.
        job: what to archive.
        view: the cluster, to ask for topics and offsets.
        on_progress: called after each batch, in the thread of Spark's callback.

    Attributes:
        progress: counts of the run.
        stopping: set it to end the run after the current batch.

    Raises:
        PixyError: job, cluster and lake do not fit together; at most an empty lake was created.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        view: ClusterView,
        on_progress: Callable[[Progress, Manifest], None] = lambda *_: None,
    ) -> None:
        self._spark = spark
        self._job = job
        self._view = view
        self._on_progress = on_progress
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
        """Archive until Kafka has no further records, or until asked to stop.

        Returns:
            ``caught up`` or ``asked to stop``.

        Raises:
            PixyError: the text names what is wrong; published batches stay.
        """
        with self._locked():
            checkpoint = Checkpoint.open(self._store, self._owner)
            state = self._lake.state()
            partitions = self._job.subscription.find(self._view.topics())
            resume = self._resume(state, checkpoint)
            check_topic_ids(state, self._view.topic_ids({topic for topic, _ in partitions}))
            if not self._job.skip_lost:
                bounds = self._view.bounds(partitions, committed=self._job.read_committed)
                check_offsets(resume, bounds)
            if self._table is not None:
                self._table.check(state)
                self._table.follow()  # entries that a killed run published and did not commit
            self._lake.store.remove(f"{STAGING}/{self._job.name}")
            return self._stream(state, checkpoint, partitions, resume)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """Let one process at a time run the job. On a file system other than a local one only Spark's own
        check of the checkpoint does so."""
        if not isinstance(self._store, LocalStore):
            return contextlib.nullcontext()
        root = self._store.root
        return exclusive_lock(Path(root, ".lock"), CheckpointError(f"{root} is in use: the job runs already"))

    def _resume(self, state: State, checkpoint: Checkpoint) -> Offsets:
        """Find the next offset of each archived partition; check the checkpoint against the log."""
        name = self._job.name
        published = self._check_checkpoint(state, checkpoint)
        ends: Offsets = {}
        for partition, ranges in state.ranges.items():
            for each in ranges:
                if each.job == name:
                    ends[partition] = each.range.end
        if checkpoint.last_planned() >= 0:
            ends |= checkpoint.ends(published)
        return ends

    def _check_checkpoint(self, state: State, checkpoint: Checkpoint) -> int:
        """Return the last batch that this checkpoint has published; raise CheckpointError if the log differs."""
        name = self._job.name
        last = state.jobs.get(name)
        planned, committed = checkpoint.last_planned(), checkpoint.last_committed()
        published = last.batch if last is not None and last.checkpoint == checkpoint.id else -1
        if committed > published:
            raise CheckpointError(
                f"the checkpoint of job {name} has done batch {committed}, and the lake's log has only "
                f"batches up to {published} of it: entries are missing from {self._lake.path(MANIFESTS)}"
                if last is None or last.checkpoint == checkpoint.id
                else f"job {name} was last archived with checkpoint {last.checkpoint}; "
                f"{checkpoint.store.root} is {checkpoint.id}, an older one"
            )
        if published > planned:
            raise CheckpointError(
                f"the lake's log has batch {published} of job {name}, the checkpoint "
                f"{checkpoint.store.root} only batches up to {planned}: it is an older copy; remove it "
                "and the job resumes where the log ends"
            )
        if planned > published + 1:
            raise CheckpointError(
                f"the checkpoint of job {name} plans batch {planned}, the lake's log ends at batch "
                f"{published}: entries are missing from {self._lake.path(MANIFESTS)}"
            )
        return published

    # -- the query --------------------------------------------------------------------------------

    def _stream(
        self, state: State, checkpoint: Checkpoint, partitions: list[TopicPartition], resume: Offsets
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
        query = (
            self._source(partitions, resume)
            .writeStream.queryName(job.name)
            .option("checkpointLocation", checkpoint.spark)
            .foreachBatch(lambda rows, batch: self._on_batch(writer, rows, batch))
        )
        if job.interval is None:
            query = query.trigger(availableNow=True)
        else:
            query = query.trigger(processingTime=f"{round(job.interval * 1000)} milliseconds")
        return self._wait(query.start())

    def _wait(self, running: StreamingQuery) -> str:
        """Wait for the end of the query; raise the error that ended it."""
        try:
            while not running.awaitTermination(_POLL):  # type: ignore[arg-type]
                if self.stopping.is_set() and not running.status["isTriggerActive"]:
                    break
        except StreamingQueryException as error:
            if isinstance(self._error, _Stopped):
                return "asked to stop"
            if isinstance(self._error, PixyError):
                raise self._error from error
            # The batch's own error says more than that of the query it ended.
            own = self._error if self._error is not None else error
            raise explain(f"{error}\n{own}", self._job, cause(str(own))) from error
        finally:
            with contextlib.suppress(Exception):
                running.stop()
        return "asked to stop" if self.stopping.is_set() else "caught up"

    def _source(self, partitions: list[TopicPartition], resume: Offsets) -> DataFrame:
        job = self._job
        limit = job.batch_records
        if job.max_rate:
            limit = min(limit, max(1, round(job.max_rate * (job.interval or 10.0))))
        option, topics = job.subscription.option()
        reader = self._spark.readStream.format("kafka").options(**_FETCH).options(**kafka_options(job.proxy))
        return (
            reader.option(option, topics)
            .option("includeHeaders", "true")
            .option("startingOffsets", starting_offsets(self._view, partitions, job.start, resume))
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
            self._report(manifest)
            if self._job.max_rate:
                count = sum(each.stats.count for each in manifest.ranges)
                self.stopping.wait(count / self._job.max_rate - (time.monotonic() - began))
        except BaseException as error:
            self._error = error
            raise

    def _report(self, manifest: Manifest) -> None:
        """Report progress. A broker that does not answer here fails no batch."""
        ends = self.progress.offsets
        try:
            bounds = self._view.bounds(list(ends), committed=self._job.read_committed)
            self.progress.lag = {partition: bounds[partition][1] - end for partition, end in ends.items()}
            if self._job.commit_as:
                self._view.commit(
                    self._job.commit_as,
                    [Commit(each.topic, each.partition, each.end, "") for each in manifest.ranges],
                )
        except PixyError as error:
            logger.warning("cannot report the progress of job %s: %s", self._job.name, error)
        self._on_progress(self.progress, manifest)


def admin_view(proxy: Proxy) -> ClusterView:
    """View of a configured cluster; a request may take ``net.dial_timeout``."""
    return ClusterView(settings.admin(proxy), proxy.net.dial_timeout)

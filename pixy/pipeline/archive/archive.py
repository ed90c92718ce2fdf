"""Run an archive job: plan a batch from the lake's history, let Spark read and write it, commit it, and again.

The lake's history is the only checkpoint: a batch begins where the covered offsets of the lake end. So there is nothing
else that could contradict it, and topics and partitions may come, grow and go between two batches and two runs. Spark's
Structured Streaming is not used: it plans from a checkpoint of its own, for a fixed set of topics, and one topic that was
created again ends the query for all.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pixy.config import Proxy
from pixy.errors import PixyError
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.consumer import Commit
from pixy.pipeline.archive.batch_writer import BatchWriter
from pixy.pipeline.archive.failures import explain
from pixy.pipeline.archive.job import Job
from pixy.pipeline.archive.planning import Plan, missing_topics, plan_batch
from pixy.pipeline.archive.progress import Progress
from pixy.pipeline.archive.subscription import starting_offsets
from pixy.pipeline.errors import LakeError, Overlap, PipelineError, SourceError
from pixy.pipeline.lake.entry import Entry, Range
from pixy.pipeline.lake.lake import FOLLOW_EVERY, Lake
from pixy.pipeline.lake.layout import JOBS
from pixy.pipeline.lake.locking import exclusive_lock
from pixy.pipeline.lake.state import Ledger
from pixy.pipeline.spark.java_errors import cause
from pixy.pipeline.spark.kafka_options import kafka_options
from pixy.pipeline.spark.sources import read_ranges
from pixy.wire.types import TopicPartition

logger = logging.getLogger(__name__)

_FETCH: Final = {
    # The Java client's defaults, 500 records a poll and 1 MiB a partition, cost a fifth of the rate.
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}
_DEFAULT_INTERVAL: Final = 10.0
"""Seconds for which ``max_rate`` limits a batch of a run without an interval."""


class Archive:
    """One run of a job.

    Args:
        spark: the session to run in.
        job: what to archive.
        view: the cluster, to ask for topics and offsets.
        on_progress: called after each batch.

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
        on_progress: Callable[[Progress, Entry], None] = lambda *_: None,
    ) -> None:
        self._spark = spark
        self._job = job
        self._view = view
        self._on_progress = on_progress
        self.progress = Progress()
        self.stopping = threading.Event()
        self._lake = Lake.open_or_create(job.lake, job.cluster, view.cluster_id())
        self._ledger = Ledger()
        self._targets: dict[TopicPartition, int] | None = None
        """Of a run without an interval: the ends of the partitions when it began."""
        self._failed: dict[str, PixyError] = {}
        """Topics that cannot go on, and why."""

    def run(self) -> str:
        """Archive until Kafka has no further records, or until asked to stop.

        Returns:
            ``caught up`` or ``asked to stop``.

        Raises:
            PixyError: the text names what is wrong; published batches stay. A topic that cannot go on ends the run
                when the other topics have caught up; with an interval, when no topic can go on.
        """
        with self._locked():
            self._ledger = self._lake.ledger()
            isolation = "read_committed" if self._job.read_committed else "read_uncommitted"
            writer = BatchWriter(
                self._spark, self._lake, self._ledger, self._job.name, isolation, self._job.decode
            )
            try:
                while not self.stopping.is_set():
                    began = time.monotonic()
                    if not self._run_batch(writer) and self._job.interval is None:
                        break
                    if self._job.interval is not None:
                        self.stopping.wait(self._job.interval - (time.monotonic() - began))
            finally:
                with contextlib.suppress(LakeError):  # the next run does it
                    self._lake.follow()
            if self._failed and not self.stopping.is_set():
                raise self._failure()
        return "asked to stop" if self.stopping.is_set() else "caught up"

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """Let one process of this machine run the job at a time; elsewhere two would do the work twice, and commit it once."""
        location = self._lake.location
        if not location.local:
            return contextlib.nullcontext()
        path = location.at(f"{JOBS}/{self._job.name}.lock")
        return exclusive_lock(path, PipelineError(f"{path} is in use: job {self._job.name} runs already"))

    def _failure(self) -> PixyError:
        first, *others = self._failed.values()
        if not others:
            return first
        return PipelineError("; ".join(str(each) for each in self._failed.values()))

    # -- batches ----------------------------------------------------------------------------------

    def _run_batch(self, writer: BatchWriter) -> bool:
        """Archive what comes next; return whether there was anything."""
        self._lake.catch_up(self._ledger)
        plan = self._plan()
        if not plan:
            return False
        failed = self._write_or_divide(writer, plan)
        for topic, error in failed.items():
            self._fail(topic, error)
        if self._job.interval is not None and len(failed) == len(plan.topics()):
            raise self._failure()
        return True

    def _write_or_divide(self, writer: BatchWriter, plan: Plan) -> dict[str, PixyError]:
        """Write a batch; if that fails, write each topic's part alone. Return the topics that failed, and why."""
        topics = plan.topics()
        try:
            self._write(writer, plan)
        except Overlap as error:
            logger.info("job %s plans again: %s", self._job.name, error)
        except PixyError as error:
            if len(topics) == 1:
                return {topics[0]: error}
            logger.warning("a batch of %d topics failed, each is tried alone: %s", len(topics), error)
            failed: dict[str, PixyError] = {}
            for topic in topics:
                failed |= self._write_or_divide(writer, plan.only(topic))
            return failed
        return {}

    def _fail(self, topic: str, error: PixyError) -> None:
        if str(self._failed.get(topic)) != str(error):
            logger.warning("topic %s cannot be archived: %s", topic, error)
        self._failed[topic] = error

    def _plan(self) -> Plan:
        counts = self._view.topics()
        try:
            names = self._job.subscription.names(counts)
        except SourceError:
            if self._job.interval is None:
                raise
            return Plan()  # topics that match the pattern may come again
        failed: dict[str, PixyError] = missing_topics(names, counts, self._ledger)
        if self._job.interval is None:
            failed = {**failed, **self._failed}  # once failed, a topic is left to the next run
        ids = self._view.topic_ids([name for name in names if name not in failed])
        bounds = self._bounds({name: counts[name] for name in ids}, failed)
        if self._job.interval is None:
            # What Kafka got since the run began is left to the next run.
            if self._targets is None:
                self._targets = {tp: end for tp, (_, end) in bounds.items()}
            bounds = {tp: each for tp, each in bounds.items() if tp in self._targets}
        fresh = [
            (topic, partition) for topic, partition in bounds if self._ledger.topic_ids.get(topic) is None
        ]
        plan = plan_batch(
            self._ledger,
            {topic: id_ for topic, id_ in ids.items() if topic not in failed},
            bounds,
            starting_offsets(self._view, fresh, self._job.start),
            self._limit(),
            until=self._targets or {},
            skip_lost=self._job.skip_lost,
        )
        for topic, error in {**failed, **plan.failed}.items():
            self._fail(topic, error)
        self._failed = {**failed, **plan.failed}
        if self._job.interval is not None and len(self._failed) == len(names):
            raise self._failure()
        return plan

    def _bounds(
        self, counts: dict[str, int], failed: dict[str, PixyError]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Ask for the bounds of all partitions; a topic whose leaders do not answer fails alone."""

        def ask(names: Sequence[str]) -> dict[TopicPartition, tuple[int, int]]:
            partitions = [(name, number) for name in names for number in range(counts[name])]
            found = self._view.bounds(partitions, committed=self._job.read_committed)
            # A job that read uncommitted records before may be ahead of the last stable offset.
            ahead = [tp for tp, (_, end) in found.items() if (self._end(tp) or 0) > end]
            if ahead and self._job.read_committed:
                log_ends = self._view.bounds(ahead, committed=False)
                found |= {tp: (log_ends[tp][0], min(self._end(tp) or 0, log_ends[tp][1])) for tp in ahead}
            return found

        try:
            return ask(list(counts))
        except PixyError:
            if len(counts) == 1:
                raise
        found: dict[TopicPartition, tuple[int, int]] = {}
        for name in counts:
            try:
                found |= ask([name])
            except PixyError as error:
                failed[name] = error
        return found

    def _end(self, tp: TopicPartition) -> int | None:
        topic, partition = tp
        return self._ledger.end((topic, self._ledger.topic_ids.get(topic, ""), partition))

    def _limit(self) -> int:
        job = self._job
        if not job.max_rate:
            return job.batch_records
        return min(job.batch_records, max(1, round(job.max_rate * (job.interval or _DEFAULT_INTERVAL))))

    def _write(self, writer: BatchWriter, plan: Plan) -> None:
        began = time.monotonic()
        try:
            entry = writer.write(plan, self._read)
        except (PySparkException, Py4JError) as error:
            raise explain(str(error), self._job, cause(str(error))) from error
        self._lake.follow(at_least=FOLLOW_EVERY)
        self.progress.add(entry, time.monotonic() - began)
        self.progress.add_decoded(writer.decoded)
        self._report(entry)
        if self._job.max_rate:
            count = sum(each.stats.count for each in entry.ranges)
            self.stopping.wait(count / self._job.max_rate - (time.monotonic() - began))

    def _read(self, ranges: Sequence[Range]) -> DataFrame:
        options: dict[str, Any] = {
            **_FETCH,
            **kafka_options(self._job.proxy),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "groupIdPrefix": f"kafka-pixy-{self._job.name}",
            "kafka.isolation.level": "read_committed" if self._job.read_committed else "read_uncommitted",
        }
        return read_ranges(
            self._spark, {(each.topic, each.partition): (each.start, each.end) for each in ranges}, options
        )

    def _report(self, entry: Entry) -> None:
        """Report progress. A broker that does not answer here fails no batch."""
        ends = self.progress.offsets
        try:
            bounds = self._view.bounds(list(ends), committed=self._job.read_committed)
            self.progress.lag = {partition: bounds[partition][1] - end for partition, end in ends.items()}
            if self._job.commit_as:
                done = {(each.topic, each.partition): each.end for each in entry.ranges}
                self._view.commit(self._job.commit_as, [Commit(*tp, end, "") for tp, end in done.items()])
        except PixyError as error:
            logger.warning("cannot report the progress of job %s: %s", self._job.name, error)
        self._on_progress(self.progress, entry)


def admin_view(proxy: Proxy) -> ClusterView:
    """Return a view of a configured cluster; a request may take ``net.dial_timeout``."""
    return ClusterView(settings.admin(proxy), proxy.net.dial_timeout)

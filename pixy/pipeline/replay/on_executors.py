"""Write a replay's records on Spark's executors: a task for each partition, which keeps its partition.

The tasks read the lake and write to Kafka themselves; no record comes to the driver. Each has its own parts of the map and
its own lock in the replay's folder, so driver and executors must have that folder in common, on a file system with locks. A task
that runs again, after an executor was lost, continues as a replay does after a kill.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pixy.config import Proxy
from pixy.errors import PixyError
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.bulk import bulk_settings
from pixy.pipeline.errors import PipelineError
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.locations import Location
from pixy.pipeline.lake.selection import SavedMatches
from pixy.pipeline.lake.state import State
from pixy.pipeline.replay.state import MATCHES, PLAN, ReplayState
from pixy.pipeline.replay.writer import Plan, Progress, ReplayWriter
from pixy.pipeline.spark.java_errors import cause

_GROUP: Final = "kafka-pixy-replay"


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a topic, as a task reads them."""

    location: Location
    files: tuple[DataFile, ...]

    def select(self, topic: str) -> list[DataFile]:
        """Return the files of a topic."""
        return [file for file in self.files if file.topic == topic]


@dataclass(frozen=True, slots=True)
class PartitionTask:
    """The replay of one partition; small enough to be sent to an executor.

    Attributes:
        root: the lake.
        options: of delta-rs for the store.
        files: those that may hold records of the partition.
        plan: source and target; of this partition alone.
        folder: the replay's folder.
        saved: what the folder's plan holds, so that a task sees whether it has the same folder.
        proxy: the cluster's configuration.
    """

    root: str
    options: tuple[tuple[str, str], ...]
    files: tuple[DataFile, ...]
    plan: Plan
    folder: str
    saved: bytes
    proxy: Proxy

    def run(self) -> Progress | str:
        """Write what is not written yet; return the counts, or why it cannot be done."""
        try:
            return self._run()
        except PixyError as error:
            return str(error)

    def _run(self) -> Progress:
        (partition,) = self.plan.partitions
        state = ReplayState(self.folder, partition)
        try:
            same = (state.folder / PLAN).read_bytes() == self.saved
        except OSError:
            same = False
        if not same:
            raise PipelineError(
                f"an executor does not see {self.folder} as the driver does: give a --state on a file system that they share"
            )
        with state.locked():
            view = ClusterView(settings.admin(self.proxy), self.proxy.net.dial_timeout)
            bounds = view.bounds([(self.plan.to, partition)], committed=False)
            source = Source(Location(self.root, dict(self.options)), self.files)
            writer = ReplayWriter(
                source,
                source,
                self.plan,
                state,
                bulk_settings(
                    settings.producer(self.proxy, "consistent_random"), view.largest_batch(self.plan.to)
                ),
                settings.common(self.proxy),
                SavedMatches(str(state.folder / MATCHES)) if self.plan.selection.where else None,
            )
            writer.run({partition: bounds[self.plan.to, partition][1]})
            return writer.progress


class ExecutorWriter:
    """One run of a replay on executors; used as :class:`pixy.pipeline.replay.writer.ReplayWriter` is.

    Args:
        spark: the session.
        lake: the lake.
        lake_state: its folded log.
        plan: source and target.
        state: plan and map of earlier runs.
        proxy: the cluster's configuration. Files that it names must be on the executors, too.
        on_progress: called at the end.

    Attributes:
        progress: counts of the run.
        stopping: set it to end the run.

    Raises:
        PipelineError: the records are not to keep their partition.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        lake_state: State,
        plan: Plan,
        state: ReplayState,
        proxy: Proxy,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        if not plan.keep:
            raise PipelineError("executors write partition by partition: --partitioner must be keep")
        self._context = spark.sparkContext
        self._tasks = [
            PartitionTask(
                lake.location.root,
                tuple(lake.location.options.items()),
                tuple(file for file in lake_state.select(plan.topic) if file.may_hold(number)),
                replace(
                    plan,
                    partitions=(number,),
                    starts={number: plan.starts[number]},
                    max_rate=self._share(plan),
                ),
                str(state.folder),
                (state.folder / PLAN).read_bytes(),
                proxy,
            )
            for number in plan.partitions
        ]
        self._on_progress = on_progress
        self.progress = Progress()
        self.stopping = threading.Event()

    def _share(self, plan: Plan) -> int:
        """Divide the rate among the tasks that run at a time."""
        if not plan.max_rate:
            return 0
        return max(1, plan.max_rate // min(len(plan.partitions), self._context.defaultParallelism))

    def run(self) -> str:
        """Write the records that are not written yet, until done or asked to stop.

        Returns:
            ``done`` or ``asked to stop``.

        Raises:
            PipelineError: a task failed; a later run resumes where this one ended.
        """
        if not self._tasks:
            return "done"
        ended = threading.Event()
        watcher = threading.Thread(target=self._cancel_when_stopping, args=(ended,), daemon=True)
        watcher.start()
        try:
            self._context.setJobGroup(_GROUP, "replay", interruptOnCancel=True)
            found = self._context.parallelize(self._tasks, len(self._tasks)).map(PartitionTask.run).collect()
        except (PySparkException, Py4JError) as error:
            if self.stopping.is_set():
                return "asked to stop"
            raise PipelineError(f"a task of the replay failed: {cause(str(error))}") from error
        finally:
            ended.set()
        faults = [each for each in found if isinstance(each, str)]
        for each in found:
            if isinstance(each, Progress):
                self.progress.records += each.records
                self.progress.found += each.found
                self.progress.skipped += each.skipped
        self._on_progress(self.progress)
        if faults:
            raise PipelineError("; ".join(sorted(set(faults))[:3]))
        return "done"

    def _cancel_when_stopping(self, ended: threading.Event) -> None:
        while not ended.wait(0.2):
            if self.stopping.is_set():
                self._context.cancelJobGroup(_GROUP)


__all__ = ["ExecutorWriter", "PartitionTask"]

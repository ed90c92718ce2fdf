"""Run a replay from the request to its end: checks, plan, records, group offsets."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from pixy.config import Proxy
from pixy.errors import KafkaError
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.bulk import bulk_settings
from pixy.kafka.consumer import Commit
from pixy.pipeline.errors import PipelineError, SourceError, UsageError
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.removal import counts
from pixy.pipeline.lake.selection import (
    Piece,
    SavedMatches,
    Selection,
    partitions_of,
    save_matches,
)
from pixy.pipeline.lake.state import State
from pixy.pipeline.replay.group_offsets import last_by, translate_offset
from pixy.pipeline.replay.own_topic import refuse_own_topic
from pixy.pipeline.replay.request import ReplayRequest
from pixy.pipeline.replay.state import MATCHES, ReplayState
from pixy.pipeline.replay.writer import Change, Plan, Progress, ReplayWriter, count

CREATED = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
"""Settings of a topic that ``create`` makes."""

Finder = Callable[[Sequence[str], str, Mapping[str, pa.DataType]], Iterable[Piece]]
"""Evaluates SQL over files, with Spark, given the columns of decoded values; returns the matches, sorted."""


class Writer(Protocol):
    """A running writer."""

    progress: Progress
    stopping: threading.Event
    """Set it to end the run."""


class OtherWriter(Writer, Protocol):
    """A writer that knows the ends of the partitions itself."""

    def run(self) -> str:
        """Write; return ``done`` or ``asked to stop``."""


Executors = Callable[[Lake, State, Plan, ReplayState, Proxy, Callable[[Progress], None]], OtherWriter]
"""Makes the writer that Spark's executors run."""


@dataclass
class Result:
    """Result of a run.

    Attributes:
        ended: ``done``, ``done before``, ``asked to stop`` or ``dry run``.
        progress: counts of the run.
        selected: of a dry run, the number of records by partition.
        groups: committed offsets, a row for each group and partition.
        removed: records of the selected offsets and times that the lake no longer has, by reason: ``expired``, ``erased``.
            Which of them the other conditions would have chosen is unknown.
    """

    ended: str = "done"
    progress: Progress = field(default_factory=Progress)
    selected: dict[int, int] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)


class ReplayJob:
    """A replay, checked against lake and cluster.

    Args:
        lake: the lake.
        request: what to replay.
        proxy: the cluster's configuration.
        view: the cluster, to ask for topics and offsets.
        state: the replay's folder.
        find: evaluates the request's SQL condition; needed if it has one.
        on_progress: called now and then with the counts.
        on_remark: called with texts that the user should know before the replay begins.
        change: returns records of a partition as they are to be written; None for as they are.
        executors: makes the writer that Spark's executors run; None to write here.
        cluster: the cluster's name in the configuration.

    Attributes:
        writer: the running writer; None before it starts.

    Raises:
        UsageError: the lake does not have the topic.
    """

    def __init__(
        self,
        lake: Lake,
        request: ReplayRequest,
        proxy: Proxy,
        view: ClusterView,
        state: ReplayState,
        find: Finder | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_remark: Callable[[str], None] = lambda _: None,
        change: Change | None = None,
        executors: Executors | None = None,
        cluster: str = "",
    ) -> None:
        self._on_remark = on_remark
        self._change = change
        self._executors = executors
        self._cluster = cluster
        self._lake = lake
        self._request = request
        self._proxy = proxy
        self._view = view
        self._state = state
        self._find = find
        self._on_progress = on_progress
        self._lake_state: State = lake.state({request.topic: request.topic_id})
        self.writer: Writer | None = None
        if request.topic not in self._lake_state.topics():
            raise UsageError(
                f"{lake.location.root} has no topic {request.topic}{request.topic_id and f' with id {request.topic_id}'}; it has {', '.join(self._lake_state.topics()) or 'none'}"
            )

    def dry_run(self) -> Result:
        """Count the records that a run would write; write nothing. Refuses what a run refuses for its topic."""
        self._refuse_own_topic()
        selection = self._with_ends(self._request.selection)
        partitions = self._partitions(selection)
        with tempfile.TemporaryDirectory(prefix="kafka-pixy-") as folder:
            matches = None
            if selection.where:
                save_matches(self._find_pieces(partitions, selection), f"{folder}/{MATCHES}")
                matches = SavedMatches(f"{folder}/{MATCHES}")
            topic = self._request.topic
            selected = count(self._lake, self._lake_state, topic, partitions, selection, matches)
        return Result("dry run", selected=selected, removed=self._removed())

    def run(self) -> Result:
        """Write the records that are not written yet, then the groups' offsets.

        Raises:
            PixyError: the text names what is wrong; a later run resumes where this one ended.
        """
        self._refuse_own_topic()
        request = self._request
        self._on_remark(f"replaying {request.topic} to {request.to}; state in {self._state.folder}")
        with self._state.locked():
            cluster_id = self._view.cluster_id()
            plan = self._state.load(self._request.identity(self._lake.identity.id, cluster_id))
            result = Result(removed=self._removed())
            if plan is None:
                plan = self._prepare(cluster_id)
            self._check_target(plan)
            if plan.get("finished"):
                result.ended = "done before"
                result.progress.skipped = len(self._state.map())
            else:
                self._write(plan, result)
            if result.ended != "asked to stop":
                result.groups = self._commit_groups(plan)
            return result

    def _refuse_own_topic(self) -> None:
        id_ = self._lake_state.topic_id(self._request.topic)
        refuse_own_topic(self._request, self._lake.identity, id_, self._cluster, self._view)

    # -- plan -------------------------------------------------------------------------------------

    def _with_ends(self, selection: Selection) -> Selection:
        return replace(selection, ends=partitions_of(self._lake_state, self._request.topic))

    def _removed(self) -> dict[str, int]:
        selection = self._with_ends(self._request.selection)
        removed = {
            partition: ranges
            for (topic, partition), ranges in self._lake_state.removed.items()
            if topic == self._request.topic
        }
        bounds = {partition: found for partition in removed if (found := selection.bounds(partition))}
        return counts(
            [each for each in removed[partition] if selection.may_hold(each.range.stats, *found)]
            for partition, found in bounds.items()
        )

    def _partitions(self, selection: Selection) -> tuple[int, ...]:
        there = tuple(selection.ends)
        wanted = {*selection.partitions, *selection.offsets}
        unknown = sorted(wanted - set(there))
        if unknown:
            raise UsageError(
                f"topic {self._request.topic} has no partition {', '.join(map(str, unknown))} in the lake; it "
                f"has {', '.join(map(str, there))}"
            )
        return tuple(number for number in there if selection.bounds(number) is not None)

    def _prepare(self, cluster_id: str) -> dict[str, Any]:
        request = self._request
        selection = self._with_ends(request.selection)
        partitions = self._partitions(selection)
        topics = self._view.topics()
        if request.to not in topics:
            if not request.create:
                raise SourceError(f"topic {request.to} does not exist; --create creates it")
            self._view.create_topic(request.to, max(selection.ends) + 1, CREATED)
            self._on_remark(
                f"topic {request.to} was created with retention.ms=-1, so it keeps records forever: retention goes by "
                "their timestamps, and a limit would delete old records as soon as they are written"
            )
            topics = self._view.topics()
        self._check_settings()
        if request.partitioner == "keep" and max(partitions, default=0) >= topics[request.to]:
            raise UsageError(
                f"topic {request.to} has {topics[request.to]} partitions, records of partition {max(partitions)} "
                "cannot keep theirs; give it more, or choose a --partitioner"
            )
        targets = [(request.to, number) for number in range(topics[request.to])]
        bounds = self._view.bounds(targets, committed=False)
        if selection.where:
            self._state.folder.mkdir(parents=True, exist_ok=True)
            save_matches(self._find_pieces(partitions, selection), str(self._state.folder / MATCHES))
        plan = {
            "asked": request.identity(self._lake.identity.id, cluster_id),
            "seq": self._lake_state.seq,
            "to_id": self._view.topic_ids([request.to]).get(request.to, ""),
            "ends": {str(number): end for number, end in selection.ends.items()},
            "starts": {str(number): end for (_, number), (_, end) in bounds.items()},
        }
        self._state.save(plan)
        return plan

    def _check_target(self, plan: dict[str, Any]) -> None:
        now = self._view.topic_ids([self._request.to]).get(self._request.to)
        if now is None:
            raise SourceError(f"topic {self._request.to} no longer exists")
        if plan["to_id"] and now != plan["to_id"]:
            raise SourceError(
                f"topic {self._request.to} was deleted and created again since this replay began; give another "
                "--state to start over"
            )

    def _check_settings(self) -> None:
        request = self._request
        try:
            found = self._view.topic_settings(request.to)
        except KafkaError as error:
            self._on_remark(f"cannot read the settings of topic {request.to}: {error}")
            return
        if found.get("message.timestamp.type") == "LogAppendTime" and not request.any_timestamp_type:
            raise UsageError(
                f"topic {request.to} has message.timestamp.type=LogAppendTime: the broker would replace the "
                "original timestamps; change it, or give --any-timestamp-type"
            )
        retention = int(found.get("retention.ms") or -1)
        if "delete" in found.get("cleanup.policy", "delete") and retention >= 0:
            self._on_remark(
                f"topic {request.to} keeps records for {retention / 3_600_000:g} h by their timestamps: older "
                "records are deleted soon after they are written (retention.ms)"
            )

    # -- records ----------------------------------------------------------------------------------

    def _find_pieces(self, partitions: Sequence[int], selection: Selection) -> Iterable[Piece]:
        if self._find is None:
            raise UsageError("--where needs Spark")
        files = [
            self._lake.location.for_spark(file.path)
            for file in self._lake_state.select(self._request.topic)
            if any(file.may_hold(number) for number in partitions)
        ]
        return self._find(files, selection.where, self._lake.table.typed_columns())

    def _write(self, plan: dict[str, Any], result: Result) -> None:
        request = self._request
        ends = {int(number): end for number, end in plan["ends"].items()}
        selection = replace(request.selection, ends=ends)
        starts = {int(number): start for number, start in plan["starts"].items()}
        what = Plan(
            request.topic,
            request.to,
            selection,
            self._partitions(selection),
            starts,
            request.partitioner == "keep",
            request.now_if_missing,
            request.max_rate,
        )
        if self._executors is not None:
            self.writer = there = self._executors(
                self._lake, self._lake_state, what, self._state, self._proxy, self._on_progress
            )
            result.progress = there.progress
            result.ended = there.run()
        else:
            self._write_here(what, result)
        if result.ended == "done":
            self._state.save(
                {
                    **{key: value for key, value in plan.items() if key not in ("format", "version")},
                    "finished": True,
                }
            )

    def _write_here(self, what: Plan, result: Result) -> None:
        request, keep = self._request, what.keep
        bounds = self._view.bounds([(request.to, number) for number in what.starts], committed=False)
        matches = SavedMatches(str(self._state.folder / MATCHES)) if what.selection.where else None
        self.writer = here = ReplayWriter(
            self._lake,
            self._lake_state,
            what,
            self._state,
            bulk_settings(
                settings.producer(self._proxy, "consistent_random" if keep else request.partitioner),
                self._view.largest_batch(request.to),
            ),
            settings.common(self._proxy),
            matches,
            self._on_progress,
            self._change,
        )
        result.progress = here.progress
        result.ended = here.run({number: end for (_, number), (_, end) in bounds.items()})

    # -- groups -----------------------------------------------------------------------------------

    def _commit_groups(self, plan: dict[str, Any]) -> list[dict[str, Any]]:
        request = self._request
        if not request.groups:
            return []
        table = self._state.map()
        starts = {int(number): start for number, start in plan["starts"].items()}
        newest = last_by(table, "new_partition", "new_offset")
        rows: list[dict[str, Any]] = []
        for group, new_group in request.groups:
            sources = [(request.topic, int(number)) for number in plan["ends"]]
            committed = {
                partition: offset
                for (_, partition), (offset, _) in self._view.committed(group, sources).items()
            }
            if not committed:
                raise PipelineError(f"group {group} has no committed offsets of topic {request.topic}")
            offsets = translate_offset(table, committed, starts)
            if request.partitioner == "keep":
                offsets = {number: offset for number, offset in offsets.items() if number in committed}
            self._view.commit(
                new_group,
                [Commit(request.to, number, offset, "") for number, offset in sorted(offsets.items())],
            )
            rows += [
                {
                    "group": new_group,
                    "partition": number,
                    "offset": offset,
                    "lag": max(newest.get(number, offset - 1) + 1 - offset, 0),
                    "was": committed.get(number, "-"),
                }
                for number, offset in sorted(offsets.items())
            ]
        return rows

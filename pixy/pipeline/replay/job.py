"""A replay from the command line's wishes to its end: checks, plan, records, group offsets."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pixy.config import Proxy
from pixy.errors import KafkaError
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.bulk import bulk_settings
from pixy.kafka.consumer import Commit
from pixy.pipeline.errors import PipelineError, SourceError, UsageError
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.selection import Matches, Selection, load_matches, partitions_of, save_matches
from pixy.pipeline.lake.state import State
from pixy.pipeline.replay.state import MATCHES, ReplayState, last_by, translate_offset
from pixy.pipeline.replay.writer import Done, Plan, Replay, count

PARTITIONERS = ("keep", "murmur2_random", "fnv1a_random", "consistent_random")
"""``keep``, or one of librdkafka's: Java's, Sarama's (the proxy's), librdkafka's own."""

CREATED = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
"""Settings of a topic made by ``create``."""

Finder = Callable[[Sequence[str], str], Any]
"""Files and SQL to a pyarrow table of partition and offset; it takes Spark."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to replay and how; see the command's options."""

    topic: str
    to: str
    selection: Selection
    partitioner: str = "keep"
    create: bool = False
    any_timestamp_type: bool = False
    now_if_missing: bool = False
    max_rate: int = 0
    groups: tuple[tuple[str, str], ...] = ()
    """(group of the old topic, group to commit for)"""

    def asked(self, lake: str, cluster_id: str) -> dict[str, Any]:
        """What makes it this replay and no other, as JSON."""
        selection = asdict(replace(self.selection, ends={}))
        selection["partitions"] = sorted(self.selection.partitions)
        selection["keys"] = [key.hex() for key in self.selection.keys]
        document = {
            "lake": lake,
            "cluster_id": cluster_id,
            "topic": self.topic,
            "to": self.to,
            "selection": selection,
            "partitioner": self.partitioner,
        }
        return dict(json.loads(json.dumps(document)))

    def name(self, lake: str) -> str:
        """A name that the same wish always has."""
        text = json.dumps(self.asked(lake, ""), sort_keys=True)
        return f"{self.topic}-to-{self.to}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass
class Result:
    """The end of a run."""

    ended: str = "done"
    done: Done = field(default_factory=Done)
    selected: dict[int, int] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)


class ReplayJob:
    """A replay, checked against lake and cluster.

    Args:
        find: evaluates SQL; needed if the wish has any.
        remark: told what is worth knowing before it begins.
    """

    def __init__(
        self,
        lake: Lake,
        wish: Wish,
        proxy: Proxy,
        view: ClusterView,
        kept: ReplayState,
        find: Finder | None = None,
        told: Callable[[Done], None] = lambda _: None,
        remark: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._remark = remark
        self._lake = lake
        self._wish = wish
        self._proxy = proxy
        self._view = view
        self._kept = kept
        self._find = find
        self._told = told
        self._log: State = lake.state()
        self.replay: Replay | None = None
        if wish.topic not in self._log.topics():
            raise UsageError(
                f"{lake.store.root} has no topic {wish.topic}; it has {', '.join(self._log.topics()) or 'none'}"
            )

    def dry_run(self) -> Result:
        """Count what would be written; nothing is."""
        selection = self._with_ends(self._wish.selection)
        partitions = self._partitions(selection)
        matches = self._find_matches(partitions, selection) if selection.where else None
        return Result(
            "dry run", selected=count(self._lake, self._log, self._wish.topic, partitions, selection, matches)
        )

    def run(self) -> Result:
        """Write what is not there yet, then the groups' offsets; see :class:`Replay`."""
        with self._kept.locked():
            cluster_id = self._view.cluster_id()
            plan = self._kept.load(self._wish.asked(self._lake.identity.id, cluster_id))
            result = Result()
            if plan is None:
                plan = self._prepare(cluster_id)
            self._check_target(plan)
            if plan.get("finished"):
                result.ended = "done before"
                result.done.skipped = len(self._kept.map())
            else:
                self._write(plan, result)
            if result.ended != "asked to stop":
                result.groups = self._commit_groups(plan)
            return result

    # -- plan -------------------------------------------------------------------------------------

    def _with_ends(self, selection: Selection) -> Selection:
        return replace(selection, ends=partitions_of(self._log, self._wish.topic))

    def _partitions(self, selection: Selection) -> tuple[int, ...]:
        there = tuple(selection.ends)
        wanted = {*selection.partitions, *selection.offsets}
        unknown = sorted(wanted - set(there))
        if unknown:
            raise UsageError(
                f"topic {self._wish.topic} has no partition {', '.join(map(str, unknown))} in the lake; it "
                f"has {', '.join(map(str, there))}"
            )
        return tuple(number for number in there if selection.bounds(number) is not None)

    def _prepare(self, cluster_id: str) -> dict[str, Any]:
        wish = self._wish
        selection = self._with_ends(wish.selection)
        partitions = self._partitions(selection)
        topics = self._view.topics()
        if wish.to not in topics:
            if not wish.create:
                raise SourceError(f"topic {wish.to} does not exist; --create makes it")
            self._view.create_topic(wish.to, max(selection.ends) + 1, CREATED)
            self._remark(
                f"topic {wish.to} was created with retention.ms=-1, it keeps records for ever: retention goes by "
                "their timestamps, and a bounded one would delete old records as soon as they are written"
            )
            topics = self._view.topics()
        self._check_settings()
        if wish.partitioner == "keep" and max(partitions, default=0) >= topics[wish.to]:
            raise UsageError(
                f"topic {wish.to} has {topics[wish.to]} partitions, records of partition {max(partitions)} "
                "can not keep theirs; give it more, or choose a --partitioner"
            )
        places = [(wish.to, number) for number in range(topics[wish.to])]
        bounds = self._view.bounds(places, committed=False)
        if selection.where:
            self._kept.folder.mkdir(parents=True, exist_ok=True)
            save_matches(self._table(partitions, selection), str(self._kept.folder / MATCHES))
        plan = {
            "asked": wish.asked(self._lake.identity.id, cluster_id),
            "seq": self._log.seq,
            "to_id": self._view.topic_ids([wish.to]).get(wish.to, ""),
            "ends": {str(number): end for number, end in selection.ends.items()},
            "starts": {str(number): end for (_, number), (_, end) in bounds.items()},
        }
        self._kept.save(plan)
        return plan

    def _check_target(self, plan: dict[str, Any]) -> None:
        now = self._view.topic_ids([self._wish.to]).get(self._wish.to)
        if now is None:
            raise SourceError(f"topic {self._wish.to} does not exist any more")
        if plan["to_id"] and now != plan["to_id"]:
            raise SourceError(
                f"topic {self._wish.to} was deleted and created again since this replay began; give another "
                "--state to begin anew"
            )

    def _check_settings(self) -> None:
        wish = self._wish
        try:
            found = self._view.topic_settings(wish.to)
        except KafkaError as error:
            self._remark(f"the settings of topic {wish.to} can not be read: {error}")
            return
        if found.get("message.timestamp.type") == "LogAppendTime" and not wish.any_timestamp_type:
            raise UsageError(
                f"topic {wish.to} has message.timestamp.type=LogAppendTime: the broker would replace the "
                "original timestamps; change it, or give --any-timestamp-type"
            )
        retention = int(found.get("retention.ms") or -1)
        if "delete" in found.get("cleanup.policy", "delete") and retention >= 0:
            self._remark(
                f"topic {wish.to} keeps records for {retention / 3_600_000:g} h by their timestamps: older "
                "ones are deleted soon after they were written (retention.ms)"
            )

    # -- records ----------------------------------------------------------------------------------

    def _table(self, partitions: Sequence[int], selection: Selection) -> Any:
        if self._find is None:
            raise UsageError("--where takes Spark, which is not there")
        files = [
            self._lake.path(file.path)
            for file in self._log.select(self._wish.topic)
            if any(number in file.partitions for number in partitions)
        ]
        return self._find(files, selection.where)

    def _find_matches(self, partitions: Sequence[int], selection: Selection) -> Matches:
        table = self._table(partitions, selection).sort_by("offset").to_pydict()
        found: dict[int, array[int]] = {}
        for partition, offset in zip(table["partition"], table["offset"], strict=True):
            found.setdefault(partition, array("q")).append(offset)
        return found

    def _write(self, plan: dict[str, Any], result: Result) -> None:
        wish = self._wish
        ends = {int(number): end for number, end in plan["ends"].items()}
        selection = replace(wish.selection, ends=ends)
        starts = {int(number): start for number, start in plan["starts"].items()}
        matches = load_matches(str(self._kept.folder / MATCHES)) if selection.where else None
        keep = wish.partitioner == "keep"
        bounds = self._view.bounds([(wish.to, number) for number in starts], committed=False)
        self.replay = Replay(
            self._lake,
            self._log,
            Plan(
                wish.topic,
                wish.to,
                selection,
                self._partitions(selection),
                starts,
                keep,
                wish.now_if_missing,
                wish.max_rate,
            ),
            self._kept,
            bulk_settings(settings.producer(self._proxy, "consistent_random" if keep else wish.partitioner)),
            settings.common(self._proxy),
            matches,
            self._told,
        )
        result.done = self.replay.done
        result.ended = self.replay.run({number: end for (_, number), (_, end) in bounds.items()})
        if result.ended == "done":
            self._kept.save(
                {
                    **{key: value for key, value in plan.items() if key not in ("format", "version")},
                    "finished": True,
                }
            )

    # -- groups -----------------------------------------------------------------------------------

    def _commit_groups(self, plan: dict[str, Any]) -> list[dict[str, Any]]:
        wish = self._wish
        if not wish.groups:
            return []
        table = self._kept.map()
        starts = {int(number): start for number, start in plan["starts"].items()}
        newest = last_by(table, "new_partition", "new_offset")
        rows: list[dict[str, Any]] = []
        for group, new_group in wish.groups:
            places = [(wish.topic, int(number)) for number in plan["ends"]]
            committed = {
                partition: offset
                for (_, partition), (offset, _) in self._view.committed(group, places).items()
            }
            if not committed:
                raise PipelineError(f"group {group} has no committed offsets of topic {wish.topic}")
            offsets = translate_offset(table, committed, starts)
            if wish.partitioner == "keep":
                offsets = {number: offset for number, offset in offsets.items() if number in committed}
            self._view.commit(
                new_group, [Commit(wish.to, number, offset, "") for number, offset in sorted(offsets.items())]
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

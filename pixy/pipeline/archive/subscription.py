"""Topics and starting offsets of an archive job, and the checks that Kafka still has its offsets."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pixy.kafka.blocking import ClusterView
from pixy.pipeline.archive.checkpoint import Offsets
from pixy.pipeline.errors import SourceError, UsageError
from pixy.pipeline.lake.state import State
from pixy.wire.types import TopicPartition

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A list of topics, or a pattern for whole names of topics.

    Raises:
        UsageError: both are given, or neither; a name is not one; the pattern is not a regular expression.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise UsageError("give either --topics or --pattern")
        for topic in self.topics:
            if not TOPIC.match(topic) or topic in (".", ".."):
                raise UsageError(f"--topics: {topic!r} is not a name of a topic")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise UsageError(f"--pattern {self.pattern!r} is not a regular expression: {error}") from error

    def __str__(self) -> str:
        return f"pattern {self.pattern}" if self.pattern else ",".join(self.topics)

    def option(self) -> tuple[str, str]:
        """Name and value of the option of Spark's Kafka source."""
        if self.pattern:
            return "subscribePattern", self.pattern
        return "subscribe", ",".join(self.topics)

    def find(self, topics: Mapping[str, int]) -> list[TopicPartition]:
        """Find the subscribed partitions.

        Args:
            topics: number of partitions of every topic in the cluster.

        Raises:
            SourceError: a topic does not exist, or none matches the pattern.
        """
        if self.pattern:
            names = sorted(name for name in topics if re.fullmatch(self.pattern, name))
            if not names:
                raise SourceError(f"no topic matches the pattern {self.pattern!r}")
        else:
            names = list(self.topics)
            missing = [name for name in names if name not in topics]
            if missing:
                raise SourceError(f"topic {', '.join(missing)} does not exist")
        return [(name, number) for name in names for number in range(topics[name])]

    def job_name(self, cluster: str) -> str:
        """A job name derived from cluster and topics, so repeating the command finds the same job."""
        text = f"{cluster}-{self}"
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:48]
        return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def check_job_name(name: str) -> str:
    """Return the name; raise UsageError if it is not one for a job."""
    if not _JOB.match(name):
        raise UsageError(f"--job {name!r}: letters, digits, '.', '_' and '-', 80 at most")
    return name


def check_topic_ids(state: State, now: Mapping[str, str]) -> None:
    """Raise SourceError if a topic was deleted and created again since it was archived.

    Args:
        state: the folded log of the lake.
        now: Kafka's id of each topic; empty where the broker gives none.
    """
    then = {topic: ranges[-1].range.topic_id for (topic, _), ranges in state.ranges.items() if ranges}
    for topic, id_ in now.items():
        before = then.get(topic)
        if before and id_ and before != id_:
            raise SourceError(
                f"topic {topic} was deleted and created again: the lake has the one with id {before}, "
                f"the cluster has {id_}, and its offsets start again at 0; archive it into another lake"
            )


def check_offsets(resume: Offsets, bounds: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Raise SourceError if the broker lacks the next offset of a partition.

    Args:
        resume: the next offset of each archived partition.
        bounds: the oldest offset of each partition, and the next one to be written.
    """
    gone = sorted({topic for topic, _ in set(resume) - set(bounds)})
    if gone:
        raise SourceError(f"partitions of topic {', '.join(gone)} are gone: it was deleted")
    for (topic, partition), offset in sorted(resume.items()):
        begin, end = bounds[topic, partition]
        if offset < begin:
            raise SourceError(
                f"offsets {offset} to {begin - 1} of {topic}/{partition} are out of range: they were "
                "deleted (retention, DeleteRecords) before they were archived; --on-data-loss skip "
                f"continues at {begin}"
            )
        if offset > end:
            raise SourceError(
                f"{topic}/{partition} ends at offset {end}, but it was archived up to {offset}: the topic "
                "was deleted and created again, or lost its end"
            )


def starting_offsets(
    view: ClusterView, partitions: Iterable[TopicPartition], start: str | int, resume: Offsets
) -> str:
    """Build Spark's ``startingOffsets``, JSON that names every partition.

    Args:
        view: the cluster.
        partitions: all partitions of the job.
        start: ``start``, ``end`` or milliseconds of the epoch: where a partition begins that is not in
            ``resume``.
        resume: the next offset of the partitions that the job has archived before.
    """
    fresh = [partition for partition in partitions if partition not in resume]
    found: Offsets = {}
    if fresh and start != "start":
        bounds = view.bounds(fresh)
        found = {partition: bounds[partition][1] for partition in fresh}
        if start != "end":
            for tp, first in view.offsets_at(fresh, int(start)).items():
                if first >= 0:  # otherwise no record is that new, and the end stays
                    found[tp] = first
    elif fresh:
        found = {partition: begin for partition, (begin, _) in view.bounds(fresh).items()}
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in {**found, **resume}.items():
        document.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(document)

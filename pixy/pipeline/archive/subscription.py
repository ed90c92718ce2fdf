"""Which topics a job archives and from where; what the broker must still have for it to go on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pixy.kafka.blocking import ClusterView
from pixy.pipeline.errors import SourceError, UsageError
from pixy.pipeline.lake.lake import State
from pixy.wire.types import TopicPartition

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A list of topics, or a pattern that their whole names match."""

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
        """The option of Spark's Kafka source."""
        if self.pattern:
            return "subscribePattern", self.pattern
        return "subscribe", ",".join(self.topics)

    def find(self, topics: Mapping[str, int]) -> list[TopicPartition]:
        """The partitions meant, among all topics of the cluster; raises SourceError if none are."""
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
        """A name that the same command line always has, and no other."""
        text = f"{cluster}-{self}"
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:48]
        return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def check_job_name(name: str) -> str:
    """The name if a job can have it; raises UsageError."""
    if not _JOB.match(name):
        raise UsageError(f"--job {name!r}: letters, digits, '.', '_' and '-', 80 at most")
    return name


def check_topic_ids(state: State, now: Mapping[str, str]) -> None:
    """Raise SourceError for a topic that is not the one that the lake has.

    Args:
        now: by topic, Kafka's id of it; empty where the broker tells none.
    """
    then = {topic: ranges[-1].range.topic_id for (topic, _), ranges in state.ranges.items() if ranges}
    for topic, id_ in now.items():
        before = then.get(topic)
        if before and id_ and before != id_:
            raise SourceError(
                f"topic {topic} was deleted and created again: the lake has the one with id {before}, "
                f"the cluster has {id_}, and its offsets start anew; archive it into another lake"
            )


def check_offsets(resume: Offsets, bounds: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Raise SourceError if the broker no longer has what comes next, or never had it.

    Args:
        resume: the next offset of each partition that was archived before.
        bounds: the oldest offset and the next to be written of each partition.
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
                f"goes on at {begin}"
            )
        if offset > end:
            raise SourceError(
                f"{topic}/{partition} ends at offset {end}, but it was archived up to {offset}: the topic "
                "was deleted and created again, or lost its end"
            )


def starting_offsets(
    view: ClusterView, places: Iterable[TopicPartition], start: str | int, resume: Offsets
) -> str:
    """Spark's ``startingOffsets`` as JSON, every partition named.

    Args:
        start: ``start``, ``end`` or milliseconds; where a partition is not in ``resume``.
        resume: the next offset of partitions that the job archived before.
    """
    wanted = [place for place in places if place not in resume]
    found: Offsets = {}
    if wanted and start != "start":
        bounds = view.bounds(wanted)
        found = {place: bounds[place][1] for place in wanted}
        if start != "end":
            at = view.offsets_at(wanted, int(start))
            found = {place: at[place] if at[place] >= 0 else found[place] for place in wanted}
    elif wanted:
        found = {place: begin for place, (begin, _) in view.bounds(wanted).items()}
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in {**found, **resume}.items():
        document.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(document)

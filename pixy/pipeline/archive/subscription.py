"""Topics and starting offsets of an archive job."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pixy.kafka.blocking import ClusterView
from pixy.pipeline.errors import SourceError, UsageError
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

    def names(self, topics: Iterable[str]) -> list[str]:
        """Return the names of the subscribed topics, also of listed ones that do not exist.

        Args:
            topics: all topics in the cluster.

        Raises:
            SourceError: no topic matches the pattern.
        """
        if not self.pattern:
            return list(self.topics)
        names = sorted(name for name in topics if re.fullmatch(self.pattern, name))
        if not names:
            raise SourceError(f"no topic matches the pattern {self.pattern!r}")
        return names

    def find(self, topics: Mapping[str, int]) -> list[str]:
        """Return the names of the subscribed topics that exist.

        Args:
            topics: number of partitions of every topic in the cluster.

        Raises:
            SourceError: there is none.
        """
        names = self.names(topics)
        found = [name for name in names if name in topics]
        if not found:
            raise SourceError(f"topic {', '.join(names)} does not exist")
        return found

    def job_name(self, cluster: str) -> str:
        """Return a job name derived from cluster and topics, so repeating the command finds the same job."""
        text = f"{cluster}-{self}"
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:48]
        return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def check_job_name(name: str) -> str:
    """Return the name; raise UsageError if it is not one for a job."""
    if not _JOB.match(name):
        raise UsageError(f"--job {name!r}: letters, digits, '.', '_' and '-', 80 at most")
    return name


def starting_offsets(
    view: ClusterView, partitions: Sequence[TopicPartition], start: str | int
) -> dict[TopicPartition, int]:
    """Find where partitions begin that are new to the lake.

    Args:
        view: the cluster.
        partitions: the new partitions.
        start: ``start``, ``end`` or milliseconds of the epoch.

    Returns:
        Their first offsets; nothing for those that begin at their oldest offset.
    """
    if not partitions or start == "start":
        return {}
    found = {partition: end for partition, (_, end) in view.bounds(partitions).items()}
    if start != "end":
        # -1: no record is that new, and the end stays.
        found |= {tp: at for tp, at in view.offsets_at(partitions, int(start)).items() if at >= 0}
    return found

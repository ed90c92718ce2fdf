"""Find the offsets that wait: for a group to read them, or for the archive. Late ones are older than a stated bound.

How many are late takes one lookup by time for all partitions. When the oldest was written takes a look into
the log for each, so only the longest queues get that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pixy.config.model import Proxy
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.log_scan import scan_log
from pixy.pipeline.audit.open_sources import AuditSources
from pixy.pipeline.datasource.access import from_proxy
from pixy.wire.types import TopicPartition

MAX_LOOKUPS = 100
"""Queues whose oldest record is looked up in the log; each takes one fetch."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The offsets ``[start, end)`` of a partition, which a group or the archive has yet to read.

    Attributes:
        group: None for the archive.
        expired: offsets below ``start`` that the log lost before they were read.
        late: how many of the offsets are older than the bound.
        oldest: timestamp of the first late record, milliseconds since 1970; -1 if unknown.
    """

    topic: str
    partition: int
    group: str | None
    start: int
    end: int
    expired: int = 0
    late: int = 0
    oldest: int = -1


def find_waiting(sources: AuditSources, proxy: Proxy | None, late_after: int) -> list[Waiting]:
    """Return what waits in each partition, sorted; nothing if no cluster was asked.

    Args:
        sources: the opened sources.
        proxy: the cluster.
        late_after: the bound, milliseconds.

    Raises:
        KafkaError: the brokers do not answer.
        SourceError: the log cannot be read.
    """
    if sources.view is None or proxy is None:
        return []
    found = list(_queues(sources))
    young = _first_young(
        {(each.topic, each.partition) for each in found if each.start < each.end}, sources, late_after
    )
    queues = [_with_late(each, young) for each in found]
    late = sorted((each for each in queues if each.late), key=lambda each: -each.late)[:MAX_LOOKUPS]
    oldest = {each: _oldest(proxy, each) for each in late}
    return [replace(each, oldest=oldest.get(each, -1)) for each in queues]


def _queues(sources: AuditSources) -> Iterator[Waiting]:
    archived_topics = set(sources.archived_topics())
    for topic, partition in sources.partitions:
        bounds = sources.bounds.get((topic, partition))
        if bounds is None:
            continue
        positions: list[tuple[str | None, int]] = []
        if topic in archived_topics:
            positions.append((None, sources.archived_end((topic, partition)) or 0))
        positions += [
            (group, sources.committed[group, topic, partition])
            for group in sources.groups
            if sources.committed.get((group, topic, partition), -1) >= 0
        ]
        for group, position in positions:
            start = min(max(position, bounds[0]), bounds[1])
            # A lake that lacks the partition began later: nothing was promised.
            expired = start - position if position and position < bounds[0] else 0
            if expired or start < bounds[1]:
                yield Waiting(topic, partition, group, start, bounds[1], expired)


def _first_young(
    partitions: Iterable[TopicPartition], sources: AuditSources, late_after: int
) -> dict[TopicPartition, int]:
    """Return the first offset that is younger than the bound, by partition."""
    wanted = sorted(partitions)
    if not wanted or sources.view is None:
        return {}
    found = sources.view.offsets_at(wanted, sources.now // 1000 - late_after)
    return {tp: sources.bounds[tp][1] if offset < 0 else offset for tp, offset in found.items()}


def _with_late(each: Waiting, young: dict[TopicPartition, int]) -> Waiting:
    first = young.get((each.topic, each.partition), each.start)
    return replace(each, late=max(0, min(first, each.end) - each.start))


def _oldest(proxy: Proxy, each: Waiting) -> int:
    spans = scan_log(
        from_proxy(proxy), each.topic, each.partition, Intervals.span(each.start, each.start + 1), each.start
    )
    return min((timestamp for span in spans for _, timestamp in span.timestamps), default=-1)


__all__ = ["MAX_LOOKUPS", "Waiting", "find_waiting"]

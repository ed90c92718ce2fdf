"""Write the metrics as Prometheus and OpenMetrics read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from pixy import __version__
from pixy.console.metric_table import BY_NAME, MOST_SERIES, PREFIX
from pixy.console.watch import Watch
from pixy.engine.counters import OTHERS, ClusterCounters, ConsumeCounters, GroupCounters
from pixy.engine.meter import BOUNDS, Series
from pixy.findings import Finding, Snapshot

Row = tuple[tuple[str, ...], float]
"""Labels' values, and the value."""


class Edges:
    """The figures of the listeners.

    Args:
        uptime: seconds since the start.
        connections: returns how many are open, and how many were refused so far.
        lost_spans: returns how many spans were dropped, or not taken by the collector, so far.
    """

    def __init__(
        self,
        uptime: Callable[[], float],
        connections: Callable[[], tuple[int, int]],
        lost_spans: Callable[[], int] = lambda: 0,
    ) -> None:
        self.uptime = uptime
        self.connections = connections
        self.lost_spans = lost_spans


class _Once(Collector):
    """Gives the metrics of one scrape."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class Exposition:
    """Makes the text of each scrape.

    Args:
        watch: looks at the engine.
        edges: the listeners' figures.
    """

    def __init__(self, watch: Watch, edges: Edges) -> None:
        self._watch = watch
        self._edges = edges
        # The process's own metrics register once; those of a scrape are made for it.
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics, and their content type.

        Args:
            accept: the scraper's header: OpenMetrics, with exemplars, for those who take it.
        """
        snapshot, findings = await self._watch.findings()
        registry = CollectorRegistry()
        registry.register(_Once(list(self._metrics(snapshot, findings))))
        registry.register(_Once(list(self._process.collect())))
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def _metrics(self, snapshot: Snapshot, findings: list[Finding]) -> Iterator[Metric]:
        yield _family("info", [((__version__,), 1.0)])
        yield _family("uptime_seconds", [((), self._edges.uptime())])
        rules: dict[tuple[str, ...], float] = {}
        for each in findings:
            rules[each.rule, each.severity] = rules.get((each.rule, each.severity), 0.0) + 1
        yield _family("findings", sorted(rules.items()))
        yield _requests(self._watch.meter.series)
        yield _family("lost_spans", [((), self._edges.lost_spans())])
        connections, refused = self._edges.connections()
        yield _family("connections", [((), connections)])
        yield _family("refused_connections", [((), refused)])
        yield _family("loop_blocks", [((), self._watch.blocked)])
        yield from _clusters(snapshot)
        yield from _librdkafka(self._watch.counters)
        yield from _produced(self._watch.counters)
        yield from _consumed(self._watch.counters)
        yield from _groups(self._watch.counters)
        yield from _present(snapshot)
        yield from self._actors()

    def _actors(self) -> Iterator[Metric]:
        classes = sorted(self._watch.actors.classes.items())
        yield _family("actors", [((name,), each.actors) for name, each in classes])
        yield _family("mailbox_waiting_messages", [((name,), each.waiting) for name, each in classes])
        yield _family("mailbox_deepest", [((name,), each.deepest) for name, each in classes])
        yield _family("mailbox_oldest_seconds", [((name,), each.oldest) for name, each in classes])


def _family(name: str, rows: Iterable[Row]) -> Metric:
    described = BY_NAME[name]
    kind: Any = CounterMetricFamily if described.kind == "counter" else GaugeMetricFamily
    family: Any = kind(f"{PREFIX}{name}", described.text, labels=described.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family  # type: ignore[no-any-return]


def _bounded(rows: Iterable[Row], combine: Callable[[float, float], float] = float.__add__) -> list[Row]:
    """Keep the largest of too many rows, and add the others up under one label.

    Args:
        rows: labels' values, of which the first is the cluster's name, and values.
        combine: makes one value of two.
    """
    found = sorted(rows, key=lambda row: -row[1])
    if len(found) <= MOST_SERIES:
        return sorted(found)
    rest: dict[tuple[str, ...], float] = {}
    for labels, value in found[MOST_SERIES:]:
        key = (labels[0], *(OTHERS for _ in labels[1:]))
        rest[key] = combine(rest[key], value) if key in rest else value
    kept = [(labels, value) for labels, value in found[:MOST_SERIES] if labels not in rest]
    for labels, value in found[:MOST_SERIES]:
        if labels in rest:
            rest[labels] = combine(rest[labels], value)
    return sorted([*kept, *rest.items()])


def _requests(series: Mapping[tuple[str, str, str], Series]) -> Metric:
    described = BY_NAME["request_seconds"]
    family = HistogramMetricFamily(f"{PREFIX}request_seconds", described.text, labels=described.labels)
    for key, each in sorted(series.items()):
        buckets: list[Any] = []
        total = 0
        for at, count in enumerate(each.counts):
            total += count
            bound = str(BOUNDS[at]) if at < len(BOUNDS) else "+Inf"
            traced = each.exemplars.get(at)
            if traced is None:
                buckets.append((bound, total))
            else:
                trace, seconds, when = traced
                buckets.append((bound, total, Exemplar({"trace_id": trace}, seconds, when)))
        family.add_metric(key, buckets, each.total)
    return family


def _clusters(snapshot: Snapshot) -> Iterator[Metric]:
    clusters = snapshot.clusters
    yield _family("up", [((each.name,), 0.0 if each.down else 1.0) for each in clusters])
    yield _family("groups", [((each.name,), each.groups[0]) for each in clusters])
    yield _family("producer_topics", [((each.name,), each.producers[0]) for each in clusters])
    journals = [(each.name, each.journal) for each in clusters if each.journal is not None]
    yield _family("journal_held_events", [((name,), journal[0]) for name, journal in journals])
    yield _family("journal_lost_events", [((name,), journal[3]) for name, journal in journals])


def _librdkafka(counters: Mapping[str, ClusterCounters]) -> Iterator[Metric]:
    known = [(name, each.statistics) for name, each in counters.items() if each.statistics is not None]
    yield _family("producer_queue_messages", [((name,), each.messages) for name, each in known])
    yield _family("producer_queue_bytes", [((name,), each.bytes) for name, each in known])
    brokers = [(name, broker) for name, each in known for broker in each.brokers]
    rtts = [((name, each.name), each.rtt) for name, each in brokers if each.rtt is not None]
    yield _family("broker_rtt_seconds", rtts)
    yield _family("broker_up", [((name, each.name), float(each.up)) for name, each in brokers])
    yield _family("broker_queue_requests", [((name, each.name), each.queued) for name, each in brokers])


def _produced(counters: Mapping[str, ClusterCounters]) -> Iterator[Metric]:
    topics = [
        ((name, topic), counted)
        for name, each in counters.items()
        for topic, counted in each.produced.items()
    ]
    yield _family("produced_messages", _bounded((labels, float(each.delivered)) for labels, each in topics))
    yield _family("failed_messages", _bounded((labels, float(each.failed)) for labels, each in topics))


_CONSUMED: tuple[tuple[str, Callable[[ConsumeCounters], int]], ...] = (
    ("offered_messages", lambda each: each.offered),
    ("acked_messages", lambda each: each.acked),
    ("repeated_offers", lambda each: each.repeated),
    ("returned_offers", lambda each: each.returned),
    ("given_up_messages", lambda each: each.given_up),
    ("refused_acks", lambda each: each.refused),
)


def _consumed(counters: Mapping[str, ClusterCounters]) -> Iterator[Metric]:
    topics = [
        ((name, group, topic), counted)
        for name, cluster in counters.items()
        for group, each in cluster.groups.items()
        for topic, counted in each.topics.items()
    ]
    for metric, value in _CONSUMED:
        yield _family(metric, _bounded((labels, float(value(each))) for labels, each in topics))


_GROUPS: tuple[tuple[str, Callable[[GroupCounters], int]], ...] = (
    ("assigned_partitions", lambda each: each.assigned),
    ("revoked_partitions", lambda each: each.revoked),
    ("lost_partitions", lambda each: each.lost),
    ("session_failures", lambda each: each.session_failures),
    ("committed_offsets", lambda each: each.commits),
    ("failed_commits", lambda each: each.failed_commits),
)


def _groups(counters: Mapping[str, ClusterCounters]) -> Iterator[Metric]:
    groups = [
        ((name, group), each) for name, cluster in counters.items() for group, each in cluster.groups.items()
    ]
    for metric, value in _GROUPS:
        yield _family(metric, _bounded((labels, float(value(each))) for labels, each in groups))


def _present(snapshot: Snapshot) -> Iterator[Metric]:
    owned: dict[tuple[str, ...], float] = {}
    unacked: dict[tuple[str, ...], float] = {}
    oldest: dict[tuple[str, ...], float] = {}
    lags: dict[tuple[str, ...], float] = {}
    polls: dict[tuple[str, ...], float] = {}
    for group in snapshot.groups:
        of_group = (group.cluster, group.group)
        owned[of_group] = float(len(group.partitions))
        for topic in group.topics:
            polls[(*of_group, topic.topic)] = float(topic.polls)
        for own in group.partitions:
            key = (*of_group, own.topic)
            unacked[key] = unacked.get(key, 0.0) + own.pending
            age = 0.0 if own.oldest is None else own.oldest.age
            oldest[key] = max(oldest.get(key, 0.0), age)
            if own.lag is not None:
                lags[key] = lags.get(key, 0.0) + own.lag
    yield _family("owned_partitions", _bounded(owned.items()))
    yield _family("unacked_messages", _bounded(unacked.items()))
    yield _family("oldest_unacked_seconds", _bounded(oldest.items(), max))
    yield _family("waiting_polls", _bounded(polls.items()))
    yield _family("lag_messages", _bounded(lags.items()))


__all__ = ["Edges", "Exposition"]

"""The observer's counters in Prometheus' text format.

Labels are groups, topics, APIs and software, but never members or partitions, whose number is too high.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pixy.tap.groups import State
from pixy.tap.inventory import breaks
from pixy.tap.observer import Observer
from pixy.wire import schema

_COUNTS: Final = {
    "connections": "connections opened",
    "requests": "requests",
    "responses": "responses",
    "unknown": "requests of an unknown API or version; they are forwarded",
    "undecodable": "frames that cannot be decoded; they are forwarded",
    "unmatched": "responses that match no request",
    "unanswered": "requests without a response",
    "lost_sync": "connections that do not speak Kafka's protocol",
    "tls": "connections in TLS, which cannot be observed",
    "too_large": "frames too large to be captured",
    "not_observed": "frames not captured because the observer was behind",
    "lost_events": "events dropped because the observer was behind",
    "rewritten": "responses with rewritten addresses",
    "rewrite_failed": "responses whose addresses could not be rewritten",
    "hidden": "Produce and Fetch responses with hidden broker addresses",
    "api_versions_fallbacks": "ApiVersions requests of a version unknown to the broker",
    "defects": "defects of the tap itself",
}


class _Collector(Collector):
    def __init__(self, observer: Observer, backlog: int, now: float) -> None:
        self._observer, self._backlog, self._now = observer, backlog, now

    def collect(self) -> Iterator[Metric]:
        yield from self._traffic()
        yield from self._groups()
        yield from self._lags()
        yield from self._software()

    def _traffic(self) -> Iterator[Metric]:
        observer = self._observer
        for name, text in _COUNTS.items():
            yield CounterMetricFamily(
                f"kafka_tap_{name}", f"{text[0].upper()}{text[1:]}.", observer.counts[name]
            )
        passed = CounterMetricFamily("kafka_tap_bytes", "Bytes forwarded.", labels=["direction"])
        for direction in ("to_broker", "to_client"):
            passed.add_metric([direction], observer.counts[f"bytes_{direction}"])
        yield passed
        yield GaugeMetricFamily("kafka_tap_open_connections", "Open connections.", len(observer.connections))
        yield GaugeMetricFamily(
            "kafka_tap_backlog_bytes", "Bytes of captured frames that wait for the observer.", self._backlog
        )
        requests = CounterMetricFamily("kafka_tap_api_requests", "Requests by API.", labels=["api"])
        seconds = CounterMetricFamily(
            "kafka_tap_api_answer_seconds",
            "Time between requests and their responses, by API.",
            labels=["api"],
        )
        for key, count in sorted(observer.requests.items()):
            requests.add_metric([schema.keys().get(key, "unknown")], count)
        for key, total in sorted(observer.seconds.items()):
            seconds.add_metric([schema.keys().get(key, "unknown")], total)
        yield requests
        yield seconds
        yield CounterMetricFamily(
            "kafka_tap_sequence_gaps",
            "Gaps in the sequence numbers of idempotent producers.",
            observer.sequences.gaps,
        )
        forgotten = CounterMetricFamily(
            "kafka_tap_forgotten", "Entries forgotten at a limit.", labels=["kind"]
        )
        for kind, count in sorted(observer.totals()["forgotten"].items()):
            forgotten.add_metric([kind], count)
        yield forgotten

    def _groups(self) -> Iterator[Metric]:
        members = GaugeMetricFamily("kafka_tap_group_members", "Members of a group.", labels=["group"])
        generation = GaugeMetricFamily(
            "kafka_tap_group_generation", "Generation or epoch of a group.", labels=["group"]
        )
        state = GaugeMetricFamily(
            "kafka_tap_group_state", "1 for the current state of a group.", labels=["group", "state"]
        )
        anomalies = GaugeMetricFamily(
            "kafka_tap_group_anomalies", "Anomalies of a group.", labels=["group", "kind"]
        )
        for group in self._observer.registry.groups.values():
            if group.kind == "offsets":
                continue
            members.add_metric([group.id], len(group.members))
            generation.add_metric([group.id], group.generation)
            for each in State:
                state.add_metric([group.id, each.value], float(each is group.state))
            for kind, _ in sorted(group.anomalies):
                anomalies.add_metric([group.id, kind], 1)
        yield from (members, generation, state, anomalies)
        registry = self._observer.registry
        rebalances = CounterMetricFamily("kafka_tap_rebalances", "Rebalances by trigger.", labels=["trigger"])
        for trigger, count in sorted(registry.finished.items()):
            rebalances.add_metric([trigger], count)
        yield rebalances
        yield CounterMetricFamily(
            "kafka_tap_rebalance_seconds",
            "Time spent in rebalances, of all groups.",
            registry.rebalance_seconds,
        )

    def _lags(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "kafka_tap_group_lag",
            "End offset minus committed offset, summed over a topic's partitions.",
            labels=["group", "topic"],
        )
        topics = self._observer.topics
        for group in self._observer.registry.groups.values():
            sums: dict[str, int] = {}
            for (topic, partition), (offset, _) in group.committed.items():
                end = topics.end(topic, partition)
                if end is not None:
                    name = topics.show(topic)
                    sums[name] = sums.get(name, 0) + max(0, end - offset)
            for name, total in sorted(sums.items()):
                lag.add_metric([group.id, name], total)
        yield lag

    def _software(self) -> Iterator[Metric]:
        breaking = CounterMetricFamily(
            "kafka_tap_requests_refused_by_kafka_4",
            "Requests of versions that Kafka 4 refuses.",
            labels=["software", "version"],
        )
        for software, usage in self._observer.inventory.items():
            count = sum(n for (key, version), n in usage.requests.items() if breaks(key, version))
            if count:
                breaking.add_metric(list(software), count)
        yield breaking


def exposition(observer: Observer, backlog: int, now: float) -> str:
    """Return all metrics as text.

    Args:
        observer: the source of the counters.
        backlog: bytes of captured frames that wait for the observer.
        now: the current time in seconds since the epoch.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(observer, backlog, now))
    return generate_latest(registry).decode()

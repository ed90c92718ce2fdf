"""The observer's counters in Prometheus' text format.

Labels are groups, topics, APIs and software, but never members or partitions, whose number is too high.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pixy.escaping import escaped
from pixy.tap.group_view import offsets_of
from pixy.tap.groups import State
from pixy.tap.inventory import breaks
from pixy.tap.latency import Histogram, api_name
from pixy.tap.observer import Observer
from pixy.tap.traffic import error_name
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
    "sampled": "requests of which only the header was read, because there were too many",
    "lost_events": "events dropped because the observer was behind",
    "rewritten": "responses with rewritten addresses",
    "rewrite_failed": "responses whose addresses could not be rewritten",
    "hidden": "Produce and Fetch responses with hidden broker addresses",
    "api_versions_fallbacks": "ApiVersions requests of a version unknown to the broker",
    "verified": "groups whose committed offsets the tap asked for (--verify)",
    "corrected_commits": "committed offsets that the brokers corrected (--verify)",
    "corrected_ends": "end offsets that the brokers corrected (--verify)",
    "verify_failed": "requests of the tap's own that failed (--verify)",
    "defects": "defects of the tap itself",
}


class _Collector(Collector):
    def __init__(self, observer: Observer, backlog: int, now: float) -> None:
        self._observer, self._backlog, self._now = observer, backlog, now

    def collect(self) -> Iterator[Metric]:
        for family in self._families():
            for at, sample in enumerate(family.samples):
                labels = {name: _shown(value) for name, value in sample.labels.items()}
                if labels != sample.labels:
                    family.samples[at] = sample._replace(labels=labels)
            yield family

    def _families(self) -> Iterator[Metric]:
        yield from self._traffic()
        yield from self._groups()
        yield from self._lags()
        yield from self._software()
        yield from self._latencies()
        yield from self._failures()
        yield from self._findings()

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
        shares = GaugeMetricFamily(
            "kafka_tap_sampled_one_in",
            "Requests of an API for each one that was read, of APIs of which not all were; kafka_tap_topic_bytes and"
            " kafka_tap_errors are of those that were read.",
            labels=["api"],
        )
        for key, share in observer.sampling.apis().items():
            shares.add_metric([api_name(key)], float("inf") if share is None else share)
        yield requests
        yield seconds
        yield shares
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
        types = GaugeMetricFamily("kafka_tap_group_type", "1 for a group's type.", labels=["group", "type"])
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
            types.add_metric([group.id, group.type], 1)
            generation.add_metric([group.id], group.generation)
            for each in State:
                state.add_metric([group.id, each.value], float(each is group.state))
            for kind, _ in sorted(group.anomalies):
                anomalies.add_metric([group.id, kind], 1)
        yield from (members, types, generation, state, anomalies)
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
        age = GaugeMetricFamily(
            "kafka_tap_group_lag_age_seconds",
            "Time since the oldest of the end offsets and committed offsets in kafka_tap_group_lag was told.",
            labels=["group", "topic"],
        )
        commit_age = GaugeMetricFamily(
            "kafka_tap_group_lag_commit_age_seconds",
            "Time since the oldest of the committed offsets in kafka_tap_group_lag was told.",
            labels=["group", "topic"],
        )
        unknown = GaugeMetricFamily(
            "kafka_tap_group_lag_unknown_partitions",
            "Partitions with a committed offset whose end offset is not known, or is uncertain.",
            labels=["group", "topic"],
        )
        for group in self._observer.registry.groups.values():
            found: dict[str, list[dict[str, Any]]] = {}
            for each in offsets_of(group, self._observer.topics, self._now):
                found.setdefault(each["topic"], []).append(each)
            for name, offsets in sorted(found.items()):
                known = [each for each in offsets if each["lag"] is not None]
                if known:
                    lag.add_metric([group.id, name], sum(each["lag"] for each in known))
                    age.add_metric([group.id, name], max(each["lag_age"] for each in known))
                    commit_age.add_metric([group.id, name], max(each["committed_age"] for each in known))
                doubtful = sum(each["lag"] is None or each["uncertain"] is not None for each in offsets)
                unknown.add_metric([group.id, name], doubtful)
        yield from (lag, age, commit_age, unknown)

    def _latencies(self) -> Iterator[Metric]:
        latency = self._observer.latency
        yield _histogram(
            "kafka_tap_response_seconds",
            "Time that the broker took to respond; of Fetch with the wait for records.",
            latency.apis,
        )
        yield _histogram(
            "kafka_tap_queue_seconds",
            "Time for which requests and their responses waited inside the tap.",
            latency.queues,
        )
        held = CounterMetricFamily(
            "kafka_tap_held_seconds",
            "Seconds in which a receiver did not accept what the tap had for it.",
            labels=["receiver"],
        )
        for receiver, seconds in zip(("broker", "client"), latency.held, strict=True):
            held.add_metric([receiver], seconds)
        yield held
        yield CounterMetricFamily(
            "kafka_tap_slow_responses",
            "Responses that came later than --slow.",
            self._observer.traffic.slow_total,
        )

    def _failures(self) -> Iterator[Metric]:
        traffic = self._observer.traffic
        failed = CounterMetricFamily(
            "kafka_tap_errors",
            "Errors in responses that were read: see kafka_tap_sampled_one_in.",
            labels=["api", "error"],
        )
        counts: Counter[tuple[str, str]] = Counter()
        for (key, code, _, _), found in traffic.failures.items():
            counts[api_name(key), error_name(code)] += found.count
        for names, count in sorted(counts.items()):
            failed.add_metric(list(names), count)
        waited = CounterMetricFamily(
            "kafka_tap_throttle_seconds", "Throttle times in responses.", labels=["api"]
        )
        seconds: Counter[str] = Counter()
        for (key, _), throttled in traffic.throttled.items():
            seconds[api_name(key)] += throttled.seconds  # type: ignore[assignment]
        for api, total in sorted(seconds.items()):
            waited.add_metric([api], total)
        sizes = CounterMetricFamily(
            "kafka_tap_topic_bytes",
            "Bytes of records, as on the wire, without refused ones, of the requests that were read: see kafka_tap_sampled_one_in.",
            labels=["topic", "direction"],
        )
        refused = CounterMetricFamily(
            "kafka_tap_topic_refused_bytes", "Bytes of records that brokers have refused.", labels=["topic"]
        )
        lost: Counter[str] = Counter()
        moved: Counter[tuple[str, str]] = Counter()
        for talk in traffic.top():
            moved[talk["topic"], "written"] += talk["bytes_written"]
            moved[talk["topic"], "read"] += talk["bytes_read"]
            lost[talk["topic"]] += talk["bytes_refused"]
        for (topic, direction), count in sorted(moved.items()):
            sizes.add_metric([topic, direction], count)
        for topic, count in sorted(lost.items()):
            refused.add_metric([topic], count)
        yield from (failed, waited, sizes, refused)

    def _findings(self) -> Iterator[Metric]:
        found = GaugeMetricFamily("kafka_tap_findings", "Findings now.", labels=["rule", "severity"])
        for labels, count in sorted(self._observer.findings.counts().items()):
            found.add_metric(list(labels), count)
        yield found

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


def _shown(label: str) -> str:
    r"""Escape a label so that no two labels become one: a doubled backslash tells ``\n`` in a name from a newline in it."""
    return escaped(label.replace("\\", "\\\\"))


def _histogram(name: str, text: str, found: dict[int, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=["api"])
    for key, each in sorted(found.items()):
        total, buckets = 0, []
        for bound, count in zip((*each.bounds, float("inf")), each.buckets, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
        family.add_metric([api_name(key)], buckets, each.seconds)
    return family


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

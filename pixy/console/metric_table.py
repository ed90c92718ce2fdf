"""All metrics of the daemon: names, kinds, labels and meanings. docs/metrics.md, the dashboard and the alerts are made from it.

Names follow Prometheus' and OpenMetrics' rules: base units, ``_total`` for counters. A label's values come from the configuration or
from fixed sets, except for groups and topics, which :data:`MOST_SERIES` bounds: the rest is summed up as ``(others)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MOST_SERIES: Final = 500
"""Series of one metric that has groups or topics among its labels."""
PREFIX: Final = "kafka_pixy_"

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: without :data:`PREFIX` and without ``_total``.
        kind: its type.
        text: its meaning.
        labels: their names.
        panel: the dashboard's row in which it is shown; empty: it is not.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    panel: str = ""

    @property
    def full_name(self) -> str:
        """The name as a query has it; a histogram's without ``_bucket``."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


_OF_TOPIC = ("cluster", "topic")
_OF_GROUP = ("cluster", "group")
_OF_BOTH = ("cluster", "group", "topic")

METRICS: Final = (
    Metric("info", "gauge", "1; the label says which version runs.", ("version",)),
    Metric("uptime_seconds", "gauge", "Seconds since the daemon has started."),
    Metric("up", "gauge", "1 if a broker of the cluster can be reached, else 0.", ("cluster",), "Kafka"),
    Metric(
        "findings",
        "gauge",
        "Present findings by rule: causes of trouble, listed with evidence at /findings.",
        ("rule", "severity"),
        "Findings",
    ),
    Metric(
        "request_seconds",
        "histogram",
        "Requests by listener, operation and status, with their durations; long polls wait as long as they are told.",
        ("api", "method", "status"),
        "Requests",
    ),
    Metric("connections", "gauge", "Open connections of the HTTP listeners.", (), "Requests"),
    Metric(
        "refused_connections",
        "counter",
        "Connections refused because connections.max or max_per_address was reached.",
        (),
    ),
    Metric(
        "produced_messages", "counter", "Messages that Kafka has taken from clients.", _OF_TOPIC, "Produce"
    ),
    Metric(
        "failed_messages",
        "counter",
        "Messages of clients that could not be written, or of which nobody knows.",
        _OF_TOPIC,
        "Produce",
    ),
    Metric("producer_topics", "gauge", "Topics that have a producer now.", ("cluster",)),
    Metric(
        "producer_queue_messages",
        "gauge",
        "Messages that librdkafka holds until Kafka has taken them.",
        ("cluster",),
        "Produce",
    ),
    Metric("producer_queue_bytes", "gauge", "Their bytes.", ("cluster",)),
    Metric(
        "offered_messages",
        "counter",
        "Offers of messages to clients, repeated ones included.",
        _OF_BOTH,
        "Consume",
    ),
    Metric("acked_messages", "counter", "Messages that clients have acknowledged.", _OF_BOTH, "Consume"),
    Metric(
        "repeated_offers",
        "counter",
        "Offers of messages that had been offered before: no ack came within consumer.ack_timeout.",
        _OF_BOTH,
        "Consume",
    ),
    Metric(
        "returned_offers", "counter", "Offers whose client had gone before the answer was written.", _OF_BOTH
    ),
    Metric(
        "given_up_messages", "counter", "Messages dropped after consumer.max_retries.", _OF_BOTH, "Consume"
    ),
    Metric(
        "refused_acks",
        "counter",
        "Acks of messages that were never offered, or whose partition is not owned here.",
        _OF_BOTH,
    ),
    Metric(
        "unacked_messages",
        "gauge",
        "Messages that clients have and have not acknowledged.",
        _OF_BOTH,
        "Consume",
    ),
    Metric(
        "oldest_unacked_seconds",
        "gauge",
        "Seconds since the oldest of them was offered first.",
        _OF_BOTH,
        "Consume",
    ),
    Metric("waiting_polls", "gauge", "Requests that wait for a message.", _OF_BOTH, "Consume"),
    Metric(
        "lag_messages",
        "gauge",
        "Messages behind the end of the log by the committed offsets. Asked from Kafka every 10 s while somebody scrapes.",
        _OF_BOTH,
        "Consume",
    ),
    Metric("groups", "gauge", "Groups that this daemon consumes for.", ("cluster",)),
    Metric("owned_partitions", "gauge", "Partitions that this daemon owns.", _OF_GROUP, "Groups"),
    Metric("assigned_partitions", "counter", "Partitions that were assigned here.", _OF_GROUP, "Groups"),
    Metric("revoked_partitions", "counter", "Partitions that were revoked here.", _OF_GROUP),
    Metric(
        "lost_partitions",
        "counter",
        "Partitions that another member had before this one released them.",
        _OF_GROUP,
    ),
    Metric("session_failures", "counter", "Times that the group had to leave and join again.", _OF_GROUP),
    Metric(
        "committed_offsets", "counter", "Offsets of partitions that Kafka has taken.", _OF_GROUP, "Groups"
    ),
    Metric("failed_commits", "counter", "Offsets of partitions that Kafka has refused.", _OF_GROUP, "Groups"),
    Metric(
        "broker_rtt_seconds",
        "gauge",
        "99th percentile of the time of a broker's answers to the producer, over 5 s.",
        ("cluster", "broker"),
        "Kafka",
    ),
    Metric(
        "broker_up", "gauge", "1 if the producer is connected to the broker.", ("cluster", "broker"), "Kafka"
    ),
    Metric("broker_queue_requests", "gauge", "Requests that wait to be sent to it.", ("cluster", "broker")),
    Metric("journal_held_events", "gauge", "Journal events that are not written yet.", ("cluster",)),
    Metric(
        "journal_lost_events",
        "counter",
        "Journal events that were dropped or not written.",
        ("cluster",),
        "Daemon",
    ),
    Metric("lost_spans", "counter", "Spans that found no room, or that the collector has not taken."),
    Metric("actors", "gauge", "Actors by class.", ("class",), "Daemon"),
    Metric(
        "mailbox_waiting_messages", "gauge", "Messages in all mailboxes of a class.", ("class",), "Daemon"
    ),
    Metric("mailbox_deepest", "gauge", "Messages in the fullest mailbox of a class.", ("class",)),
    Metric(
        "mailbox_oldest_seconds",
        "gauge",
        "How long the oldest message has waited in a mailbox of a class.",
        ("class",),
        "Daemon",
    ),
    Metric(
        "loop_blocks",
        "counter",
        "Times that the event loop stood still for diagnostics.blocked_loop.",
        (),
        "Daemon",
    ),
)

BY_NAME: Final = {each.name: each for each in METRICS}

FOREIGN: Final = (
    ("process_*", "CPU seconds, memory, open files and start of the process (prometheus_client)"),
    ("python_gc_*", "the cycle collector's work by generation (prometheus_client)"),
)
"""Metrics that a library names."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule for Prometheus' Alertmanager.

    Attributes:
        name: in CamelCase.
        expr: the query; metrics with their full names.
        wait: for how long it must hold.
        severity: ``page`` or ``ticket``.
        text: one line for who is woken up; may use ``{{ $labels.x }}``.
    """

    name: str
    expr: str
    wait: str
    severity: str
    text: str


ALERTS: Final = (
    Alert(
        "KafkaPixyFindings",
        'sum by (instance, rule) (kafka_pixy_findings{severity="error"}) > 0',
        "1m",
        "page",
        "{{ $labels.instance }}: {{ $labels.rule }}; see /findings of its admin_addr",
    ),
    Alert(
        "KafkaPixyWarnings",
        'sum by (instance, rule) (kafka_pixy_findings{severity="warning"}) > 0',
        "10m",
        "ticket",
        "{{ $labels.instance }}: {{ $labels.rule }}; see /findings of its admin_addr",
    ),
    Alert(
        "KafkaPixyKafkaUnreachable",
        "kafka_pixy_up == 0",
        "1m",
        "page",
        "{{ $labels.instance }} reaches no broker of cluster {{ $labels.cluster }}",
    ),
    Alert(
        "KafkaPixyMessagesLost",
        "sum by (instance, cluster) (increase(kafka_pixy_given_up_messages_total[10m])) > 0",
        "0m",
        "ticket",
        "{{ $labels.instance }} has dropped messages after consumer.max_retries in cluster {{ $labels.cluster }}",
    ),
    Alert(
        "KafkaPixyJournalDropping",
        "increase(kafka_pixy_journal_lost_events_total[10m]) > 0",
        "0m",
        "page",
        "the journal of cluster {{ $labels.cluster }} has gaps",
    ),
    Alert(
        "KafkaPixyLagGrows",
        "sum by (cluster, group, topic) (max by (cluster, group, topic) (kafka_pixy_lag_messages)) > 1000 and "
        "sum by (cluster, group, topic) (deriv(kafka_pixy_lag_messages[15m])) > 0",
        "15m",
        "ticket",
        "group {{ $labels.group }} falls behind on {{ $labels.topic }}",
    ),
    Alert(
        "KafkaPixyErrors",
        'sum by (instance, api) (rate(kafka_pixy_request_seconds_count{status=~"5..|INTERNAL|UNKNOWN"}[5m])) > 0.1',
        "5m",
        "ticket",
        "{{ $labels.instance }} answers requests over {{ $labels.api }} with errors of its own",
    ),
)

__all__ = ["ALERTS", "BY_NAME", "FOREIGN", "METRICS", "MOST_SERIES", "PREFIX", "Alert", "Metric"]

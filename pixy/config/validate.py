"""What a configuration must fulfil beyond its types. The first failure wins, in the original's order."""

from __future__ import annotations

import re
import ssl

from pixy.config import model
from pixy.config.client_id import VALID
from pixy.errors import ConfigError

PARTITIONERS = ("hash", "random", "roundrobin")
INITIAL_OFFSETS = ("newest", "oldest")
GROUP_PROTOCOLS = ("classic", "consumer")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
MAX_BATCH_EVENTS = 10_000
SEVERITIES = ("debug", "info", "warning", "error")


def validate(app: model.App) -> model.App:
    """Return the configuration if it is sound; raises ConfigError otherwise."""
    if not (app.grpc_addr or app.tcp_addr or app.unix_addr or app.rest.addr):
        raise ConfigError("invalid config parameter: at least one API server should be configured")
    if not app.proxies:
        raise ConfigError("invalid config parameter: at least on proxy must be configured")
    if app.default_cluster and app.default_cluster not in app.proxies:
        raise ConfigError(
            f"invalid config parameter: default_cluster {app.default_cluster} is not among the proxies"
        )
    if bool(app.tls.certificate_path) != bool(app.tls.key_path):
        raise ConfigError(
            "invalid config parameter: tls.certificate_path and tls.key_path must be set together"
        )
    if app.shutdown_timeout <= 0:
        raise ConfigError("invalid config parameter: shutdown_timeout must be > 0")
    if app.max_concurrent_requests <= 0:
        raise ConfigError("invalid config parameter: max_concurrent_requests must be > 0")
    problem = _bounds("diagnostics", app.diagnostics, _DIAGNOSTICS)
    if problem:
        raise ConfigError(f"invalid config parameter: {problem}")
    if app.diagnostics.trace_sample > 1:
        raise ConfigError("invalid config parameter: diagnostics.trace_sample must be <= 1")
    problem = _bounds("rest", app.rest, _REST) or _rest_problem(app.rest)
    if problem:
        raise ConfigError(f"invalid config parameter: {problem}")
    for logger in app.logging:
        if logger.severity not in SEVERITIES:
            raise ConfigError(
                f"invalid config parameter: logging severity {logger.severity!r} of "
                f"{logger.name} is not one of {', '.join(SEVERITIES)}"
            )
    for name, proxy in app.proxies.items():
        problem = _proxy_problem(proxy)
        if problem:
            raise ConfigError(f"invalid config, cluster={name}: {problem}")
    return app


def _proxy_problem(proxy: model.Proxy) -> str:
    if not VALID.match(proxy.client_id):
        return (
            f"invalid config parameter: client_id {proxy.client_id!r} must match "
            r"\A[A-Za-z0-9._-]+\z"
        )
    if proxy.max_admin_requests <= 0:
        return "invalid config parameter: max_admin_requests must be > 0"
    if proxy.max_fetches <= 0:
        return "invalid config parameter: max_fetches must be > 0"
    if proxy.max_waiting_fetches < 0:
        return "invalid config parameter: max_waiting_fetches must be >= 0"
    if proxy.fetch_pool_timeout <= 0:
        return "invalid config parameter: fetch_pool_timeout must be > 0"
    problem = (
        _bounds("producer", proxy.producer, _PRODUCER)
        or _choice("producer.partitioner", proxy.producer.partitioner, PARTITIONERS)
        or _bounds("consumer", proxy.consumer, _CONSUMER)
        or _choice("consumer.initial_offset", proxy.consumer.initial_offset, INITIAL_OFFSETS)
        or _choice("consumer.group_protocol", proxy.consumer.group_protocol, GROUP_PROTOCOLS)
        or _choice("net.sasl.mechanism", proxy.net.sasl.mechanism, SASL_MECHANISMS)
        or _bounds("net", proxy.net, _NET)
        or _bounds("instances", proxy.instances, _INSTANCES)
        or _bounds("journal", proxy.journal, _JOURNAL)
        or _journal_problem(proxy.journal)
    )
    if problem:
        return f"invalid config parameter: {problem}"
    if not any(proxy.kafka.seed_peers):
        return "invalid config parameter: kafka.seed_peers must name at least one broker"
    problem = _tls_problem(proxy.kafka) if proxy.kafka.tls else ""
    return f'invalid tls configuration: "{problem}"' if problem else ""


# (field, shown name, comparison, bound)
_DIAGNOSTICS = (
    ("blocked_loop", "blocked_loop", ">=", 0),
    ("slow_handler", "slow_handler", ">", 0),
    ("trace_sample", "trace_sample", ">=", 0),
    ("trace_slow", "trace_slow", ">=", 0),
)
_PRODUCER = (
    ("channel_buffer_size", "channel_buffer_size", ">", 0),
    ("flush_bytes", "flush_bytes", ">=", 0),
    ("flush_frequency", "flush_frequency", ">=", 0),
    ("retry_backoff", "retry_backoff", ">", 0),
    ("retry_max", "retry_max", ">", 0),
    ("shutdown_timeout", "shutdown_timeout", ">=", 0),
    ("timeout", "timeout", ">=", 0),
    ("max_message_bytes", "max_message_bytes", ">=", 1000),
    ("buffer_max_bytes", "buffer_max_bytes", ">=", 1_048_576),
    ("max_topics", "max_topics", ">", 0),
)
_CONSUMER = (
    ("ack_timeout", "ack_timeout", ">", 0),
    ("channel_buffer_size", "channel_buffer_size", ">", 0),
    ("fetch_max_bytes", "fetch_bytes", ">", 0),
    ("long_polling_timeout", "long_polling_timeout", ">", 0),
    ("max_pending_messages", "max_pending_messages", ">", 0),
    ("max_retries", "max_retries", ">=", -1),
    ("offsets_commit_interval", "offsets_commit_interval", ">", 0),
    ("subscription_timeout", "subscription_timeout", ">", 0),
    ("retry_backoff", "retry_backoff", ">", 0),
    ("fetch_max_wait", "fetch_max_wait", ">=", 0),
    ("rebalance_delay", "rebalance_delay", ">=", 0),
    ("session_timeout", "session_timeout", ">", 0),
    ("heartbeat_interval", "heartbeat_interval", ">", 0),
    ("join_timeout", "join_timeout", ">=", 0),
    ("drain_timeout", "drain_timeout", ">=", 0),
    ("prefetch_max_messages", "prefetch_max_messages", ">", 0),
    ("prefetch_max_bytes", "prefetch_max_bytes", ">=", 1_048_576),
    ("max_groups", "max_groups", ">", 0),
)
_INSTANCES = (
    ("max_instances", "max_instances", ">", 0),
    ("max_waiting_requests", "max_waiting_requests", ">", 0),
    ("idle_timeout", "idle_timeout", ">", 0),
    ("read_timeout", "read_timeout", ">=", 0),
    ("max_read_timeout", "max_read_timeout", ">", 0),
    ("join_timeout", "join_timeout", ">=", 0),
    ("operation_timeout", "operation_timeout", ">", 0),
    ("close_timeout", "close_timeout", ">", 0),
    ("auto_commit_interval", "auto_commit_interval", ">", 0),
    ("pause_after", "pause_after", ">", 0),
    ("fetch_max_bytes", "fetch_max_bytes", ">", 0),
    ("fetch_max_wait", "fetch_max_wait", ">=", 0),
    ("prefetch_max_messages", "prefetch_max_messages", ">", 0),
    ("prefetch_max_bytes", "prefetch_max_bytes", ">=", 65_536),
    ("session_timeout", "session_timeout", ">", 0),
    ("heartbeat_interval", "heartbeat_interval", ">", 0),
)
_JOURNAL = (
    ("batch_events", "batch_events", ">", 0),
    ("linger", "linger", ">=", 0.01),
    ("delivery_timeout", "delivery_timeout", ">=", 1),
    ("shutdown_timeout", "shutdown_timeout", ">=", 0),
)
_NET = (
    ("dial_timeout", "dial_timeout", ">=", 1),
    ("read_timeout", "read_timeout", ">", 0),
    ("write_timeout", "write_timeout", ">", 0),
)
_REST = (
    ("max_request_bytes", "max_request_bytes", ">=", 1024),
    ("max_response_bytes", "max_response_bytes", ">=", 1024),
    ("max_buffered_bytes", "max_buffered_bytes", ">=", 1_048_576),
    ("retry_after", "retry_after", ">=", 0),
    ("fetch_timeout", "fetch_timeout", ">=", 0),
    ("max_fetch_timeout", "max_fetch_timeout", ">=", 0),
    ("read_max_bytes", "read_max_bytes", ">", 0),
    ("peer_timeout", "peer_timeout", ">", 0),
)
KAFKA_ERROR_CODES = (50001, 50002)
COMMIT_STATUSES = (200, 204)
PEER_REQUESTS = ("forward", "redirect")


def _rest_problem(rest: model.Rest) -> str:
    if rest.kafka_error_code not in KAFKA_ERROR_CODES:
        return f"rest.kafka_error_code must be one of {', '.join(map(str, KAFKA_ERROR_CODES))}"
    if rest.prefix and (not rest.prefix.startswith("/") or not rest.prefix.strip("/")):
        return f"rest.prefix {rest.prefix!r} must begin with / and name a path"
    if rest.commit_status not in COMMIT_STATUSES:
        return f"rest.commit_status must be one of {', '.join(map(str, COMMIT_STATUSES))}"
    if rest.peer_requests not in PEER_REQUESTS:
        return f"rest.peer_requests must be one of {', '.join(PEER_REQUESTS)}"
    return _peers_problem(rest)


def _peers_problem(rest: model.Rest) -> str:
    if rest.node_id and not VALID.match(rest.node_id):
        return f"rest.node_id {rest.node_id!r} must match " + r"\A[A-Za-z0-9._-]+\z"
    if rest.peers and not rest.node_id:
        return "rest.node_id must be set where rest.peers are"
    urls = {"rest.advertised_url": rest.advertised_url} if rest.advertised_url else {}
    urls |= {f"rest.peers.{name}": url for name, url in rest.peers.items()}
    for name, url in urls.items():
        if not url.startswith(("http://", "https://")) or not url.partition("//")[2].strip("/"):
            return f"{name} {url!r} must be a base URL such as http://host:19092"
    return ""


def _bounds(section: str, values: object, rules: tuple[tuple[str, str, str, float], ...]) -> str:
    for field, shown, comparison, bound in rules:
        value = getattr(values, field)
        if value < bound or (comparison == ">" and value == bound):
            return f"{section}.{shown} must be {comparison} {bound:g}"
    return ""


def _journal_problem(journal: model.Journal) -> str:
    if journal.topic and not TOPIC.match(journal.topic):
        return f"journal.topic {journal.topic!r} is not a name that Kafka allows"
    if journal.batch_events > MAX_BATCH_EVENTS:
        return f"journal.batch_events must be <= {MAX_BATCH_EVENTS}"
    if journal.buffer_events < journal.batch_events:
        return "journal.buffer_events must be >= journal.batch_events"
    return ""


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value in allowed:
        return ""
    short = name.rpartition(".")[2]
    return f'{name} is invalid: "bad {short}: {value}"'


def _tls_problem(kafka: model.Kafka) -> str:
    for path, name in (
        (kafka.ca_certificate_file, "ca_cert_file"),
        (kafka.client_certificate_file, "client_cert_file"),
        (kafka.client_key_file, "client_cert_key_file"),
    ):
        try:
            if path:
                with open(path, "rb"):
                    pass
        except OSError as error:
            return f"kafka.{name}: open {path}: {(error.strerror or str(error)).lower()}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if kafka.ca_certificate_file:
        try:
            context.load_verify_locations(kafka.ca_certificate_file)
        except (ssl.SSLError, ValueError):
            return "kafka.ca_cert_file does not appear to be a valid CA certificate"
    if kafka.client_certificate_file or kafka.client_key_file:
        try:
            context.load_cert_chain(kafka.client_certificate_file, kafka.client_key_file or None)
        except (ssl.SSLError, OSError, ValueError):
            return "kafka.client_cert_file and kafka.client_cert_key_file are not a valid certificate pair"
    return ""

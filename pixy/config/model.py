"""The configuration as plain data.

Field names are the YAML keys; ``config/default.yaml`` documents each, and a test holds the two
together. Durations are seconds. A field's bounds stand in its annotation, as ``msgspec.Meta``;
:mod:`pixy.config.validate` checks them in the order of the fields, which in ``Producer`` and
``Consumer`` is the order in which the Go original checks its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from pixy.config.client_id import generate_client_id
from pixy.config.kinds import (
    KAFKA_BUFFER_BYTES,
    KAFKA_MESSAGE_BYTES,
    KAFKA_PREFETCH_BYTES,
    AnyDuration,
    Compression,
    Duration,
    KafkaDelivery,
    KafkaFetchWait,
    KafkaSession,
    KafkaTimeout,
    KafkaVersion,
    PositiveDuration,
    PositiveInt,
    RequiredAcks,
    Workers,
    seconds as _seconds,
)
from pixy.config.security import AccessLog, Audit, Auth, Identities, Limit, Rule

DEFAULT_KAFKA_VERSION = "2.3.0"
LOGGERS = ("console", "json", "syslog")
"""Names of elements of ``logging`` that mean something; others are ignored, as in the original."""
MOST_WORKERS = 64
"""Workers of one daemon."""
_MOVING = 30.0
_NOTICED = 5.0
"""Seconds in which the end of the last connection is noticed."""
SYSLOG = "127.0.0.1:514"
"""The address to which the logger ``syslog`` sends by default."""


@dataclass(slots=True)
class Kafka:
    """``proxies.X.kafka``"""

    seed_peers: list[str] = field(default_factory=lambda: ["localhost:9092"])
    version: KafkaVersion = field(
        default_factory=lambda: KafkaVersion(os.environ.get("KAFKA_VERSION", DEFAULT_KAFKA_VERSION))
    )
    tls: bool = False
    ca_certificate_file: str = ""
    client_certificate_file: str = ""
    client_key_file: str = ""
    insecure: bool = False


@dataclass(slots=True)
class Sasl:
    """``proxies.X.net.sasl``"""

    enable: bool = False
    handshake: bool = True
    mechanism: str = "PLAIN"
    user: str = ""
    password: str = ""
    password_file: str = ""


@dataclass(slots=True)
class Net:
    """``proxies.X.net``"""

    dial_timeout: KafkaDelivery = _seconds(30)
    read_timeout: KafkaTimeout = _seconds(30)
    write_timeout: KafkaTimeout = _seconds(30)
    sasl: Sasl = field(default_factory=Sasl)


@dataclass(slots=True)
class ZooKeeper:
    """``proxies.X.zoo_keeper``"""

    seed_peers: list[str] = field(default_factory=lambda: ["localhost:2181"])
    chroot: str = ""
    session_timeout: Duration = _seconds(15)


@dataclass(slots=True)
class Producer:
    """``proxies.X.producer``"""

    channel_buffer_size: PositiveInt = 4096
    flush_bytes: Annotated[int, Meta(ge=0)] = 1_048_576
    flush_frequency: AnyDuration = _seconds(0.005)
    retry_backoff: PositiveDuration = _seconds(10)
    retry_max: PositiveInt = 6
    shutdown_timeout: AnyDuration = _seconds(30)
    timeout: Annotated[Duration, Meta(ge=0, le=900)] = _seconds(10)
    max_message_bytes: Annotated[int, Meta(ge=1000, le=KAFKA_MESSAGE_BYTES)] = 1_000_000
    compression: Compression = Compression("snappy")
    required_acks: RequiredAcks = RequiredAcks("wait_for_all")
    partitioner: str = "hash"
    buffer_max_bytes: Annotated[int, Meta(ge=1_048_576, le=KAFKA_BUFFER_BYTES)] = 67_108_864
    max_topics: PositiveInt = 10_000


@dataclass(slots=True)
class Consumer:
    """``proxies.X.consumer``"""

    disabled: bool = False
    ack_timeout: PositiveDuration = _seconds(300)
    channel_buffer_size: PositiveInt = 4096
    fetch_max_bytes: Annotated[int, Meta(gt=0, le=KAFKA_MESSAGE_BYTES, extra={"name": "fetch_bytes"})] = (
        1_048_576
    )
    long_polling_timeout: PositiveDuration = _seconds(3)
    max_pending_messages: PositiveInt = 300
    max_retries: Annotated[int, Meta(ge=-1)] = -1
    offsets_commit_interval: PositiveDuration = _seconds(0.5)
    offsets_refresh_interval: PositiveDuration = _seconds(86_400)
    subscription_timeout: PositiveDuration = _seconds(15)
    retry_backoff: PositiveDuration = _seconds(0.5)
    fetch_max_wait: KafkaFetchWait = _seconds(0.25)
    rebalance_delay: AnyDuration = _seconds(0.25)
    initial_offset: str = "newest"
    membership: str = "kafka"
    group_protocol: str = "classic"
    group_instance_id: str = ""
    session_timeout: KafkaSession = _seconds(15)
    heartbeat_interval: KafkaSession = _seconds(0.5)
    join_timeout: AnyDuration = _seconds(10)
    drain_timeout: Annotated[Duration, Meta(ge=0, le=86_000)] = _seconds(2)
    prefetch_max_messages: PositiveInt = 512
    prefetch_max_bytes: Annotated[int, Meta(ge=1_048_576, le=KAFKA_PREFETCH_BYTES)] = 16_777_216
    max_groups: PositiveInt = 256
    max_topics: PositiveInt = 1000
    max_pending_bytes: PositiveInt = 67_108_864

    @property
    def kafka_protocol(self) -> str:
        """The protocol of members in Kafka's own groups, in Kafka's words: ``classic`` or ``consumer``."""
        return "consumer" if self.membership == "kafka-next" else self.group_protocol


@dataclass(slots=True)
class Instances:
    """``proxies.X.instances``: consumer instances of the REST API."""

    max_instances: PositiveInt = 1000
    max_waiting_requests: PositiveInt = 64
    idle_timeout: PositiveDuration = _seconds(300)
    read_timeout: AnyDuration = _seconds(1)
    max_read_timeout: PositiveDuration = _seconds(60)
    join_timeout: AnyDuration = _seconds(10)
    operation_timeout: PositiveDuration = _seconds(30)
    close_timeout: PositiveDuration = _seconds(5)
    auto_commit: bool = True
    auto_commit_interval: PositiveDuration = _seconds(5)
    pause_after: PositiveDuration = _seconds(5)
    fetch_max_bytes: Annotated[int, Meta(gt=0, le=KAFKA_MESSAGE_BYTES)] = 1_048_576
    fetch_max_wait: KafkaFetchWait = _seconds(0.25)
    prefetch_max_messages: Annotated[int, Meta(gt=0, le=10_000_000)] = 20_000
    prefetch_max_bytes: Annotated[int, Meta(ge=65_536, le=KAFKA_PREFETCH_BYTES)] = 4_194_304
    session_timeout: KafkaSession = _seconds(15)
    heartbeat_interval: KafkaSession = _seconds(1)


@dataclass(slots=True)
class Journal:
    """``proxies.X.journal``"""

    topic: str = ""
    callers: bool = True
    batch_events: Annotated[int, Meta(gt=0, le=10_000)] = 1000
    linger: Annotated[Duration, Meta(ge=0.01)] = _seconds(0.5)
    buffer_events: int = 100_000
    compression: Compression = Compression("zstd")
    delivery_timeout: KafkaDelivery = _seconds(30)
    shutdown_timeout: AnyDuration = _seconds(5)


@dataclass(slots=True)
class Proxy:
    """``proxies.X``: one Kafka cluster."""

    client_id: str = field(default_factory=generate_client_id)
    client_rack: str = ""
    max_admin_requests: PositiveInt = 64
    admin_changes: bool = True
    max_fetches: PositiveInt = 8
    max_waiting_fetches: Annotated[int, Meta(ge=0)] = 256
    fetch_pool_timeout: PositiveDuration = _seconds(1)
    kafka: Kafka = field(default_factory=Kafka)
    net: Net = field(default_factory=Net)
    zoo_keeper: ZooKeeper = field(default_factory=ZooKeeper)
    producer: Producer = field(default_factory=Producer)
    consumer: Consumer = field(default_factory=Consumer)
    instances: Instances = field(default_factory=Instances)
    journal: Journal = field(default_factory=Journal)
    identities: Identities = field(default_factory=Identities)


@dataclass(slots=True)
class Tls:
    """``tls``: certificates of the daemon's own listeners."""

    certificate_path: str = ""
    key_path: str = ""
    client_ca_path: str = ""
    client_certificates: str = "required"
    min_version: str = "1.2"
    ciphers: str = ""


@dataclass(slots=True)
class Server:
    """``server``: what serves the TCP sockets of the APIs, in how many processes."""

    front: str = "portable"
    workers: Workers = Workers("1")
    worker_restarts: PositiveInt = 5
    restart_timeout: AnyDuration = _seconds(0)

    @property
    def processes(self) -> int:
        """The number of workers; ``auto`` is one for each core that this process may use."""
        if self.workers == "auto":
            return min(
                len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
                MOST_WORKERS,
            )
        return int(self.workers)


@dataclass(slots=True)
class Connections:
    """``connections``: what clients' connections may hold, and for how long."""

    max: PositiveInt = 16_384
    max_per_address: PositiveInt = 4096
    max_grpc: PositiveInt = 4096
    max_admin: PositiveInt = 512
    reserved_files: PositiveInt = 4096
    handshake_timeout: PositiveDuration = _seconds(10)
    header_timeout: PositiveDuration = _seconds(10)
    idle_timeout: PositiveDuration = _seconds(600)
    write_timeout: PositiveDuration = _seconds(60)
    max_header_bytes: Annotated[int, Meta(ge=1024)] = 131_072
    max_unfinished_headers: Annotated[int, Meta(ge=131_072)] = 33_554_432
    max_request_rate: Annotated[int, Meta(ge=0)] = 0
    grpc_max_streams: PositiveInt = 4096
    grpc_max_metadata_bytes: Annotated[int, Meta(ge=1024)] = 16_384
    grpc_min_ping_interval: PositiveDuration = _seconds(10)
    grpc_max_ping_strikes: PositiveInt = 2
    grpc_max_age: AnyDuration = _seconds(3600)
    grpc_max_age_grace: PositiveDuration = _seconds(120)


@dataclass(slots=True)
class Diagnostics:
    """``diagnostics``: what the daemon reports about itself."""

    blocked_loop: AnyDuration = _seconds(0.25)
    slow_handler: PositiveDuration = _seconds(0.1)
    trace: bool = False
    trace_sample: Annotated[float, Meta(ge=0, le=1)] = 0.0
    trace_slow: AnyDuration = _seconds(1)


@dataclass(slots=True)
class Export:
    """``tracing.export``: spans for OpenTelemetry."""

    endpoint: str = ""
    token: str = ""
    token_file: str = ""
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.0
    queue: PositiveInt = 4096
    batch: PositiveInt = 512
    every: PositiveDuration = _seconds(5)
    timeout: PositiveDuration = _seconds(10)


@dataclass(slots=True)
class Tracing:
    """``tracing``: the life of one message, and W3C trace context."""

    propagate: bool = True
    export: Export = field(default_factory=Export)
    search_records: PositiveInt = 50_000
    search_bytes: Annotated[int, Meta(ge=65_536)] = 67_108_864
    search_timeout: PositiveDuration = _seconds(10)
    max_searches: PositiveInt = 2


@dataclass(slots=True)
class Rest:
    """``rest``: the REST API of KIP-80 and of the v1 and v2 REST proxies."""

    addr: str = ""
    prefix: str = "/rest"
    kafka_error_code: int = 50002
    max_request_bytes: Annotated[int, Meta(ge=1024)] = 16_777_216
    max_request_records: PositiveInt = 10_000
    max_gzip_ratio: PositiveInt = 100
    max_response_bytes: Annotated[int, Meta(ge=1024)] = 16_777_216
    max_buffered_bytes: Annotated[int, Meta(ge=1_048_576)] = 268_435_456
    retry_after: AnyDuration = _seconds(1)
    fetch_timeout: AnyDuration = _seconds(1)
    max_fetch_timeout: AnyDuration = _seconds(30)
    gzip: bool = False
    cors_origins: list[str] = field(default_factory=list)
    read_max_bytes: PositiveInt = 1_048_576
    commit_status: int = 200
    advertised_url: str = ""
    node_id: str = ""
    peers: dict[str, str] = field(default_factory=dict)
    peer_requests: str = "forward"
    peer_secret: str = ""
    peer_secret_file: str = ""
    peer_timeout: PositiveDuration = _seconds(5)


@dataclass(slots=True)
class Logger:
    """One element of ``logging``."""

    name: str = "console"
    severity: str = "info"
    params: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class App:
    """The whole file."""

    grpc_addr: str = "127.0.0.1:19091"
    tcp_addr: str = "127.0.0.1:19092"
    admin_addr: str = ""
    admin_actions: bool = False
    unix_addr: str = ""
    unix_mode: str = "0660"
    insecure: bool = False
    allowed_hosts: list[str] = field(default_factory=list)
    trusted_proxies: list[str] = field(default_factory=list)
    default_cluster: str = ""
    shutdown_timeout: PositiveDuration = _seconds(60)
    max_concurrent_requests: PositiveInt = 16_384
    body_timeout: PositiveDuration = _seconds(60)
    max_buffered_bytes: Annotated[int, Meta(ge=1_048_576)] = 268_435_456
    reload_interval: AnyDuration = _seconds(10)
    proxies: dict[str, Proxy] = field(default_factory=dict)
    server: Server = field(default_factory=Server)
    connections: Connections = field(default_factory=Connections)
    rest: Rest = field(default_factory=Rest)
    tls: Tls = field(default_factory=Tls)
    auth: Auth = field(default_factory=Auth)
    rules: list[Rule] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    audit: Audit = field(default_factory=Audit)
    access_log: AccessLog = field(default_factory=AccessLog)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    tracing: Tracing = field(default_factory=Tracing)
    logging: list[Logger] = field(default_factory=lambda: [Logger()])

    def cluster_name(self, name: str) -> str:
        """Resolve a request's cluster name; an empty one means the default cluster."""
        return name or self.default_cluster or next(iter(self.proxies), "")

    @property
    def moving_time(self) -> float:
        """Seconds that clients of a worker which is replaced have for moving on: ``server.restart_timeout``, or as long as a connection may last."""
        if self.server.restart_timeout:
            return self.server.restart_timeout
        consumers = [proxy.consumer for proxy in self.proxies.values()]
        if any(each.group_instance_id or each.membership == "zookeeper" for each in consumers):
            return _MOVING  # two members of a group have the same name meanwhile
        lasts: float = self.connections.idle_timeout
        if self.grpc_addr and self.connections.grpc_max_age:
            # The core ends a connection up to a tenth later.
            lasts = max(lasts, 1.1 * self.connections.grpc_max_age + self.connections.grpc_max_age_grace)
        return lasts + _NOTICED

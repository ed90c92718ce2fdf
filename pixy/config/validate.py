"""Check a configuration beyond its types. The first problem is reported, in the original's order."""

from __future__ import annotations

import ipaddress
import operator
import os
import re
import ssl
import sys
import typing
from urllib.parse import urlsplit

from pixy.config import files, model, validate_security
from pixy.config.addresses import is_broker, split_address
from pixy.config.client_id import VALID
from pixy.config.durations import format_duration
from pixy.config.exposure import address_problem, exposure_problem
from pixy.config.kinds import Duration
from pixy.config.load import check_kafka_version
from pixy.config.secrets import MASK
from pixy.errors import ConfigError

PARTITIONERS = ("hash", "random", "roundrobin")
INITIAL_OFFSETS = ("newest", "oldest")
MEMBERSHIPS = ("kafka", "kafka-next", "zookeeper")
GROUP_PROTOCOLS = ("classic", "consumer")
ZOOKEEPER_CHROOT = re.compile(r"(/[A-Za-z0-9._-]+)*/?\Z")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
_USER_INFO = re.compile(r"\A(\w+://)?\S*@")
"""All before the last ``@``: a password may have a ``/`` in it, though no URL allows that."""
HOST = re.compile(r"(\*|\.?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)\Z")
UNIX_MODE = re.compile(r"0?[0-7]{3}\Z")
FRONTS = ("portable", "envoy")
SEVERITIES = ("debug", "info", "warning", "error")


def validate(app: model.App) -> model.App:
    """Return the configuration if it is valid; raise ConfigError otherwise."""
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
    problem = (
        _bounds("", app)
        or validate_security.tls_problem_of(app.tls)
        or _front_problem(app)
        or _bounds("server.", app.server)
        or _bounds("connections.", app.connections)
        or _bounds("diagnostics.", app.diagnostics)
        or _bounds("tracing.", app.tracing)
        or _bounds("tracing.export.", app.tracing.export)
        or _export_problem(app.tracing.export)
        or _bounds("rest.", app.rest)
        or _rest_problem(app.rest)
        or _bounds("auth.jwt.", app.auth.jwt)
        or _bounds("audit.", app.audit)
        or _bounds("access_log.", app.access_log)
        or next(filter(None, (_bounds(f"limits[{at}].", each) for at, each in enumerate(app.limits))), "")
        or validate_security.problem_of(app)
        or _audit_problem(app)
        or _unix_problem(app.unix_mode)
        or address_problem(app)
        or exposure_problem(app)
        or _hosts_problem(app)
    )
    if problem:
        raise ConfigError(f"invalid config parameter: {problem}")
    for logger in app.logging:
        if problem := _logger_problem(logger):
            raise ConfigError(f"invalid config parameter: {problem}")
    for name, proxy in app.proxies.items():
        problem = _proxy_problem(proxy) or validate_security.identities_problem(app, proxy)
        if problem:
            raise ConfigError(f"invalid config, cluster={name}: {problem}")
    return app


def _export_problem(conf: model.Export) -> str:
    if conf.endpoint and not conf.endpoint.startswith(("http://", "https://")):
        return f"tracing.export.endpoint {conf.endpoint!r} is no URL, such as http://localhost:4318/v1/traces"
    return ""


def _front_problem(app: model.App) -> str:
    front = app.server.front
    if problem := _choice("server.front", front, FRONTS):
        return problem
    if front == "envoy" and not any(":" in each for each in (app.grpc_addr, app.tcp_addr, app.rest.addr)):
        return "server.front envoy needs grpc_addr, tcp_addr or rest.addr as host:port: Envoy serves no unix socket here"
    if front == "envoy" and app.server.workers != "1":
        return "server.workers needs server.front: portable; Envoy hosts one process (docs/fronts.md)"
    return _workers_problem(app) if app.server.processes > 1 else ""


def _workers_problem(app: model.App) -> str:
    if not sys.platform.startswith("linux"):
        return "server.workers needs Linux, which deals connections out to processes that listen on one port"
    for key, address in {"tcp_addr": app.tcp_addr, "rest.addr": app.rest.addr}.items():
        if address and ":" not in address:
            return f"server.workers needs {key} as host:port: unix_addr is the one unix socket that workers share"
    return ""


def _logger_problem(logger: model.Logger) -> str:
    if logger.severity not in SEVERITIES:
        return f"logging severity {logger.severity!r} of {logger.name} is not one of {', '.join(SEVERITIES)}"
    address = logger.params.get("addr", model.SYSLOG)
    if logger.name == "syslog" and not _is_host_and_port(address):
        return f"logging addr {_without_user(address)!r} of syslog must be host:port, such as {model.SYSLOG}"
    return ""


def _is_host_and_port(address: str) -> bool:
    try:
        host, port = split_address(address)
    except ValueError:
        return False
    return bool(host and port)


def _unix_problem(mode: str) -> str:
    if UNIX_MODE.match(mode):
        return ""
    return f"unix_mode {mode!r} must be an octal mode such as 0660"


def _hosts_problem(app: model.App) -> str:
    for host in app.allowed_hosts:
        if not HOST.match(host):
            return f"allowed_hosts {host!r} must be a host name without a port, .example.com for all below it, or *"
    for entry in app.trusted_proxies:
        try:
            if entry != "unix":
                ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return f"trusted_proxies {entry!r} must be an address, a network such as 10.0.0.0/8, or unix"
    return ""


def _proxy_problem(proxy: model.Proxy) -> str:
    if not VALID.match(proxy.client_id):
        return (
            f"invalid config parameter: client_id {proxy.client_id!r} must match "
            r"\A[A-Za-z0-9._-]+\z"
        )
    problem = (
        _version_problem(proxy.kafka.version)
        or _bounds("", proxy)
        or _bounds("producer.", proxy.producer)
        or _choice("producer.partitioner", proxy.producer.partitioner, PARTITIONERS)
        or _bounds("consumer.", proxy.consumer)
        or _choice("consumer.initial_offset", proxy.consumer.initial_offset, INITIAL_OFFSETS)
        or _choice("consumer.membership", proxy.consumer.membership, MEMBERSHIPS)
        or _choice("consumer.group_protocol", proxy.consumer.group_protocol, GROUP_PROTOCOLS)
        or _choice("net.sasl.mechanism", proxy.net.sasl.mechanism, SASL_MECHANISMS)
        or _zookeeper_problem(proxy)
        or _bounds("net.", proxy.net)
        or _bounds("instances.", proxy.instances)
        or _bounds("journal.", proxy.journal)
        or _bounds("identities.", proxy.identities)
        or _journal_problem(proxy.journal)
    )
    if problem:
        return f"invalid config parameter: {problem}"
    if problem := _seed_peers_problem(proxy.kafka.seed_peers):
        return f"invalid config parameter: kafka.seed_peers {problem}"
    problem = _tls_problem(proxy.kafka) if proxy.kafka.tls else ""
    if not problem:
        return ""
    hint = files.kafka_tls_hint(proxy.kafka)
    return f'invalid tls configuration: "{problem}"{hint and f" ({hint})"}'


def _version_problem(version: str) -> str:
    """Check a version here, too: that of the environment variable has passed no other check."""
    try:
        check_kafka_version(version)
    except ValueError as error:
        origin = " from $KAFKA_VERSION" if version == os.environ.get("KAFKA_VERSION") else ""
        return f"kafka.version{origin}: {error}; such as 2.3.0 or 3.9.0 is expected"
    return ""


def _seed_peers_problem(entries: list[str]) -> str:
    peers = [peer for entry in entries for peer in entry.split(",") if peer.strip()]
    if not peers:
        return "must name at least one broker"
    wrong = next((peer for peer in peers if not is_broker(peer)), None)
    if wrong is None:
        return ""
    return f"{_without_user(wrong)!r} is not host:port, such as kafka1:9092 or [::1]:9092"


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
        if not _is_base_url(url):
            hint = " (a / in a password is written %2F)" if "@" in url else ""
            return f"{name} {_without_user(url)!r} must be a base URL such as http://host:19092{hint}"
    return ""


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    # An @ behind a / means a password with a / in it, which would be taken for a path and shown.
    return bool(url.startswith(("http://", "https://")) and host and "@" not in parts.path)


def _without_user(address: str) -> str:
    """Return an address for an error, without the user and password that may stand in it."""
    return _USER_INFO.sub(rf"\1{MASK}@", address)


def _zookeeper_problem(proxy: model.Proxy) -> str:
    """Check ``zoo_keeper`` only where it is used: the original never did."""
    if proxy.consumer.membership != "zookeeper":
        return ""
    conf = proxy.zoo_keeper
    if not any(conf.seed_peers):
        return "zoo_keeper.seed_peers must name at least one node"
    if not ZOOKEEPER_CHROOT.match(conf.chroot):
        return f"zoo_keeper.chroot {conf.chroot!r} must be a path such as /kafka"
    if conf.session_timeout < 1:
        return "zoo_keeper.session_timeout must be >= 1"
    if proxy.client_id in (".", ".."):
        return f"client_id {proxy.client_id!r} cannot be a name in ZooKeeper"
    return ""


def _bounds(section: str, values: object) -> str:
    """Describe the first field of a section that is out of its bounds; empty if there is none."""
    kinds = typing.get_type_hints(type(values), include_extras=True)
    for field, kind in kinds.items():
        for meta in getattr(kind, "__metadata__", ()):
            value = getattr(values, field)
            for symbol, holds, bound in (
                (">", operator.gt, meta.gt),
                (">=", operator.ge, meta.ge),
                ("<=", operator.le, meta.le),
            ):
                if bound is not None and not holds(value, bound):
                    # One name differs from its key, because the original's text does.
                    name = (meta.extra or {}).get("name", field)
                    # Large bounds in full; and a duration's upper bound as one writes it.
                    shown = f"{bound:.12g}"
                    if symbol == "<=" and kind.__origin__ is Duration:
                        shown = format_duration(bound)
                    return f"{section}{name} must be {symbol} {shown}"
    return ""


def _audit_problem(app: model.App) -> str:
    topic, cluster = app.audit.topic, app.cluster_name(app.audit.cluster)
    if not topic:
        return "audit.cluster needs audit.topic" if app.audit.cluster else ""
    if not TOPIC.match(topic):
        return f"audit.topic {topic!r} is not a name that Kafka allows"
    if cluster not in app.proxies:
        return f"audit.cluster {cluster} is not among the proxies"
    if topic == app.proxies[cluster].journal.topic:
        return "audit.topic must be another topic than journal.topic"
    return ""


def _journal_problem(journal: model.Journal) -> str:
    if journal.topic and not TOPIC.match(journal.topic):
        return f"journal.topic {journal.topic!r} is not a name that Kafka allows"
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
                with files.open_regular(path):
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
            context.load_cert_chain(
                kafka.client_certificate_file,
                kafka.client_key_file or None,
                password=files.refuse_pass_phrase,
            )
        except (ssl.SSLError, OSError, ValueError, files.PassPhraseNeeded):
            return "kafka.client_cert_file and kafka.client_cert_key_file are not a valid certificate pair"
    return ""

"""Translates the configuration into librdkafka's settings."""

from __future__ import annotations

import logging
from typing import Any

from pixy.config.model import Kafka, Net, Producer, Proxy
from pixy.errors import InvalidParameter

logger = logging.getLogger("pixy.kafka.librdkafka")

Settings = dict[str, Any]

_ACKS = {"no_response": 0, "wait_for_local": 1, "wait_for_all": -1}


MAX_GROUP_BYTES = 32_767
"""The longest group id: strings of Kafka's protocol have an int16 length."""


def _ms(seconds: float, least: int = 0) -> int:
    return max(least, round(seconds * 1000))


def common(proxy: Proxy) -> Settings:
    """Return the settings that all clients of a cluster share: addresses, client id, timeouts, security."""
    net = proxy.net
    return {
        "bootstrap.servers": ",".join(proxy.kafka.seed_peers),
        "client.id": proxy.client_id,
        "socket.timeout.ms": _ms(max(net.read_timeout, net.write_timeout), 1000),
        "socket.connection.setup.timeout.ms": _ms(net.dial_timeout, 1000),
        "reconnect.backoff.max.ms": 2000,
        "topic.metadata.refresh.interval.ms": 10_000,  # clients see new partitions within this time
        "logger": logger,
        **_security(proxy.kafka, net),
    }


def _security(kafka: Kafka, net: Net) -> Settings:
    settings: Settings = {
        "security.protocol": ("SASL_" if net.sasl.enable else "") + ("SSL" if kafka.tls else "PLAINTEXT")
    }
    if kafka.tls:
        for key, value in (
            ("ssl.ca.location", kafka.ca_certificate_file),
            ("ssl.certificate.location", kafka.client_certificate_file),
            ("ssl.key.location", kafka.client_key_file),
        ):
            if value:
                settings[key] = value
        if kafka.insecure:
            settings["enable.ssl.certificate.verification"] = False
            settings["ssl.endpoint.identification.algorithm"] = "none"
    if net.sasl.enable:
        settings["sasl.mechanisms"] = net.sasl.mechanism
        settings["sasl.username"] = net.sasl.user
        settings["sasl.password"] = net.sasl.password
    return settings


def producer(proxy: Proxy, partitioner: str) -> Settings:
    """Return the settings of a cluster's producer, which is idempotent if all replicas must acknowledge.

    Args:
        proxy: the cluster's configuration.
        partitioner: librdkafka's name of a partitioner.
    """
    conf = proxy.producer
    acks = _ACKS[conf.required_acks]
    return {
        **common(proxy),
        "acks": acks,
        "enable.idempotence": acks == -1,
        "compression.type": conf.compression,
        "message.max.bytes": conf.max_message_bytes,
        "request.timeout.ms": _ms(conf.timeout, 1),
        "message.timeout.ms": _ms(message_timeout(conf)),
        "retry.backoff.ms": _ms(min(conf.retry_backoff, 0.1), 1),
        "retry.backoff.max.ms": _ms(min(conf.retry_backoff, 1.0), 1),
        # The TopicProducer batches; librdkafka sends at once.
        "linger.ms": 0,
        "partitioner": partitioner,
        "sticky.partitioning.linger.ms": 0,
        "queue.buffering.max.kbytes": max(1, conf.buffer_max_bytes // 1024),
    }


_LONGEST = 2_147_483.0
"""Seconds: librdkafka has 31 bits of milliseconds, 24 days."""


def message_timeout(conf: Producer) -> float:
    """Return the seconds after which a message that Kafka has not confirmed is given up.

    The Go original made ``retry_max`` attempts, ``retry_backoff`` apart. An idempotent producer can retry at once and any
    number of times within the same time.
    """
    return min(max(1.0, conf.retry_backoff * conf.retry_max + conf.timeout), _LONGEST)


def journal(proxy: Proxy) -> Settings:
    """Return the settings of the journal's own producer, whose failures affect no other."""
    conf = proxy.journal
    return {
        **common(proxy),
        "acks": -1,
        "enable.idempotence": True,
        "compression.type": conf.compression,
        "message.timeout.ms": _ms(conf.delivery_timeout, 1000),
        "linger.ms": 5,  # send batches together that are written together
        "queue.buffering.max.kbytes": 65_536,  # journal.buffer_events limits the events
    }


def lines(proxy: Proxy, timeout: float, most: int) -> Settings:
    """Return the settings of a producer of lines (:mod:`pixy.kafka.line_producer`).

    Args:
        proxy: the cluster's configuration.
        timeout: seconds after which a line that Kafka has not confirmed is given up.
        most: lines that wait for Kafka at most.
    """
    return {
        **common(proxy),
        "acks": -1,
        # An idempotent producer may end for good; with one request at a time none is needed for the order.
        "enable.idempotence": False,
        "max.in.flight.requests.per.connection": 1,
        "message.timeout.ms": _ms(timeout, 1000),
        "linger.ms": 50,
        "compression.type": "zstd",
        "queue.buffering.max.messages": most,
        "queue.buffering.max.kbytes": 65_536,
    }


def consumer(proxy: Proxy, group: str) -> Settings:
    """Return the settings of a group's consumer, which does not commit by itself.

    Args:
        proxy: the cluster's configuration.
        group: its id.
    """
    conf = proxy.consumer
    settings = {
        **claimed_consumer(proxy, group),
        **_protocol(proxy, conf.session_timeout, conf.heartbeat_interval),
        # librdkafka wants it no shorter than the session; and no drain, which no poll interrupts, may outlast it.
        "max.poll.interval.ms": max(_MAX_POLL, _ms(conf.session_timeout), _ms(conf.drain_timeout) + 60_000),
    }
    if conf.group_instance_id:
        settings["group.instance.id"] = conf.group_instance_id
    return settings


_MAX_POLL = 300_000
"""librdkafka's own default, in milliseconds: a member that does not poll for so long leaves its group."""


def _protocol(proxy: Proxy, session_timeout: float, heartbeat_interval: float) -> Settings:
    protocol = proxy.consumer.kafka_protocol
    settings: Settings = {"group.protocol": protocol}
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
        settings["session.timeout.ms"] = _ms(session_timeout, 1)
        settings["heartbeat.interval.ms"] = _ms(heartbeat_interval, 1)
    return settings


def _rack(proxy: Proxy) -> Settings:
    return {"client.rack": proxy.client_rack} if proxy.client_rack else {}


def claimed_consumer(proxy: Proxy, group: str) -> Settings:
    """Return the settings of a consumer that fetches and commits for a group without joining it, as members in ZooKeeper do.

    :func:`consumer` adds the group's protocol to them.

    Args:
        proxy: the cluster's configuration.
        group: its id.
    """
    conf = proxy.consumer
    return {
        **common(proxy),
        **_rack(proxy),
        "group.id": group_id(group),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # After an offset out of range the session decides where to go on: the offset may have expired, or the log may
        # be another one.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,  # the end may be a transaction's marker, which is no message
        "allow.auto.create.topics": True,
        "fetch.wait.max.ms": _ms(conf.fetch_max_wait),
        "fetch.queue.backoff.ms": 10,
        "fetch.message.max.bytes": conf.fetch_max_bytes,
        "queued.max.messages.kbytes": conf.prefetch_max_bytes // 1024,
        "max.poll.interval.ms": _MAX_POLL,
    }


def admin(proxy: Proxy) -> Settings:
    """Return the settings of the client for metadata, offsets and groups; asking for a topic must not create it."""
    return {**common(proxy), "allow.auto.create.topics": False}


def fetcher(proxy: Proxy) -> Settings:
    """Return the settings of a consumer for reads by offset, which joins no group and fetches little ahead."""
    conf = proxy.consumer
    return {
        **common(proxy),
        **_rack(proxy),
        "group.id": f"{proxy.client_id}.fetch",  # the library requires one; it is never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        # A broker answers the requests of a connection one at a time: a fetch that waits at the end of a
        # partition delays the next read of another partition for as long.
        "fetch.wait.max.ms": min(20, _ms(conf.fetch_max_wait)),
        "fetch.queue.backoff.ms": 10,
        "fetch.message.max.bytes": conf.fetch_max_bytes,
        "queued.max.messages.kbytes": max(64, conf.fetch_max_bytes * 2 // 1024),
    }


def instance(proxy: Proxy, group: str, name: str, reset: str, isolation: str) -> Settings:
    """Return the settings of a REST consumer instance's consumer.

    Args:
        proxy: the cluster's configuration.
        group: the id of its group.
        name: of the instance; part of its client id.
        reset: where a partition without a usable offset begins: ``earliest`` or ``latest``.
        isolation: ``read_committed`` or ``read_uncommitted``.
    """
    conf = proxy.instances
    return {
        **common(proxy),
        **_rack(proxy),
        "client.id": f"{proxy.client_id}.{name}",
        "group.id": group_id(group),
        **_protocol(proxy, conf.session_timeout, conf.heartbeat_interval),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": reset,
        "isolation.level": isolation,
        "allow.auto.create.topics": False,
        # Only an idle instance's client waits for a fetch that the broker holds, so it may hold it long: a
        # thousand idle instances then make 2,000 requests a second instead of 20,000.
        "fetch.wait.max.ms": _ms(conf.fetch_max_wait),
        "fetch.queue.backoff.ms": 10,
        "fetch.message.max.bytes": conf.fetch_max_bytes,
        "queued.min.messages": conf.prefetch_max_messages,
        "queued.max.messages.kbytes": conf.prefetch_max_bytes // 1024,
        "max.poll.interval.ms": max(_MAX_POLL, _ms(conf.session_timeout)),
        "enable.metrics.push": False,
    }


def group_id(group: str) -> str:
    """Return a group id that Kafka's protocol and librdkafka can represent.

    librdkafka strips white space from both ends of a setting: an id of white space alone makes
    confluent-kafka's Consumer end the process by an assertion, and another id would become a different group.

    Raises:
        InvalidParameter: the id is empty or too long, contains NUL, or has white space at an end.
    """
    if not group:
        raise InvalidParameter("bad group: must not be empty")
    if group != group.strip():
        raise InvalidParameter("bad group: must not begin or end with white space")
    if len(group.encode(errors="replace")) > MAX_GROUP_BYTES:
        raise InvalidParameter(f"bad group: longer than {MAX_GROUP_BYTES} bytes")
    if "\x00" in group:
        raise InvalidParameter("bad group: must not contain NUL")
    return group


def record_headers_unsupported(proxy: Proxy) -> bool:
    """Return whether the configured Kafka version is older than 0.11, which introduced record headers."""
    major, minor = (int(part) for part in proxy.kafka.version.split(".")[:2])
    return (major, minor) < (0, 11)

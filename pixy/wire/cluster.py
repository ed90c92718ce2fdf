"""Calls to any broker of a cluster: partition leaders, group coordinators, topics.

Each call opens its own connection to a bootstrap broker and closes it. All are generators of steps
(:mod:`pixy.wire.steps`); :mod:`pixy.wire.client` and :mod:`pixy.wire.aio` have them as functions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Unpack

from pixy.wire import messages, schema
from pixy.wire.connection import (
    Bootstrap,
    Broker,
    Connection,
    LookUpSrv,
    Options,
    Resolve,
    Settings,
    Steps,
    connect,
    parse_address,
)
from pixy.wire.errors import ErrorCode, KafkaError
from pixy.wire.exceptions import DecodeError, WireError

GROUP: Final = 0
"""The ``KeyType`` of FindCoordinator for a group; 1 is a transactional id."""

_SRV_TIMEOUT: Final = 5.0


class PartitionDoesNotExistError(KafkaError):
    """The cluster has no such topic or partition."""


class NoLeaderForPartitionError(KafkaError):
    """The partition has no leader at present."""


class Bootstrapper:
    """Chooses a bootstrap broker and connects to it. Resolved addresses are kept until one of them fails."""

    def __init__(self, settings: Settings, choose: random.Random | None = None) -> None:
        self.settings = settings
        self._random = choose or random.Random()
        self._addresses: list[Broker] = []

    def connect(self) -> Steps[Connection]:
        """Connect to a bootstrap broker chosen at random, once. Raises WireError."""
        if not self._addresses:
            self._addresses = yield from self._resolve()
        try:
            return (yield from connect(self.settings, self._random.choice(self._addresses)))
        except BaseException:
            self._addresses = []
            raise

    def call(self, api: str, body: Mapping[str, Any]) -> Steps[messages.Body]:
        """Call an API of a bootstrap broker on a connection of its own. Raises WireError."""
        connection = yield from self.connect()
        try:
            return (yield from connection.call(api, body))
        except BaseException:
            self._addresses = []
            raise
        finally:
            connection.close()

    def _resolve(self) -> Steps[list[Broker]]:
        bootstrap: Any = self.settings.bootstrap
        if callable(bootstrap):
            bootstrap = yield Resolve(bootstrap)
        addresses: list[str] = []
        for each in bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap:
            if ":" in each:
                addresses.append(each)
            else:
                addresses += yield LookUpSrv(each.strip(), self.settings.dial_timeout or _SRV_TIMEOUT)
        found = [parse_address(each) for each in addresses]
        if not found:
            raise WireError("no bootstrap address")
        return found


class Link:
    """A connection to the one broker that serves a partition or a group.

    The broker is looked up once and outlives the connection. After NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR call
    :meth:`forget`, and the next call looks it up again.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.bootstrapper = Bootstrapper(settings)
        self.broker: Broker | None = None
        self.connection: Connection | None = None

    def look_up(self) -> Steps[Broker]:
        """Ask the cluster for the broker."""
        raise NotImplementedError

    def target(self) -> Steps[Broker]:
        """Return the broker, looking it up if it is not known."""
        if self.broker is None:
            self.broker = yield from self.look_up()
        return self.broker

    def connected(self) -> Steps[Connection]:
        """Return the connection, opening one if there is none or it has expired."""
        if self.connection is not None and self.connection.expired():
            self.close()
        if self.connection is None:
            broker = yield from self.target()
            self.connection = yield from connect(self.settings, broker)
        return self.connection

    def close(self) -> None:
        """Close the connection. The broker stays known, and the next call connects again."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def forget(self) -> None:
        """Close the connection, and look the broker up again at the next call."""
        self.close()
        self.broker = None


def call(link: Link, api: str, body: Mapping[str, Any]) -> Steps[messages.Body]:
    """Call any API on this client's connection.

    Args:
        api: name of the API, as ``"DescribeGroups"``. The version is the newest that both sides know.
        body: fields of the request, named as in Kafka's schema; missing ones have their defaults.

    Returns:
        The response's body.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed.
        EncodeError: ``body`` does not fit the schema.
        UnsupportedVersionError: the broker and this client have no version of the API in common.
    """
    connection = yield from link.connected()
    return (yield from connection.call(api, body))


def api_versions(
    bootstrap: Bootstrap | Bootstrapper, **options: Unpack[Options]
) -> Steps[dict[str, tuple[int, int]]]:
    """Ask a broker which versions of each API it supports (ApiVersions, KIP-35).

    Returns:
        API name to (first, last) version; an API unknown here has its key as the name.
    """
    connection = yield from _bootstrapper(bootstrap, options).connect()
    connection.close()
    names = schema.keys()
    return {names.get(key, str(key)): span for key, span in sorted(connection.versions.items())}


def metadata(
    bootstrap: Bootstrap | Bootstrapper, topics: Iterable[str] | None = None, **options: Unpack[Options]
) -> Steps[messages.Body]:
    """Describe brokers and topics (Metadata). The request creates no topic.

    Args:
        bootstrap: see :class:`~pixy.wire.connection.Settings`.
        topics: names of topics; None for all, an empty iterable for none.
        options: see :class:`~pixy.wire.connection.Settings`.

    Returns:
        The body of the MetadataResponse.
    """
    wanted = None if topics is None else [{"Name": each} for each in topics]
    asked = _bootstrapper(bootstrap, options)
    return (yield from asked.call("Metadata", {"Topics": wanted, "AllowAutoTopicCreation": False}))


def create_topic(
    bootstrap: Bootstrap | Bootstrapper,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_ms: int = 30_000,
    validate_only: bool = False,
    **options: Unpack[Options],
) -> Steps[messages.Body]:
    """Create a topic, or try whether it could be created (CreateTopics, sent to the controller).

    Args:
        bootstrap: see :class:`~pixy.wire.connection.Settings`.
        topic: name of the topic.
        partitions: number of partitions.
        replication_factor: replicas of each partition.
        configs: topic settings by name, as ``{"retention.ms": "1000"}``.
        timeout_ms: how long the controller waits for the topic to exist on all brokers.
        validate_only: check the request and create nothing.
        options: see :class:`~pixy.wire.connection.Settings`.

    Returns:
        The topic's part of the response: ErrorCode, ErrorMessage and more.

    Raises:
        WireError: the cluster has no controller, or a call failed.
    """
    bootstrapper = _bootstrapper(bootstrap, options)
    cluster = yield from metadata(bootstrapper, [])
    brokers = {each["NodeId"]: each for each in cluster["Brokers"]}
    controller = brokers.get(cluster["ControllerId"])
    if controller is None:
        raise WireError("the cluster has no controller at present")
    settings = [{"Name": name, "Value": value} for name, value in (configs or {}).items()]
    wanted = {
        "Name": topic,
        "NumPartitions": partitions,
        "ReplicationFactor": replication_factor,
        "Configs": settings,
    }
    body = {"Topics": [wanted], "timeoutMs": timeout_ms, "validateOnly": validate_only}
    connection = yield from connect(bootstrapper.settings, _broker(controller))
    try:
        response = yield from connection.call("CreateTopics", body)
    finally:
        connection.close()
    return find(response["Topics"], "Name", topic)


def find_coordinator(
    bootstrap: Bootstrap | Bootstrapper, key: str, key_type: int = GROUP, **options: Unpack[Options]
) -> Steps[messages.Body]:
    """Find the coordinator of a group or a transactional id (FindCoordinator).

    Args:
        bootstrap: see :class:`~pixy.wire.connection.Settings`.
        key: group id or transactional id.
        key_type: 0 for a group, 1 for a transactional id.
        options: see :class:`~pixy.wire.connection.Settings`.

    Returns:
        The body of the FindCoordinatorResponse: ErrorCode, NodeId, Host, Port.
    """
    asked = _bootstrapper(bootstrap, options)
    return (yield from asked.call("FindCoordinator", {"Key": key, "KeyType": key_type}))


def group_coordinator(
    bootstrap: Bootstrap | Bootstrapper, group_id: str, **options: Unpack[Options]
) -> Steps[Broker]:
    """Find the broker that coordinates a group. Raises KafkaError if there is none, or none yet."""
    response = yield from find_coordinator(bootstrap, group_id, **options)
    if response["ErrorCode"]:
        raise KafkaError(response["ErrorCode"], response.get("ErrorMessage"))
    return _broker(response)


def partition_leader(
    bootstrap: Bootstrap | Bootstrapper, topic: str, partition: int, **options: Unpack[Options]
) -> Steps[Broker]:
    """Find the broker that leads a partition.

    Raises:
        PartitionDoesNotExistError: the cluster has no such topic or partition.
        NoLeaderForPartitionError: the partition has no leader at present.
        KafkaError: Metadata reports another error for the topic.
    """
    cluster = yield from metadata(bootstrap, [topic], **options)
    found = find(cluster["Topics"], "Name", topic)
    where = f"{topic}/{partition}"
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if found["ErrorCode"] == missing:
        raise PartitionDoesNotExistError(missing, where)
    if found["ErrorCode"]:
        raise KafkaError(found["ErrorCode"], where)
    info = next((each for each in found["Partitions"] if each["PartitionIndex"] == partition), None)
    if info is None:
        raise PartitionDoesNotExistError(missing, where)
    leader = next((each for each in cluster["Brokers"] if each["NodeId"] == info["LeaderId"]), None)
    if leader is None:
        raise NoLeaderForPartitionError(info["ErrorCode"] or ErrorCode.LEADER_NOT_AVAILABLE, where)
    return _broker(leader)


def find(items: Sequence[messages.Body], field: str, value: Any) -> messages.Body:
    """Return the first element whose ``field`` equals ``value``. Raises DecodeError if the response lacks it."""
    for each in items:
        if each[field] == value:
            return each
    raise DecodeError(f"the broker's answer has nothing about {value}", 0)


def _bootstrapper(bootstrap: Bootstrap | Bootstrapper, options: Options) -> Bootstrapper:
    if isinstance(bootstrap, Bootstrapper):
        return bootstrap
    return Bootstrapper(Settings(bootstrap, **options))


def _broker(entry: Mapping[str, Any]) -> Broker:
    return Broker(entry["Host"], entry["Port"], entry["NodeId"], entry.get("Rack"))

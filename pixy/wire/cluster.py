"""Calls to any broker of a cluster: who leads a partition, who coordinates a group, what topics there are.

Each opens a connection of its own to a bootstrap broker and closes it. All are generators, see
:mod:`pixy.wire.connection`; the functions to call are in :mod:`pixy.wire.client` and
:mod:`pixy.wire.aio`.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pixy.wire import messages, schema, srv
from pixy.wire.connection import (
    Broker,
    Connection,
    Resolve,
    Settings,
    Steps,
    connect,
    parse_address,
)
from pixy.wire.errors import KafkaError
from pixy.wire.exceptions import DecodeError, WireError

GROUP = 0
"""The ``KeyType`` of FindCoordinator for a group; 1 is a transactional id."""


class PartitionDoesNotExistError(KafkaError):
    """The cluster has no such topic or partition."""


class NoLeaderForPartitionError(KafkaError):
    """The partition has no leader at present."""


class Bootstrapper:
    """Finds a broker to ask. What a bootstrap function told is kept until a broker of it fails."""

    def __init__(self, settings: Settings, choose: random.Random | None = None) -> None:
        self.settings = settings
        self._random = choose or random.Random()
        self._addresses: list[Broker] = []

    def connect(self) -> Steps[Connection]:
        """A connection to one of the bootstrap brokers, at random; there is no second attempt."""
        if not self._addresses:
            self._addresses = yield from self._resolve()
        try:
            return (yield from connect(self.settings, self._random.choice(self._addresses)))
        except BaseException:
            self._addresses = []
            raise

    def call(self, api: str, body: Mapping[str, Any]) -> Steps[messages.Body]:
        """Call one of the bootstrap brokers."""
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
                timeout = self.settings.dial_timeout or 5.0
                addresses += yield Resolve(functools.partial(srv.lookup, each.strip(), timeout=timeout))
        found = [parse_address(each) for each in addresses]
        if not found:
            raise WireError("no bootstrap address")
        return found


class Link:
    """A connection to the one broker that something belongs to.

    The broker is looked up once and outlives the connection; who learns that it is another one now
    (NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR) calls :meth:`forget`.
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
        """The broker, looked up if it is not known."""
        if self.broker is None:
            self.broker = yield from self.look_up()
        return self.broker

    def connected(self) -> Steps[Connection]:
        """The connection, opened if there is none or it has reached its end."""
        if self.connection is not None and self.connection.expired():
            self.close()
        if self.connection is None:
            broker = yield from self.target()
            self.connection = yield from connect(self.settings, broker)
        return self.connection

    def call(self, api: str, body: Mapping[str, Any], *, answered: bool = True) -> Steps[messages.Body]:
        """Any call to the broker."""
        connection = yield from self.connected()
        return (yield from connection.call(api, body, answered=answered))

    def close(self) -> None:
        """Close the connection; the broker stays known."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def forget(self) -> None:
        """Close the connection, and look the broker up anew at the next call."""
        self.close()
        self.broker = None


def api_versions(bootstrapper: Bootstrapper) -> Steps[dict[str, tuple[int, int]]]:
    """What a broker speaks: API (its number as text if it is not known) to (first, last) version."""
    connection = yield from bootstrapper.connect()
    connection.close()
    names = schema.keys()
    return {names.get(key, str(key)): span for key, span in sorted(connection.versions.items())}


def metadata(bootstrapper: Bootstrapper, topics: Iterable[str] | None = None) -> Steps[messages.Body]:
    """The body of a MetadataResponse about ``topics``, or all; none is created by asking."""
    wanted = None if topics is None else [{"Name": each} for each in topics]
    return (yield from bootstrapper.call("Metadata", {"Topics": wanted, "AllowAutoTopicCreation": False}))


def create_topic(
    bootstrapper: Bootstrapper,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
    timeout_ms: int = 30_000,
    validate_only: bool = False,
) -> Steps[messages.Body]:
    """What the controller says of the topic: a dict with ErrorCode, ErrorMessage and more."""
    cluster = yield from metadata(bootstrapper, [])
    brokers = {each["NodeId"]: each for each in cluster["Brokers"]}
    controller = brokers.get(cluster["ControllerId"])
    if controller is None:
        raise WireError("the cluster has no controller at present")
    connection = yield from connect(bootstrapper.settings, _broker(controller))
    try:
        response = yield from connection.call(
            "CreateTopics",
            {
                "Topics": [
                    {
                        "Name": topic,
                        "NumPartitions": partitions,
                        "ReplicationFactor": replication_factor,
                        "Configs": [
                            {"Name": name, "Value": value} for name, value in (configs or {}).items()
                        ],
                    }
                ],
                "timeoutMs": timeout_ms,
                "validateOnly": validate_only,
            },
        )
    finally:
        connection.close()
    return find(response["Topics"], "Name", topic)


def find_coordinator(bootstrapper: Bootstrapper, key: str, key_type: int = GROUP) -> Steps[messages.Body]:
    """The body of a FindCoordinatorResponse: ErrorCode, NodeId, Host, Port."""
    return (yield from bootstrapper.call("FindCoordinator", {"Key": key, "KeyType": key_type}))


def group_coordinator(bootstrapper: Bootstrapper, group_id: str) -> Steps[Broker]:
    """The broker that coordinates a group. Raises KafkaError if there is none, perhaps only yet."""
    response = yield from find_coordinator(bootstrapper, group_id)
    if response["ErrorCode"]:
        raise KafkaError(response["ErrorCode"], response.get("ErrorMessage"))
    return _broker(response)


def partition_leader(bootstrapper: Bootstrapper, topic: str, partition: int) -> Steps[Broker]:
    """The broker that leads a partition.

    Raises PartitionDoesNotExistError, NoLeaderForPartitionError, KafkaError.
    """
    cluster = yield from metadata(bootstrapper, [topic])
    found = find(cluster["Topics"], "Name", topic)
    place = f"{topic}/{partition}"
    if found["ErrorCode"] == 3:
        raise PartitionDoesNotExistError(3, place)
    if found["ErrorCode"]:
        raise KafkaError(found["ErrorCode"], place)
    info = next((each for each in found["Partitions"] if each["PartitionIndex"] == partition), None)
    if info is None:
        raise PartitionDoesNotExistError(3, place)
    leader = next((each for each in cluster["Brokers"] if each["NodeId"] == info["LeaderId"]), None)
    if leader is None:
        raise NoLeaderForPartitionError(info["ErrorCode"] or 5, place)
    return _broker(leader)


def find(items: Sequence[messages.Body], field: str, value: Any) -> messages.Body:
    """The element whose field has a value. Raises DecodeError: the broker left out what was asked for."""
    for each in items:
        if each[field] == value:
            return each
    raise DecodeError(f"the broker's answer has nothing about {value}", 0)


def _broker(entry: Mapping[str, Any]) -> Broker:
    return Broker(entry["Host"], entry["Port"], entry["NodeId"], entry.get("Rack"))

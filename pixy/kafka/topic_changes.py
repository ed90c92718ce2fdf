"""Creates, changes and deletes topics, and deletes groups. Blocking; no request is sent twice.

A broker that refuses says why in its own words, which the errors carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.errors import InvalidParameter, KafkaError, PixyError, TopicExists
from pixy.kafka.brokers import Brokers
from pixy.kafka.errors import error_of, unsupported
from pixy.kafka.group_members import coordinator
from pixy.wire.blocking import run
from pixy.wire.connection import Broker, Connection
from pixy.wire.errors import ErrorCode
from pixy.wire.exceptions import UnsupportedVersionError

_TOPIC: Final = 2
"""The resource type of a topic."""
_SET, _DELETE = 0, 1
"""Operations on a setting."""
_TIMEOUT_MS: Final = 10_000
"""Milliseconds that the controller may take until a change is done."""
_WRONG: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Errors that a corrected request avoids."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; 0 partitions or replicas leave the choice to the broker."""

    name: str
    partitions: int = 0
    replicas: int = 0
    config: Mapping[str, str] = field(default_factory=dict)


class TopicChanges:
    """Makes changes. Any thread may call; every method raises PixyError.

    Args:
        brokers: of the cluster.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        """Create a topic. Raises TopicExists.

        Args:
            topic: what to create.
            validate_only: check the request, change nothing.
        """
        wanted = {
            "Name": topic.name,
            "NumPartitions": topic.partitions or -1,
            "ReplicationFactor": topic.replicas or -1,
            "Configs": [{"Name": name, "Value": value} for name, value in topic.config.items()],
        }
        body = {"Topics": [wanted], "timeoutMs": _TIMEOUT_MS, "validateOnly": validate_only}
        self._change("CreateTopics", body, "Topics", topic.name)

    def create_by_use(self, topic: str) -> None:
        """Name a topic to a broker that creates it then: the sandbox, which knows no other way."""
        body = {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": True}
        self._brokers.change(self._controller(), lambda to: run(to.call("Metadata", body)))

    def delete(self, topic: str) -> None:
        """Delete a topic. Raises UnknownTopic."""

        def ask(connection: Connection) -> None:
            # From version 6 on, topics have ids as well.
            new = connection.version("DeleteTopics") >= 6
            names: dict[str, Any] = {"Topics": [{"Name": topic}]} if new else {"TopicNames": [topic]}
            _ask(connection, "DeleteTopics", {**names, "TimeoutMs": _TIMEOUT_MS}, "Responses", topic)

        self._brokers.change(self._controller(), _known("DeleteTopics", ask))

    def alter_config(
        self, topic: str, values: Mapping[str, str], defaults: Sequence[str], *, validate_only: bool = False
    ) -> None:
        """Change settings of a topic. Raises UnknownTopic.

        Args:
            topic: its name.
            values: settings to set.
            defaults: names of settings that go back to the broker's default.
            validate_only: check the request, change nothing.
        """
        entries = [{"Name": name, "ConfigOperation": _SET, "Value": value} for name, value in values.items()]
        entries += [{"Name": name, "ConfigOperation": _DELETE, "Value": None} for name in defaults]
        resource = {"ResourceType": _TOPIC, "ResourceName": topic, "Configs": entries}
        body = {"Resources": [resource], "ValidateOnly": validate_only}
        self._change("IncrementalAlterConfigs", body, "Responses", topic)

    def add_partitions(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions.

        Args:
            topic: its name.
            count: of all its partitions afterwards; must be more than it has.
            validate_only: check the request, change nothing.
        """
        wanted = {"Name": topic, "Count": count, "Assignments": None}
        body = {"Topics": [wanted], "TimeoutMs": _TIMEOUT_MS, "ValidateOnly": validate_only}
        self._change("CreatePartitions", body, "Results", topic)

    def delete_group(self, group: str) -> None:
        """Delete a group with its offsets."""
        body = {"GroupsNames": [group]}

        def ask(connection: Connection) -> None:
            _ask(connection, "DeleteGroups", body, "Results", group)

        self._brokers.change(coordinator(self._brokers, group), _known("DeleteGroups", ask))

    def _change(self, api: str, body: Mapping[str, Any], answers: str, name: str) -> None:
        def ask(connection: Connection) -> None:
            _ask(connection, api, body, answers, name)

        self._brokers.change(self._controller(), _known(api, ask))

    def _controller(self) -> Broker:
        found = self._brokers.topics([])
        for each in found.brokers:
            if each.node_id == found.controller_id:
                return each
        if not found.brokers:
            raise error_of(ErrorCode.BROKER_NOT_AVAILABLE)
        return found.brokers[0]


def _known(api: str, ask: Callable[[Connection], None]) -> Callable[[Connection], None]:
    def asked(connection: Connection) -> None:
        try:
            ask(connection)
        except UnsupportedVersionError:
            raise unsupported(api) from None

    return asked


def _ask(connection: Connection, api: str, body: Mapping[str, Any], answers: str, name: str) -> None:
    answer = run(connection.call(api, body))
    for each in answer[answers]:
        if each["ErrorCode"]:
            raise _error(each["ErrorCode"], each.get("ErrorMessage"), name)


def _error(code: int, text: str | None, name: str) -> PixyError:
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return TopicExists(name)
    error: KafkaError = error_of(code, text or None)
    if code in _WRONG:
        return InvalidParameter(f"{name}: {text or error}")
    return error


__all__ = ["NewTopic", "TopicChanges"]

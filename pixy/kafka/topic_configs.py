"""Asks a broker for the settings of topics. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pixy.kafka.errors import error_of, unsupported
from pixy.wire.blocking import run
from pixy.wire.connection import Connection
from pixy.wire.exceptions import UnsupportedVersionError

_TOPIC: Final = 2
"""The resource type of a topic."""
_OWN: Final = 1
"""The source of a setting that somebody has set for the topic itself."""
_TOPICS_AT_ONCE: Final = 100

Configs = dict[str, dict[str, str]]
"""Topic to name to value; empty for one that the broker does not tell."""


def topic_configs(connection: Connection, topics: Sequence[str], *, own: bool) -> Configs:
    """Return the settings of topics.

    Args:
        connection: to any broker.
        topics: their names.
        own: leave out the broker's settings and Kafka's defaults.

    Raises:
        KafkaError: the broker refused a topic, or does not know the request.
        WireError: it did not answer.
    """
    found: Configs = {}
    for at in range(0, len(topics), _TOPICS_AT_ONCE):
        resources = [
            {"ResourceType": _TOPIC, "ResourceName": topic} for topic in topics[at : at + _TOPICS_AT_ONCE]
        ]
        try:
            answer = run(connection.call("DescribeConfigs", {"Resources": resources}))
        except UnsupportedVersionError:
            raise unsupported("DescribeConfigs") from None
        for each in answer["Results"]:
            if each["ErrorCode"]:
                raise error_of(each["ErrorCode"], each["ErrorMessage"] or None)
            found[each["ResourceName"]] = {
                entry["Name"]: entry["Value"] or ""
                for entry in each["Configs"]
                if not own or entry.get("ConfigSource") == _OWN
            }
    return found

"""``kafka-pixy topics`` and ``kafka-pixy consumers``, and the lists behind ``topic list`` and ``topic describe``."""

from __future__ import annotations

from typing import Any

import click
import grpc

from pixy.cli.shell.errors import CallError
from pixy.cli.shell.framework import Command, connected
from pixy.cli.shell.names import GROUP, TOPIC
from pixy.cli.shell.output import note, plain, table, write
from pixy.cli.shell.session import Session
from pixy.proto import kafkapixy_pb2 as pb


def topic_view(info: Any) -> dict[str, Any]:
    """Return a topic as a JSON document."""
    return {
        "config": dict(sorted(info.config.items())),
        "partitions": [
            {
                "partition": part.partition,
                "leader": part.leader,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
            }
            for part in info.partitions
        ],
    }


def list_topics(session: Session) -> int:
    """Print all topics with their number of partitions and their own settings."""
    request = pb.ListTopicRq(cluster=session.cluster, with_partitions=True)
    found = sorted(session.call("ListTopics", request).topics.items())
    session.out.result(
        {name: topic_view(info) for name, info in found},
        ("topic", "partitions", "settings"),
        [
            (
                name,
                len(info.partitions),
                " ".join(f"{key}={value}" for key, value in sorted(info.config.items())),
            )
            for name, info in found
        ],
    )
    return 0


def describe_topic(session: Session, topic: str) -> int:
    """Print one topic: partitions and settings."""
    view = topic_view(session.topic(topic))
    if session.out.structured:
        session.out.document({topic: view})
        return 0
    columns = ("partition", "leader", "replicas", "isr")
    table(columns, [[part[name] for name in columns] for part in view["partitions"]])
    for key, value in view["config"].items():
        write(f"{plain(key)} = {plain(value)}\n")
    return 0


def _check_topic(session: Session, topic: str) -> None:
    """Raise CallError if there is no such topic: the API's answer is that nobody consumes it."""
    try:
        session.topic(topic)
    except CallError as error:
        if error.status is grpc.StatusCode.NOT_FOUND:
            raise


@click.command(
    "topics",
    cls=Command,
    examples={"kafka-pixy topics": "", "kafka-pixy topics foo": "its partitions and settings"},
    help="List topics, or show one. The same as topic list and topic describe.",
)
@click.argument("topic", required=False, default="", shell_complete=TOPIC)
@connected
def topics(session: Session, topic: str) -> int:
    """List topics, or describe one."""
    return describe_topic(session, topic) if topic else list_topics(session)


@click.command(
    "consumers",
    cls=Command,
    examples={"kafka-pixy consumers foo": "", "kafka-pixy consumers foo -g bar": ""},
    help="Show who consumes a topic: the members of each group, and their partitions.",
)
@click.argument("topic", shell_complete=TOPIC)
@click.option("-g", "--group", default="", shell_complete=GROUP, help="Only this group.")
@connected
def consumers(session: Session, topic: str, group: str) -> int:
    """Show who consumes a topic."""
    request = pb.ListConsumersRq(cluster=session.cluster, topic=topic, group=group)
    try:
        answer = session.call("ListConsumers", request)
    except CallError as error:
        if error.status is grpc.StatusCode.NOT_FOUND:
            session.topic(topic)
        raise
    if not answer.groups:
        _check_topic(session, topic)
    found = {
        name: {client: list(owned.partitions) for client, owned in sorted(clients.consumers.items())}
        for name, clients in sorted(answer.groups.items())
    }
    session.out.result(
        found,
        ("group", "client", "partitions"),
        [
            (name, client, ",".join(map(str, partitions)))
            for name, clients in found.items()
            for client, partitions in clients.items()
        ],
    )
    if not any(found.values()) and not session.out.structured:
        note(f"nobody consumes topic {topic}" + (f" as group {group}" if group else ""))
    return 0


__all__ = ["consumers", "describe_topic", "list_topics", "topic_view", "topics"]

"""``kafka-pixy topic``: list, create, describe, delete, config."""

from __future__ import annotations

import sys
from typing import Any

import click
import grpc

from pixy.cli.shell.errors import EXIT_USAGE, CallError, ShellError
from pixy.cli.shell.framework import Command, Group, connected
from pixy.cli.shell.lists import describe_topic, list_topics
from pixy.cli.shell.names import TOPIC
from pixy.cli.shell.output import note
from pixy.cli.shell.session import Session
from pixy.proto import kafkapixy_pb2 as pb


@click.group(
    "topic",
    cls=Group,
    examples={
        "kafka-pixy topic list": "",
        "kafka-pixy topic create foo -p 6": "",
        "kafka-pixy topic describe foo": "",
    },
    help="List, create, describe, change and delete topics.",
)
def topic() -> None:
    """Group the commands."""


@topic.command("list", cls=Command, examples={"kafka-pixy topic list --json": ""}, help="List all topics.")
@connected
def list_(session: Session) -> int:
    """List all topics."""
    return list_topics(session)


@topic.command(
    "describe",
    cls=Command,
    examples={"kafka-pixy topic describe foo": ""},
    help="Show a topic's partitions and its own settings.",
)
@click.argument("topic", shell_complete=TOPIC)
@connected
def describe(session: Session, topic: str) -> int:
    """Show one topic."""
    return describe_topic(session, topic)


@topic.command(
    "create",
    cls=Command,
    examples={
        "kafka-pixy topic create foo": "with the broker's defaults",
        "kafka-pixy topic create foo -p 6 -r 3 \\\n"
        "      -c retention.ms=86400000 -c cleanup.policy=compact": "",
    },
    help="Create a topic.",
)
@click.argument("topic")
@click.option("-p", "--partitions", type=click.IntRange(1, 10_000), help="How many.  [default: the broker's]")
@click.option(
    "-r",
    "--replicas",
    type=click.IntRange(1, 100),
    help="Replicas of each partition.  [default: the broker's]",
)
@click.option(
    "-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if there is one of that name.")
@click.option("--dry-run", is_flag=True, help="Check the request, create nothing.")
@connected
def create(
    session: Session,
    topic: str,
    partitions: int | None,
    replicas: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Create a topic."""
    request = pb.CreateTopicRq(
        cluster=session.cluster,
        topic=topic,
        partitions=partitions or 0,
        replication_factor=replicas or 0,
        config=_settings(settings),
        validate_only=dry_run,
    )
    try:
        session.call("CreateTopic", request)
    except CallError as error:
        if error.status is not grpc.StatusCode.ALREADY_EXISTS:
            raise
        if not if_not_exists:
            raise error.with_hint(
                "--if-not-exists lets that pass; kafka-pixy topic config changes it"
            ) from None
        return _say(session, f"topic {topic} exists already", {"topic": topic, "created": False})
    done = "could be created" if dry_run else "created"
    return _say(session, f"topic {topic} {done}", {"topic": topic, "created": not dry_run})


@topic.command(
    "config",
    cls=Command,
    examples={
        "kafka-pixy topic config foo": "its own settings",
        "kafka-pixy topic config foo --set retention.ms=60000 --unset cleanup.policy": "",
        "kafka-pixy topic config foo --partitions 12": "more than it has; keys then go to other partitions",
    },
    help="Show or change a topic's settings, or add partitions.",
)
@click.argument("topic", shell_complete=TOPIC)
@click.option(
    "-c", "--set", "values", multiple=True, metavar="NAME=VALUE", help="A setting; may be repeated."
)
@click.option(
    "--unset", "defaults", multiple=True, metavar="NAME", help="A setting that goes back to the default."
)
@click.option("-p", "--partitions", type=click.IntRange(1, 10_000), help="How many it shall have.")
@click.option("--dry-run", is_flag=True, help="Check the request, change nothing.")
@connected
def config(
    session: Session,
    topic: str,
    values: tuple[str, ...],
    defaults: tuple[str, ...],
    partitions: int | None,
    dry_run: bool,
) -> int:
    """Show or change settings."""
    if values or defaults or partitions:
        if both := sorted(set(defaults).intersection(settings := _settings(values))):
            raise ShellError(f"{both[0]} is both set and unset", EXIT_USAGE)
        request = pb.AlterTopicRq(
            cluster=session.cluster,
            topic=topic,
            set_config=settings,
            delete_config=defaults,
            partitions=partitions or 0,
            validate_only=dry_run,
        )
        absent = _not_set(session, topic, defaults)
        try:
            session.call("AlterTopic", request)
        except CallError as error:
            raise _unknown(session, error, topic) from None
        for name in absent:
            note(f"topic {topic} has no setting {name} of its own: there was nothing to unset")
        done = "could be changed" if dry_run else "changed"
        return _say(session, f"topic {topic} {done}", {"topic": topic, "changed": not dry_run})
    found = sorted(session.topic(topic).config.items())
    if not found and not session.out.structured:
        note(f"topic {topic} has no settings of its own: the broker's defaults apply")
        return 0
    session.out.result(dict(found), ("setting", "value"), found)
    return 0


@topic.command(
    "delete",
    cls=Command,
    examples={"kafka-pixy topic delete foo": "asks on a terminal", "kafka-pixy topic delete foo --yes": ""},
    help="Delete a topic with all its messages.",
)
@click.argument("topic", shell_complete=TOPIC)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connected
def delete(session: Session, topic: str, yes: bool) -> int:
    """Delete a topic."""
    if not yes:
        session.topic(topic)  # nobody is asked about what is not there
    confirm(f"Delete topic {topic} with all its messages?", yes)
    try:
        session.call("DeleteTopic", pb.DeleteTopicRq(cluster=session.cluster, topic=topic))
    except CallError as error:
        raise _unknown(session, error, topic) from None
    return _say(session, f"topic {topic} deleted", {"topic": topic, "deleted": True})


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost; without a terminal --yes must stand in the command.

    Args:
        question: also the beginning of the error if there is nobody to ask.
        yes: the value of --yes: then nobody is asked.

    Raises:
        ShellError: there is nobody to ask, or the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ShellError(f"{question} Nobody to ask: give --yes", EXIT_USAGE)
    if not click.confirm(question, err=True):
        raise ShellError("nothing was deleted")


def _settings(texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ShellError(f"{text!r} is not NAME=VALUE, such as retention.ms=60000", EXIT_USAGE)
        if name in found:
            raise ShellError(f"{name} is given twice: a setting has one value", EXIT_USAGE)
        found[name] = value
    return found


def _not_set(session: Session, topic: str, names: tuple[str, ...]) -> list[str]:
    """Return the settings that a topic does not have, as far as the caller may see them: Kafka unsets any name."""
    if not names:
        return []
    try:
        own = session.topic(topic).config
    except CallError:  # the change itself says what is wrong
        return []
    return [each for each in names if each not in own]


def _unknown(session: Session, error: CallError, topic: str) -> CallError:
    return session.unknown_topic(topic) if error.status is grpc.StatusCode.NOT_FOUND else error


def _say(session: Session, text: str, document: dict[str, Any]) -> int:
    if session.out.structured:
        session.out.document(document)
    else:
        note(text)
    return 0


__all__ = ["confirm", "topic"]

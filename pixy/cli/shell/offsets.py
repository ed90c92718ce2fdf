"""``kafka-pixy ack`` and ``kafka-pixy offsets``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
import grpc

from pixy.cli.shell.errors import EXIT_USAGE, CallError, ShellError
from pixy.cli.shell.framework import Command, connected
from pixy.cli.shell.names import GROUP, TOPIC
from pixy.cli.shell.places import BEGIN, explain, say_outside, shown, shown_lag
from pixy.cli.shell.session import Session
from pixy.cli.shell.values import MAX_OFFSET, MAX_PARTITION, OFFSET, PARTITION
from pixy.proto import kafkapixy_pb2 as pb

COLUMNS: Final = ("partition", "begin", "end", "count", "offset", "lag", "metadata", "sparse_acks")
_NAMED: Final = ("begin", "end")


class _PartitionOffset(click.ParamType[tuple[int, int | str]]):
    name = "PARTITION=OFFSET"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int | str]:
        partition, equals, offset = str(value).partition("=")
        try:
            if not equals or not 0 <= int(partition) <= MAX_PARTITION:
                raise ValueError
            if offset in _NAMED:
                return int(partition), offset
            if not BEGIN <= int(offset) <= MAX_OFFSET:
                raise ValueError
            return int(partition), int(offset)
        except ValueError:
            self.fail(f"{value!r} is not PARTITION=OFFSET, such as 0=100, 0=begin or 0=end", param, ctx)


@click.command(
    "ack",
    cls=Command,
    examples={"kafka-pixy ack foo -g bar -p 0 -o 17": "after kafka-pixy consume foo -g bar --ack none"},
    help="Acknowledge one message. It must have been consumed through this daemon, and its partition must still be assigned to it.",
)
@click.argument("topic", shell_complete=TOPIC)
@click.option("-g", "--group", required=True, shell_complete=GROUP, help="Consumer group.")
@click.option("-p", "--partition", type=PARTITION, required=True, help="Partition of the message.")
@click.option("-o", "--offset", type=OFFSET, required=True, help="Offset of the message.")
@connected
def ack(session: Session, topic: str, group: str, partition: int, offset: int) -> int:
    """Acknowledge one message."""
    request = pb.AckRq(cluster=session.cluster, topic=topic, group=group, partition=partition, offset=offset)
    try:
        session.call("Ack", request)
    except CallError as error:
        raise _explained(session, error, topic, partition) from None
    if session.out.structured:
        session.out.document({})
    return 0


def _explained(session: Session, error: CallError, topic: str, partition: int) -> CallError:
    """Say what a person can do where the daemon's text is the original's."""
    if error.status is not grpc.StatusCode.FAILED_PRECONDITION:
        return error
    if hint := partitions_of(session, topic, [partition]):
        return error.with_hint(hint)
    return error.with_hint(
        "consume the message through this daemon first (kafka-pixy consume --ack none); unacknowledged messages come again"
    )


@click.command(
    "offsets",
    cls=Command,
    examples={
        "kafka-pixy offsets foo -g bar": "",
        "kafka-pixy offsets foo -g bar --set 0=begin --set 1=100": "kafka-pixy group reset sets all partitions",
    },
    help="Show a group's offsets in each partition of a topic, or set them. Where nothing is committed, so that the group begins as a new one would, "
    "the table shows a dash for the offset and the lag, and JSON has -1 and 0; the beginning is -2 in JSON.",
)
@click.argument("topic", shell_complete=TOPIC)
@click.option("-g", "--group", required=True, shell_complete=GROUP, help="Consumer group.")
@click.option(
    "--set",
    "wanted",
    multiple=True,
    type=_PartitionOffset(),
    help="An offset, 'begin' or 'end'; nobody may consume as the group meanwhile.",
)
@connected
def offsets(session: Session, topic: str, group: str, wanted: tuple[tuple[int, int | str], ...]) -> int:
    """Show a group's offsets, or change them with --set."""
    place = {"cluster": session.cluster, "topic": topic, "group": group}
    numbers = [number for number, _ in wanted]
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise ShellError(f"--set: partition {twice[0]} is given twice", EXIT_USAGE)
    if wanted:
        changes = _changes(session, place, wanted)
        try:
            session.call("SetOffsets", pb.SetOffsetsRq(**place, offsets=changes))
        except CallError as error:
            if error.status is not grpc.StatusCode.NOT_FOUND:
                raise
            hint = partitions_of(session, topic, [each.partition for each in changes])
            raise error.with_hint(hint) from None
    try:
        found = session.call("GetOffsets", pb.GetOffsetsRq(**place)).offsets
    except CallError as error:
        if error.status is grpc.StatusCode.NOT_FOUND:
            session.topic(topic)
        raise
    rows = [[getattr(each, column) for column in COLUMNS] for each in found]
    document = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    at = COLUMNS.index("offset")  # the lag stands behind it
    cells = [[*row[:at], shown(row[at]), shown_lag(row[at], row[at + 1]), *row[at + 2 :]] for row in rows]
    session.out.result(document, COLUMNS, cells)
    if not session.out.structured:
        explain(row[at] for row in rows)
    say_outside({number: offset for number, offset in wanted if isinstance(offset, int)}, found)
    return 0


def partitions_of(session: Session, topic: str, named: Sequence[int]) -> str:
    """Say which partitions a topic has; empty if it has those that were named.

    Args:
        session: asks for the topic.
        topic: its name.
        named: partitions of the command line; any number.

    Raises:
        CallError: there is no such topic.
    """
    known = len(session.topic(topic).partitions)
    if max(named, default=0) < known:
        return ""
    return f"topic {topic} has {f'partitions 0 to {known - 1}' if known > 1 else 'partition 0 only'}"


def _changes(
    session: Session, place: dict[str, str], wanted: tuple[tuple[int, int | str], ...]
) -> list[pb.PartitionOffset]:
    """Turn what is wanted into offsets: Kafka has no number for the end, so it is what the end is now."""
    known: dict[int, Any] = {}
    if any(offset in _NAMED for _, offset in wanted):
        found = session.call("GetOffsets", pb.GetOffsetsRq(**place)).offsets
        known = {each.partition: each for each in found}
    changes: list[pb.PartitionOffset] = []
    for number, offset in wanted:
        if isinstance(offset, str) and number not in known:
            raise ShellError(f"topic {place['topic']} has no partition {number}", EXIT_USAGE)
        now = int(getattr(known[number], offset)) if isinstance(offset, str) else offset
        changes.append(pb.PartitionOffset(partition=number, offset=now))
    return changes


__all__ = ["ack", "offsets", "partitions_of"]

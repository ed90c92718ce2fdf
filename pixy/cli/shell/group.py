"""``kafka-pixy group``: list, describe, reset, delete."""

from __future__ import annotations

from typing import Any, Final

import click
import grpc

from pixy.cli.shell.errors import EXIT_USAGE, CallError, ShellError, nearest
from pixy.cli.shell.framework import EXITS, Command, Group, connected
from pixy.cli.shell.names import GROUP, TOPIC
from pixy.cli.shell.output import note, plain, table, write
from pixy.cli.shell.places import BEGIN, END, explain, say_moved, shown, shown_lag, within
from pixy.cli.shell.session import Session
from pixy.cli.shell.times import milliseconds
from pixy.cli.shell.topic import confirm
from pixy.cli.shell.values import PARTITION
from pixy.proto import kafkapixy_pb2 as pb

_COLUMNS: Final = ("topic", "partition", "begin", "end", "offset", "lag", "client")


@click.group(
    "group",
    cls=Group,
    examples={
        "kafka-pixy group describe bar": "",
        "kafka-pixy group reset bar foo --to begin --dry-run": "where the group would go on",
    },
    help="List, describe, reset and delete consumer groups.",
)
def group() -> None:
    """Group the commands."""


@group.command(
    "list", cls=Command, examples={"kafka-pixy group list --json": ""}, help="List Kafka's consumer groups."
)
@connected
def list_(session: Session) -> int:
    """List groups."""
    found = session.call("ListGroups", pb.ListGroupsRq(cluster=session.cluster))
    columns = ("group", "state", "type")
    rows = [[getattr(each, column) for column in columns] for each in found.groups]
    session.out.result([dict(zip(columns, row, strict=True)) for row in rows], columns, rows)
    if found.truncated:
        note(f"the first {len(rows)} groups; there are more")
    return 0


@group.command(
    "describe",
    cls=Command,
    examples={"kafka-pixy group describe bar": ""},
    help="Show a group's state, its members, and its offsets and lag in each topic.",
)
@click.argument("group", shell_complete=GROUP)
@connected
def describe(session: Session, group: str) -> int:
    """Describe a group."""
    found = _described(session, group)
    members = [
        {
            "member": each.member_id,
            "client": each.client_id,
            "host": each.host,
            "assigned": {one.topic: list(one.partitions) for one in each.assigned},
        }
        for each in found.members
    ]
    owners = {
        (one.topic, number): each.client_id
        for each in found.members
        for one in each.assigned
        for number in one.partitions
    }
    rows = [
        [
            topic.topic,
            po.partition,
            po.begin,
            po.end,
            po.offset,
            po.lag,
            owners.pop((topic.topic, po.partition), None),
        ]
        for topic in found.topics
        for po in topic.offsets
    ]
    rows += [
        [topic, number, None, None, None, None, client] for (topic, number), client in sorted(owners.items())
    ]
    document = {
        "group": group,
        "state": found.state,
        "members": members,
        "offsets": [dict(zip(_COLUMNS, row, strict=True)) for row in rows],
    }
    if session.out.structured:
        session.out.document(document)
        return 0
    lag = sum(max(row[5] or 0, 0) for row in rows)  # an offset beyond the end makes up for no other partition
    people = f"{len(members)} member{'s' * (len(members) != 1)}"
    write(f"group {plain(group)}: {found.state}, {people}, lag {lag}\n")
    at = _COLUMNS.index("offset")  # the lag stands behind it
    table(
        _COLUMNS,
        [[*row[:at], shown(row[at]), shown_lag(row[at], row[at + 1]), *row[at + 2 :]] for row in rows],
    )
    explain(row[at] for row in rows)
    return 0


def _described(session: Session, group: str) -> Any:
    try:
        return session.call("DescribeGroup", pb.DescribeGroupRq(cluster=session.cluster, group=group))
    except CallError as error:
        raise _unknown(session, error, group) from None


def _unknown(session: Session, error: CallError, group: str) -> CallError:
    if error.status is not grpc.StatusCode.NOT_FOUND:
        return error
    known = session.call("ListGroups", pb.ListGroupsRq(cluster=session.cluster)).groups
    hint = nearest(group, [each.group for each in known]) or "kafka-pixy group list shows all"
    return CallError(error.status, f"group {group!r} does not exist", hint)


@group.command(
    "delete",
    cls=Command,
    examples={"kafka-pixy group delete bar --yes": ""},
    help="Delete a group with its offsets; nobody may consume as the group.",
)
@click.argument("group", shell_complete=GROUP)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connected
def delete(session: Session, group: str, yes: bool) -> int:
    """Delete a group."""
    confirm(f"Delete group {group} with its offsets?", yes)
    try:
        session.call("DeleteGroup", pb.DeleteGroupRq(cluster=session.cluster, group=group))
    except CallError as error:
        raise _unknown(session, error, group) from None
    if session.out.structured:
        session.out.document({"group": group, "deleted": True})
    else:
        note(f"group {group} deleted")
    return 0


@group.command(
    "reset",
    cls=Command,
    examples={
        "kafka-pixy group reset bar foo --to begin": "",
        "kafka-pixy group reset bar foo --to 2026-11-22T10:00 --dry-run": "show what would be set",
        "kafka-pixy group reset bar foo -p 0 --shift -100": "a hundred messages back in partition 0",
    },
    exits={**EXITS, 1: "failed, for example because somebody consumes as the group; nothing was set"},
    help="Set where a group goes on in a topic. Nobody may consume as the group; after its last member has left this takes up to "
    "consumer.subscription_timeout. Offsets are kept within what the partitions hold.",
)
@click.argument("group", shell_complete=GROUP)
@click.argument("topic", shell_complete=TOPIC)
@click.option(
    "--to",
    "goal",
    help="begin, end, an offset, or a time: 2026-11-22T10:00 (local time, unless a zone follows), 15m (ago), now, or milliseconds of 12 digits and more.",
)
@click.option("--shift", type=int, metavar="N", help="Move N messages forward (negative: back).")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=PARTITION,
    help="Only this one; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be set, set nothing.")
@connected
def reset(
    session: Session,
    group: str,
    topic: str,
    goal: str | None,
    shift: int | None,
    partitions: tuple[int, ...],
    dry_run: bool,
) -> int:
    """Set a group's offsets."""
    if (goal is None) == (shift is None):
        raise ShellError("one of --to and --shift is needed, such as --to begin or --shift -100", EXIT_USAGE)
    session.topic(topic)
    place = {"cluster": session.cluster, "topic": topic, "group": group}
    found = {each.partition: each for each in session.call("GetOffsets", pb.GetOffsetsRq(**place)).offsets}
    if unknown := set(partitions) - set(found):
        raise ShellError(
            f"topic {topic} has no partition {min(unknown)}: it has 0 to {len(found) - 1}", EXIT_USAGE
        )
    chosen = {number: each for number, each in found.items() if not partitions or number in partitions}
    asked = _shifted(chosen, shift) if shift is not None else _goal(session, topic, chosen, str(goal))
    # What begin, end or a time means is within the log, also within one that has grown since it was looked at.
    wanted = within(asked, chosen) if shift is not None or _is_offset(str(goal)) else asked
    if not dry_run:
        changes = [pb.PartitionOffset(partition=number, offset=offset) for number, offset in wanted.items()]
        try:
            session.call("SetOffsets", pb.SetOffsetsRq(**place, offsets=changes))
        except CallError as error:
            if error.status is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            raise error.with_hint(f"kafka-pixy group describe {group} shows its members") from None
    _show(session, chosen, wanted)
    say_moved(asked, wanted, dry_run=dry_run)
    if dry_run and not session.out.structured:
        note("nothing was set (--dry-run)")
    return 0


def _show(session: Session, chosen: dict[int, Any], wanted: dict[int, int]) -> None:
    columns = ("partition", "from", "to", "lag")
    rows = [(number, chosen[number].offset, to, chosen[number].end - to) for number, to in wanted.items()]
    document = [
        {"partition": number, "from": now if now >= 0 else None, "to": to, "lag": lag}
        for number, now, to, lag in rows
    ]
    session.out.result(document, columns, [(number, shown(now), to, lag) for number, now, to, lag in rows])


def _shifted(chosen: dict[int, Any], shift: int) -> dict[int, int]:
    wanted: dict[int, int] = {}
    for number, each in chosen.items():
        if each.offset == END:
            raise ShellError(f"--shift: the group has no committed offset in partition {number}; use --to")
        now = each.begin if each.offset == BEGIN else each.offset
        wanted[number] = now + shift
    return wanted


def _is_offset(goal: str) -> bool:
    """Return whether a goal is an offset: a number with fewer than 12 digits. Longer ones are milliseconds since 1970."""
    return goal.isascii() and goal.isdecimal() and len(goal) < 12


def _goal(session: Session, topic: str, chosen: dict[int, Any], goal: str) -> dict[int, int]:
    if goal in ("begin", "end"):
        return {number: getattr(each, goal) for number, each in chosen.items()}
    if _is_offset(goal):
        return dict.fromkeys(chosen, int(goal))
    at = milliseconds(goal, "--to", "begin, end, an offset, ")
    request = pb.FindOffsetsRq(cluster=session.cluster, topic=topic, time=at)
    found = {each.partition: each.offset for each in session.call("FindOffsets", request).offsets}
    return {number: found[number] for number in chosen}


__all__ = ["group"]

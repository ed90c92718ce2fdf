"""``kafka-pixy consume``: reads messages, as a member of a group or without one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final

import click
import grpc

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import (
    EXIT_NOTHING,
    EXIT_USAGE,
    KAFKA_AWAY,
    CallError,
    DaemonGone,
    ShellError,
    WrongServer,
)
from pixy.cli.shell.framework import EXITS, Command, connected
from pixy.cli.shell.message_format import Message, formatter
from pixy.cli.shell.names import GROUP, TOPIC
from pixy.cli.shell.output import Output, note
from pixy.cli.shell.places import BEGIN
from pixy.cli.shell.profiles import file_of
from pixy.cli.shell.progress import Bar
from pixy.cli.shell.readers import GroupReader, PartitionReader, Reader
from pixy.cli.shell.session import Session
from pixy.cli.shell.times import milliseconds
from pixy.cli.shell.values import PARTITION
from pixy.errors import Disabled
from pixy.escaping import escaped

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
"""Seconds between two attempts to reach a daemon that has gone."""

_PASSING: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)

_NEW_GROUP: Final = (
    "a new group begins at the end of a topic, and this one goes on from there: another new one with --from-beginning, "
    "or this one after kafka-pixy group reset, reads what is there"
)

EXAMPLES: Final = {
    "kafka-pixy consume foo -g bar --from-beginning": "a new group begins at its oldest message, not at the end",
    "kafka-pixy consume foo -g bar --follow --json | jq .value": "until Ctrl-C, also over a restart of the daemon",
    "kafka-pixy consume foo --until-end --format '%p %o %T %k: %s\\n'": "the whole topic, without a group, as with kcat",
    "kafka-pixy consume foo --partition 0 --since 15m -n 0": "",
}


@click.command(
    "consume",
    cls=Command,
    examples=EXAMPLES,
    exits={
        **EXITS,
        4: "fewer messages came than -n asks for, unless --until-end has reached the end; or it has not seen the end or all "
        "messages before it",
        141: "the reader of the output has gone",
    },
    help="Read messages. With --group as a member of a group, which remembers what was read; without it from the oldest message on, "
    "and nothing is remembered.",
)
@click.argument("topic", shell_complete=TOPIC)
@click.option("-g", "--group", shell_complete=GROUP, help="Consumer group.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=0),
    help="Messages to read; 0: no end.  [default: 1, or with --follow or --until-end no end]",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Wait on when nothing comes, and for a daemon or a Kafka that has gone.",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Begin at the oldest message, unless the group has committed offsets.",
)
@click.option("--until-end", is_flag=True, help="Stop after the messages that are there now.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=PARTITION,
    help="Only this one (without a group); may be repeated.",
)
@click.option(
    "--since",
    help="Begin at a time (without a group): 2026-11-22T10:00 (local time, unless a zone follows), 15m (ago), now, or milliseconds.",
)
@click.option(
    "--ack",
    type=click.Choice(["explicit", "auto", "none"]),
    help="Acknowledge each message once it was printed, when it is sent, or not (as a group).  [default: explicit]",
)
@click.option(
    "--format",
    "form",
    help="As kcat's: %t %p %o %k %K %s %S %R %T %h %% and \\n \\t \\xNN.  [default: '%s\\n']",
)
@connected
def consume(session: Session, topic: str, **given: Any) -> int:
    """Read messages."""
    ctx = click.get_current_context()
    if given["form"] and file_of(ctx, "output") and not ctx.params["as_json"]:
        session.out = Output("table")  # who gives --format means it more than his profile
    _check(given, structured=session.out.structured)
    shape = formatter(given["form"] or r"%s\n")
    since = BEGIN if given["since"] is None else milliseconds(given["since"], "--since")
    count = given["count"]
    if count is None:
        count = 0 if given["follow"] or given["until_end"] else 1

    def open_reader() -> Reader:
        session.topic(topic, make=True)  # asking a group for a topic that does not exist might create it
        if given["group"]:
            ack = given["ack"] or "explicit"
            return GroupReader(session, topic, given["group"], ack, from_beginning=given["from_beginning"])
        return PartitionReader(session, topic, given["partitions"], since)

    with Bar("consuming", messages=count or None, prints=True) as bar:
        loop = _Loop(session, open_reader, shape, bar)
        try:
            got = loop.run(count, follow=given["follow"], until_end=given["until_end"])
        except KeyboardInterrupt:
            interrupts.handled()
            if loop.reader is not None:
                _close(loop.reader)
            return interrupts.exit_code()
    return _ending(loop.reader, got, count, until_end=given["until_end"])


def _check(given: dict[str, Any], *, structured: bool) -> None:
    """Refuse options that contradict each other, or would be ignored. Raises ShellError."""
    wrong = ""
    if given["group"] == "":
        wrong = "--group is empty: name a group, or leave it out to read without one"
    elif given["group"] and (given["partitions"] or given["since"] is not None):
        flag = "--partition" if given["partitions"] else "--since"
        wrong = f"{flag} is for reading without a group; kafka-pixy group reset sets where a group goes on"
    elif given["ack"] and not given["group"]:
        wrong = "--ack is for reading as a group: name it with --group"
    elif given["form"] == "":
        wrong = "--format is empty: name what to print of a message, such as '%s\\n'"
    elif given["form"] is not None and structured:
        wrong = "--format and --output cannot be given together"
    elif given["from_beginning"] and given["since"] is not None:
        wrong = "--from-beginning and --since cannot be given together"
    elif given["follow"] and given["until_end"]:
        wrong = "--follow and --until-end cannot be given together"
    if wrong:
        raise ShellError(wrong, EXIT_USAGE)


def _ending(reader: Reader | None, got: int, count: int, *, until_end: bool) -> int:
    """Say what did not come, and return the exit code."""
    if reader is None or (count and got >= count):
        return 0
    out = reader.out() if until_end else 0
    skipped = isinstance(reader, GroupReader) and reader.may_skip and not got
    if until_end and not out and reader.finished():
        if skipped:
            note(f"no messages; {_NEW_GROUP}")
        return 0
    if out:
        note(
            f"{out} message{'s are' if out != 1 else ' is'} out with other clients; unless they are acknowledged, "
            "they come again after ack_timeout"
        )
    if until_end and reader.behind() and not count:
        which = f"{reader.behind()} partition{'s' * (reader.behind() != 1)}"
        note(
            f"the end of {which} was not seen: nothing came for a while. Messages that are out with other clients, "
            "and markers of transactions at an end, look like this, too"
        )
    if until_end and not count:
        return EXIT_NOTHING
    if got < count:
        hint = f"; {_NEW_GROUP}" if skipped else ""
        note(f"{got} of {count} messages; nothing more came{hint}")
        return EXIT_NOTHING
    return 0


def _close(reader: Reader) -> None:
    """Acknowledge what was printed, if the daemon is there: Ctrl-C also ends the wait for one that has gone."""
    try:
        reader.close()
    except CallError as error:
        note(f"the last message was not acknowledged, so it comes again: {error.details}")


def _passes(error: CallError) -> bool:
    """Tell whether an error passes: the daemon or Kafka is away for a while, or has no room."""
    if error.details == str(Disabled()) or isinstance(error, WrongServer):
        return False
    return error.status in _PASSING or KAFKA_AWAY in error.details


class _Loop:
    """Reads and prints.

    Attributes:
        reader: None until it could be opened.
    """

    def __init__(
        self, session: Session, open_reader: Callable[[], Reader], shape: Callable[[Message], bytes], bar: Bar
    ) -> None:
        self._session, self._open, self._shape, self._bar = session, open_reader, shape, bar
        self.reader: Reader | None = None
        self._pause = 0.0
        self._back = ""

    def run(self, count: int, *, follow: bool, until_end: bool) -> int:
        """Read and print until the count, the end or Ctrl-C; return how many there were."""
        got = 0
        while True:
            try:
                reader = self.reader = self.reader or self._open()
                if (count and got >= count) or (until_end and reader.finished()):
                    break
                interrupts.check()
                with (
                    interrupts.deferred()
                ):  # what has come is printed, and noted as read, before a signal strikes
                    message = reader.next()
                    self._say_back()
                    if message is not None:
                        self._print(message)
                        reader.done(message)
            except CallError as error:
                if not (follow and _passes(error)):
                    raise
                self._wait(error)
                continue
            if message is None:
                if follow or (not count and not until_end):
                    continue
                break
            got += 1
            self._bar.update(got)
        try:
            reader.close()
        except CallError as error:
            text = f"the last message was not acknowledged, so it comes again: {error.details}"
            raise CallError(error.status, text) from None
        return got

    def _wait(self, error: CallError) -> None:
        if not self._pause:
            note(f"{error.details}; trying again until Ctrl-C")
            self._back = "is back" if isinstance(error, DaemonGone) else "serves again"
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
        time.sleep(self._pause)
        interrupts.check()

    def _say_back(self) -> None:
        if self._pause:
            note(f"the daemon at {self._session.server} {self._back}")
            self._pause = 0.0

    def _print(self, message: Message) -> None:
        """Print a message. Raises KeyboardInterrupt after a signal if the reader does not read."""
        with interrupts.printing():
            if self._session.out.structured:
                self._session.out.document(message.view())
                return
            shown = self._shape(message)
            if sys.stdout.isatty():  # a file or another program gets it as it is
                shown = escaped(shown.decode("utf-8", "replace"), keep="\n\t").encode()
            sys.stdout.buffer.write(shown)
            sys.stdout.buffer.flush()


__all__ = ["consume"]

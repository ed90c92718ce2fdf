"""``kafka-pixy produce``: writes messages in batches, in their order, and says how many have arrived."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import click

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import EXIT_USAGE, CallError, ShellError, kafka_hint
from pixy.cli.shell.framework import EXITS, Command, connected
from pixy.cli.shell.names import TOPIC
from pixy.cli.shell.output import note
from pixy.cli.shell.produce_calls import Calls, is_too_large, may_be_written
from pixy.cli.shell.produce_input import ReadAhead, Shape, header, to_record
from pixy.cli.shell.produce_lines import MAX_MESSAGE, TOO_LONG
from pixy.cli.shell.progress import Bar
from pixy.cli.shell.session import Session
from pixy.cli.shell.values import PARTITION

_BATCH: Final = 1000
_BATCH_BYTES: Final = 262_144
"""Bytes of the messages in a call, unless it has only one; every daemon receives a megabyte."""
_NAMED: Final = 5
"""Messages that are named when more were not written."""
_NO_TOPIC: Final = "kafka server: Request was for a topic or partition that does not exist on this broker."

EXAMPLES: Final = {
    "echo 'Good news everyone!' | kafka-pixy produce foo": "a message a line",
    "kafka-pixy produce foo -m hello -k mykey -H source=shell": "",
    "kafka-pixy produce foo --lines orders.txt --key-delimiter :": "key:value in each line, with a bar",
    "kafka-pixy produce foo --json-lines < saved.jsonl": "what consume --json has printed",
    "kafka-pixy produce foo -k mykey --tombstone": "",
}


@click.command(
    "produce",
    cls=Command,
    examples=EXAMPLES,
    exits={
        **EXITS,
        1: "not all messages were written, or the input ends before --skip; stderr says how many were, and how to go on",
    },
    help="Write messages to a topic. Without -m, -f or --lines, each line of standard input is one. They are written in their "
    "order, and counted once Kafka has them. The daemon's configuration decides how they are compressed (producer.compression).",
)
@click.argument("topic", shell_complete=TOPIC)
@click.option("-m", "--message", help="The message.")
@click.option("-f", "--file", type=click.Path(), help="A file that is the message.")
@click.option("-l", "--lines", type=click.Path(), help="A file with a message in each line.")
@click.option("-k", "--key", help="Key of all messages.  [default: none, any partition]")
@click.option("-K", "--key-delimiter", help="Separates key and value in a line: one character, or more.")
@click.option(
    "--json-lines",
    is_flag=True,
    help='Lines are JSON: {"key", "value", "headers", "partition", "timestamp"}.',
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Record header; may be repeated."
)
@click.option("-p", "--partition", type=PARTITION, help="Partition of all messages.")
@click.option("-Z", "--empty-is-null", is_flag=True, help="An empty value is a tombstone.")
@click.option("--tombstone", is_flag=True, help="Write one tombstone, with the key of -k.")
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Skip the first N messages (already written).",
)
@click.option(
    "--async",
    "asynchronous",
    is_flag=True,
    help="Do not wait for Kafka; failures are only logged by the daemon. Without partitions, timestamps and tombstones.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, _BATCH),
    default=_BATCH,
    show_default=True,
    help="Most messages in one call.",
)
@connected
def produce(session: Session, topic: str, **given: Any) -> int:
    """Write messages."""
    shape = Shape(
        key=None if given["key"] is None else given["key"].encode(),
        key_delimiter=(given["key_delimiter"] or "").encode(),
        json_lines=given["json_lines"],
        headers=tuple(map(header, given["headers"])),
        partition=given["partition"],
        empty_is_null=given["empty_is_null"] or given["tombstone"],
    )
    source = _source(given)
    typed = _is_typed(source.stream)
    with Bar("producing", size=source.size, prints=session.out.structured, typed=typed) as bar:
        writer = Writer(
            session,
            topic,
            shape,
            bar,
            asynchronous=given["asynchronous"],
            single=given["message"] is not None or given["tombstone"],
        )
        messages = ReadAhead(source.stream, given["skip"], source.lines)
        return writer.run(messages, given["in_flight"], given["skip"])


class _Source(NamedTuple):
    """The input that the messages come from.

    Attributes:
        stream: has them.
        lines: its name if each line is a message; empty if each item is one as it is.
        size: how many bytes they are; None if that is not known.
    """

    stream: Iterable[bytes] | BinaryIO
    lines: str = ""
    size: int | None = None


def _source(given: dict[str, Any]) -> _Source:
    named = [name for name in ("message", "file", "lines") if given[name] is not None]
    if given["tombstone"]:
        named.append("tombstone")
        if given["key"] is None:
            raise ShellError("--tombstone needs -k: it deletes the messages of a key", EXIT_USAGE)
    if len(named) > 1:
        raise ShellError(f"--{named[0]} and --{named[1]} cannot be given together", EXIT_USAGE)
    _check_delimiter(given, named)
    if given["tombstone"]:
        return _Source([b""])
    if given["message"] is not None:
        return _Source([given["message"].encode()])
    if given["file"] is not None:
        return _Source([_read(given["file"])])
    if given["lines"] is not None:
        stream = _open(given["lines"])
        return _Source(stream, f"--lines {given['lines']}", _size(stream))
    typed = _standard_input()
    if _is_typed(typed):
        note("a message a line; Ctrl-D ends")
    return _Source(typed, "standard input", _size(sys.stdin.buffer))


def _check_delimiter(given: dict[str, Any], named: list[str]) -> None:
    """Refuse a delimiter that has no line to separate. Raises ShellError."""
    if given["key_delimiter"] is None:
        return
    if given["key_delimiter"] == "":
        raise ShellError("-K: the delimiter is empty: give one character or more, such as -K :", EXIT_USAGE)
    if given["json_lines"]:
        raise ShellError("--json-lines and --key-delimiter cannot be given together", EXIT_USAGE)
    if named and named != ["lines"]:
        raise ShellError(
            f"--key-delimiter is for lines, and --{named[0]} is one message: its key is that of -k",
            EXIT_USAGE,
        )


def _is_typed(source: Any) -> bool:
    """Return whether a person types the messages at a terminal."""
    return bool(getattr(source, "isatty", lambda: False)())


def _open(file: str) -> BinaryIO:
    try:
        return os.fdopen(os.open(file, os.O_RDONLY), "rb")
    except OSError as error:
        raise ShellError(f"--lines {file}: {error.strerror}") from None


def _standard_input() -> BinaryIO:
    """Return standard input as another object: Python aborts if a thread still reads ``sys.stdin`` when the program ends."""
    try:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    except OSError:
        return sys.stdin.buffer  # it has no descriptor


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            found = opened.read(MAX_MESSAGE + 1)
    except OSError as error:
        raise ShellError(f"--file {file}: {error.strerror}") from None
    if len(found) > MAX_MESSAGE:
        raise ShellError(f"--file {file}: {TOO_LONG}")
    return found


def _size(stream: BinaryIO) -> int | None:
    try:
        found = os.fstat(stream.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


class Writer:
    """Writes what a :class:`ReadAhead` has, one batch after the other.

    A batch is not sent until its calls have begun; from then on it is out until each of its messages has an outcome, and then it is
    counted, once. Signals are looked at only where input is awaited, where a call begins, and where answers are awaited: so the count is
    right wherever one strikes.

    Attributes:
        written: messages that Kafka has.
    """

    # The number of a message is that of its line: it counts those that --skip has left out.

    def __init__(
        self,
        session: Session,
        topic: str,
        shape: Shape,
        bar: Bar,
        *,
        asynchronous: bool = False,
        single: bool = False,
    ) -> None:
        self._session, self._topic, self._shape, self._bar = session, topic, shape, bar
        self._calls = Calls(session, topic, asynchronous=asynchronous)
        self._single = single  # of a command with one message, there is nothing to go on with
        self.written = 0
        self._settled = 0
        """Messages before the one that ``--skip`` would begin with, without those that this run has skipped."""
        self._unsure = 0
        """Messages of the last batch that Kafka may have: their calls have failed without a word about that."""

    def run(self, source: ReadAhead, most: int, skip: int) -> int:
        """Write everything; return the exit code.

        Args:
            source: the messages.
            most: messages of one call.
            skip: messages that ``source`` leaves out, for the count.
        """
        try:
            with interrupts.deferred():
                self._write_all(source, most, skip)
        except KeyboardInterrupt:
            interrupts.handled()
            note(self._count(skip, "interrupted"))
            return interrupts.exit_code()
        except CallError as error:
            if not (self.written or self._unsure or is_too_large(error)):
                raise
            raise ShellError(f"{error}; {self._count(skip, 'stopped')}") from None
        except ShellError as error:
            if error.code == EXIT_USAGE and not self.written:
                raise  # nothing was tried
            raise ShellError(f"{error}; {self._count(skip, 'stopped')}", error.code) from None
        except OSError:  # of standard output
            note(self._count(skip, "stopped"))
            raise
        if skip > source.skipped:
            raise ShellError(
                f"--skip {skip}: the input has only {_messages(source.skipped)}, so nothing was written"
            )
        if not self._session.out.structured:
            note(f"{_messages(self.written)} written to {self._topic}")
        return 0

    def _count(self, skip: int, why: str) -> str:
        more = f", {self._unsure} more may have been" if self._unsure else ""
        on = "" if self._single else f"; go on with --skip {skip + self._settled}"
        return f"{why}: {_messages(self.written)} written to {self._topic}{more}{on}"

    def _write_all(self, source: ReadAhead, most: int, skip: int) -> None:
        done = 0
        while True:
            records, size = source.batch(
                most, _BATCH_BYTES, lambda line, number: to_record(line, number, self._shape)
            )
            if not records:
                return
            first = skip + self._settled + 1
            outcomes, interrupted = self._calls.write(records, first)
            error = self._settle(outcomes, first)
            try:
                self._print(outcomes)
            finally:
                # Which messages were not written matters more than a signal, or an output that has failed.
                if error is not None and not (interrupted and isinstance(error, CallError)):
                    raise error
            if interrupted:
                raise KeyboardInterrupt
            done += size
            self._bar.update(self.written, done)

    def _settle(self, outcomes: Sequence[Any], first: int) -> ShellError | None:
        """Count a batch; return why messages were not written, if there are such."""
        failed = [at for at, each in enumerate(outcomes) if isinstance(each, CallError) or each.error]
        good = len(outcomes) - len(failed)
        # Only where the written ones come first does --skip leave out what is written, and nothing else.
        begins = not failed or failed[0] == good
        self.written += good
        self._settled += good if begins else len(outcomes)
        self._unsure = sum(map(may_be_written, outcomes))
        if not failed:
            return None
        cause = outcomes[failed[0]]
        if begins and isinstance(cause, CallError):
            return cause
        text = str(cause) if isinstance(cause, CallError) else cause.error
        if text == _NO_TOPIC and not good:
            found = self._session.topic(self._topic, make=True)  # else says so, with the nearest name
            text = f"topic {self._topic} has no such partition: it has 0 to {len(found.partitions) - 1}"
        elif not isinstance(cause, CallError) and (hint := kafka_hint(text)):
            text = f"{text.rstrip('.')}; {hint}"
        which = _numbers([first + at for at in failed])
        later = "" if begins else "; --skip leaves them out, so write them by themselves"
        return ShellError(f"{'perhaps ' if self._unsure else ''}not written: {which}: {text}{later}")

    def _print(self, outcomes: Sequence[Any]) -> None:
        if not self._session.out.structured:
            return
        with interrupts.printing():
            for each in outcomes:
                if not isinstance(each, CallError):
                    place = {"partition": each.partition, "offset": each.offset}
                    self._session.out.document({"error": each.error} if each.error else place)


def _numbers(failed: list[int]) -> str:
    shown = ", ".join(map(str, failed[:_NAMED]))
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return f"message{'s' * (len(failed) != 1)} {shown}{more}"


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"


__all__ = ["Writer", "produce"]

"""``kafka-pixy produce``: writes messages in batches, in their order, and says how many have arrived."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
import grpc

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import EXIT_USAGE, CallError, DaemonGone, ShellError
from pixy.cli.shell.framework import EXITS, Command, connected
from pixy.cli.shell.names import TOPIC
from pixy.cli.shell.output import note
from pixy.cli.shell.produce_input import ReadAhead, Shape, header, to_record
from pixy.cli.shell.progress import Bar
from pixy.cli.shell.session import Session
from pixy.cli.shell.values import PARTITION
from pixy.proto import kafkapixy_pb2 as pb

_BATCH: Final = 1000
_BATCH_BYTES: Final = 262_144
"""Bytes of the messages in a call, unless it has only one; every daemon receives a megabyte."""
_NAMED: Final = 5
"""Messages that are named when more were not written."""
_NO_TOPIC: Final = "kafka server: Request was for a topic or partition that does not exist on this broker."
_LAST_ANSWER: Final = 5.0
"""Seconds that an answer may still take after Ctrl-C or SIGTERM."""

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
    exits={**EXITS, 1: "not all messages were written; stderr says how many were, and how to go on"},
    help="Write messages to a topic. Without -m, -f or --lines, each line of standard input is one. They are written in their "
    "order, and counted once Kafka has them. The daemon's configuration decides how they are compressed (producer.compression).",
)
@click.argument("topic", shell_complete=TOPIC)
@click.option("-m", "--message", help="The message.")
@click.option("-f", "--file", type=click.Path(), help="A file that is the message.")
@click.option("-l", "--lines", type=click.Path(), help="A file with a message in each line.")
@click.option("-k", "--key", help="Key of all messages.  [default: none, any partition]")
@click.option("-K", "--key-delimiter", default="", help="Separates key and value in a line.")
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
        key_delimiter=given["key_delimiter"].encode(),
        json_lines=given["json_lines"],
        headers=tuple(map(header, given["headers"])),
        partition=given["partition"],
        empty_is_null=given["empty_is_null"] or given["tombstone"],
    )
    source, size = _source(given)
    with Bar("producing", size=size, prints=session.out.structured, typed=_is_typed(source)) as bar:
        writer = Writer(session, topic, shape, bar, asynchronous=given["asynchronous"])
        return writer.run(ReadAhead(source, given["skip"]), given["in_flight"], given["skip"])


def _source(given: dict[str, Any]) -> tuple[Iterable[bytes] | BinaryIO, int | None]:
    """The messages, and how many bytes they are, if that is known."""
    named = [name for name in ("message", "file", "lines") if given[name] is not None]
    if given["tombstone"]:
        named.append("tombstone")
        if given["key"] is None:
            raise ShellError("--tombstone needs -k: it deletes the messages of a key", EXIT_USAGE)
    if len(named) > 1:
        raise ShellError(f"--{named[0]} and --{named[1]} cannot be given together", EXIT_USAGE)
    if given["tombstone"]:
        return [b""], None
    if given["message"] is not None:
        return [given["message"].encode()], None
    if given["file"] is not None:
        return [_read(given["file"])], None
    if given["lines"] is not None:
        stream = _open(given["lines"])
        return stream, _size(stream)
    return _standard_input(), _size(sys.stdin.buffer)


def _is_typed(source: Any) -> bool:
    """Whether a person types the messages at a terminal."""
    return bool(getattr(source, "isatty", lambda: False)())


def _open(file: str) -> BinaryIO:
    try:
        return os.fdopen(os.open(file, os.O_RDONLY), "rb")
    except OSError as error:
        raise ShellError(f"--lines {file}: {error.strerror}") from None


def _standard_input() -> BinaryIO:
    """Standard input, as another object: Python aborts if a thread still reads ``sys.stdin`` when the program ends."""
    try:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    except OSError:
        return sys.stdin.buffer  # it has no descriptor


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ShellError(f"--file {file}: {error.strerror}") from None


def _size(stream: BinaryIO) -> int | None:
    try:
        found = os.fstat(stream.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


class Writer:
    """Writes what a :class:`ReadAhead` has, one call after the other.

    Attributes:
        written: messages that Kafka has.
    """

    # The number of a message is that of its line: it counts those that --skip has left out.

    def __init__(
        self, session: Session, topic: str, shape: Shape, bar: Bar, *, asynchronous: bool = False
    ) -> None:
        self._session, self._topic, self._shape, self._bar = session, topic, shape, bar
        self._asynchronous = asynchronous
        self.written = 0
        self._settled = 0
        """Messages before the one that ``--skip`` would begin with, without those that this run has skipped."""
        self._unsure = 0
        """Messages of a call that has no answer yet."""
        self._size = 0

    def run(self, source: ReadAhead, most: int, skip: int) -> int:
        """Write everything; return the exit code.

        Args:
            source: the messages.
            most: messages of one call.
            skip: messages that ``source`` leaves out, for the count.
        """
        try:
            while True:
                records, size = source.batch(
                    most, _BATCH_BYTES, lambda line, number: to_record(line, number, self._shape)
                )
                if not records:
                    break
                self._write(records, skip + self._settled + 1)
                self._size += size
                self._bar.update(self.written, self._size)
        except KeyboardInterrupt:
            interrupts.handled()
            note(self._count(skip, "interrupted"))
            return interrupts.exit_code()
        except CallError as error:
            if not isinstance(error, DaemonGone) and error.status is not grpc.StatusCode.DEADLINE_EXCEEDED:
                self._unsure = 0
            if not (self.written or self._unsure):
                raise
            raise ShellError(f"{error}; {self._count(skip, 'stopped')}") from None
        except ShellError as error:
            raise ShellError(f"{error}; {self._count(skip, 'stopped')}", error.code) from None
        if skip > source.skipped:
            note(f"--skip {skip}: the input has {source.skipped} messages only")
        if not self._session.out.structured:
            note(f"{_messages(self.written)} written to {self._topic}")
        return 0

    def _count(self, skip: int, why: str) -> str:
        more = f", {self._unsure} more may have been" if self._unsure else ""
        return f"{why}: {_messages(self.written)} written to {self._topic}{more}; go on with --skip {skip + self._settled}"

    def _write(self, records: list[pb.Record], first: int) -> None:
        """Write messages in one call.

        Args:
            records: the messages.
            first: the number of the first.
        """
        if self._asynchronous:
            self._write_async(records)
            return
        self._unsure = len(records)
        request = pb.ProdManyRq(cluster=self._session.cluster, topic=self._topic, records=records)
        future = self._session.begin("ProduceMany", request)
        try:
            answer = self._session.answer(future, "ProduceMany", keep=True)
        except KeyboardInterrupt:
            # The batch is on its way: wait for it, so that the count is exact.
            interrupts.handled()
            answer = self._session.answer(future, "ProduceMany", within=_LAST_ANSWER)
            self._settle(answer, first)
            raise
        except CallError as error:
            if "larger than max" not in error.details:
                raise
            raise error.with_hint(
                f"message {first} has {request.ByteSize()} bytes with key and headers: producer.max_message_bytes "
                "of the daemon bounds it"
            ) from None
        self._settle(answer, first)

    def _settle(self, answer: Any, first: int) -> None:
        self._unsure = 0
        failed = [(at, each.error) for at, each in enumerate(answer.results) if each.error]
        good = len(answer.results) - len(failed)
        # Only where the written ones come first does --skip leave out what is written, and nothing else.
        begins = not failed or failed[0][0] == good
        self.written += good
        self._settled += good if begins else len(answer.results)
        if self._session.out.structured:
            for each in answer.results:
                shown = (
                    {"error": each.error}
                    if each.error
                    else {"partition": each.partition, "offset": each.offset}
                )
                self._session.out.document(shown)
        if not failed:
            return
        text = failed[0][1]
        if text == _NO_TOPIC and not good:
            self._session.topic(self._topic)  # says so, with the nearest name
        which = _numbers([first + at for at, _ in failed])
        later = "" if begins else "; --skip leaves them out, so write them by themselves"
        raise ShellError(f"not written: {which}: {text}{later}")

    def _write_async(self, records: list[pb.Record]) -> None:
        if any(each.HasField("partition") or each.timestamp or each.tombstone for each in records):
            raise ShellError("--async takes neither partitions nor timestamps nor tombstones", EXIT_USAGE)
        futures = [
            self._session.begin(
                "Produce",
                pb.ProdRq(
                    cluster=self._session.cluster,
                    topic=self._topic,
                    message=each.value,
                    headers=each.headers,
                    key_undefined=each.key_undefined,
                    key_value=each.key,
                    async_mode=True,
                ),
            )
            for each in records
        ]
        for future in futures:
            answer = self._session.answer(future, "Produce")
            self.written += 1
            self._settled += 1
            if self._session.out.structured:
                self._session.out.document({"partition": answer.partition, "offset": answer.offset})


def _numbers(failed: list[int]) -> str:
    shown = ", ".join(map(str, failed[:_NAMED]))
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return f"message{'s' * (len(failed) != 1)} {shown}{more}"


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"


__all__ = ["Writer", "produce"]

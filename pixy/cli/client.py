"""Client commands over gRPC: produce, consume, ack, offsets, topics, consumers."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pixy.cli.client_flags import make_parser
from pixy.escaping import escaped
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NOTHING = 4
"""``consume`` ended with fewer messages than requested."""

_LONG_POLL = 60.0


def _bytes_view(value: bytes) -> dict[str, str]:
    """Show bytes as text if they are UTF-8, else as base64, so that nothing is lost."""
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None


class _Authorized(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Sends an API key or a token with each call."""

    def __init__(self, token: str) -> None:
        self._sent = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(metadata=[*(details.metadata or ()), self._sent]), request)


class Session:
    """The connection, output and progress display of one command."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if args.ca or args.tls:
            ca, key, chain = (_content(name) for name in (args.ca, args.cert_key, args.cert))
            self._channel = grpc.secure_channel(
                args.server, grpc.ssl_channel_credentials(ca, key, chain), options=options
            )
        else:
            self._channel = grpc.insecure_channel(args.server, options=options)
        channel = self._channel
        token = (_content(args.token_file) or os.environ.get("KAFKA_PIXY_TOKEN", "").encode()).strip()
        if token:
            channel = grpc.intercept_channel(channel, _Authorized(token.decode()))
        self.stub = KafkaPixyStub(channel)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def json(self, document: Any) -> None:
        """Print one JSON document on a line of its own."""
        sys.stdout.write(escaped(json.dumps(document, ensure_ascii=False)) + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Print a line for people on stderr."""
        self.err.print(Text(escaped(text)))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table."""
        table = Table(*columns, box=None, pad_edge=False)
        for row in rows:
            table.add_row(*[Text(escaped(str(cell))) for cell in row])
        self.out.print(table)

    def progress(self, what: str) -> Progress:
        """Show progress on stderr, unless stderr is not a terminal."""
        return Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.err,
            transient=True,
            disable=not self.err.is_terminal,
        )


# -- commands -------------------------------------------------------------------------------------


def _messages(args: argparse.Namespace) -> Iterator[bytes]:
    if args.message is not None:
        yield args.message.encode()
        return
    if args.file:
        yield Path(args.file).read_bytes()
        return
    for line in sys.stdin.buffer:
        yield line.rstrip(b"\r\n")


def produce(session: Session) -> int:
    """Write messages; unless --async, report each only after Kafka has confirmed it."""
    args = session.args
    headers = []
    for header in args.header:
        name, _, value = header.partition("=")
        headers.append(pb.RecordHeader(key=name, value=value.encode()))
    written = 0
    pending: list[Any] = []

    def settle(least: int) -> None:
        nonlocal written
        while len(pending) > least:
            answer = pending.pop(0).result()
            written += 1
            if args.json:
                session.json({"partition": answer.partition, "offset": answer.offset})
            progress.update(task, completed=written)

    with session.progress("producing") as progress:
        task = progress.add_task("", total=None)
        for message in _messages(args):
            request = pb.ProdRq(
                cluster=args.cluster,
                topic=args.topic,
                message=message,
                headers=headers,
                key_undefined=args.key is None,
                key_value=(args.key or "").encode(),
                async_mode=args.asynchronous,
            )
            pending.append(session.stub.Produce.future(request, timeout=args.timeout))
            settle(args.in_flight - 1)
        settle(0)
    if not args.json:
        session.say(f"{written} message{'s' * (written != 1)} written to {args.topic}")
    return 0


def consume(session: Session) -> int:
    """Read messages; with --ack explicit (the default) acknowledge each after printing it."""
    args = session.args
    got = 0
    last: pb.ConsRs | None = None
    with session.progress("consuming") as progress:
        task = progress.add_task("", total=args.count or None)
        while not args.count or got < args.count:
            request = pb.ConsNAckRq(
                cluster=args.cluster,
                topic=args.topic,
                group=args.group,
                auto_ack=args.ack == "auto",
                no_ack=args.ack == "none" or last is None,
            )
            if last is not None and args.ack == "explicit":
                request.ack_partition, request.ack_offset = last.partition, last.offset
            try:
                last = session.stub.ConsumeNAck(request, timeout=_LONG_POLL)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                last = None  # the daemon accepted the ack anyway
                if args.follow or args.count == 0:
                    continue
                break
            got += 1
            _print_message(session, last)
            progress.update(task, completed=got)
    if last is not None and args.ack == "explicit":
        session.stub.Ack(
            pb.AckRq(
                cluster=args.cluster,
                topic=args.topic,
                group=args.group,
                partition=last.partition,
                offset=last.offset,
            ),
            timeout=args.timeout,
        )
    if got < args.count:
        session.say(f"{got} of {args.count} messages; nothing more came")
        return EXIT_NOTHING
    return 0


def _print_message(session: Session, message: Any) -> None:
    if session.args.json:
        session.json(
            {
                "partition": message.partition,
                "offset": message.offset,
                "key": None if message.key_undefined else _bytes_view(message.key_value),
                "value": _bytes_view(message.message),
                "headers": [
                    {"key": header.key, "value": _bytes_view(header.value)} for header in message.headers
                ],
            }
        )
    else:
        value = message.message
        if sys.stdout.isatty():  # a file or another program gets it as it is
            value = escaped(value.decode("utf-8", "replace"), keep="\n\t").encode()
        sys.stdout.buffer.write(value + b"\n")
        sys.stdout.buffer.flush()


def ack(session: Session) -> int:
    """Acknowledge one message."""
    args = session.args
    session.stub.Ack(
        pb.AckRq(
            cluster=args.cluster,
            topic=args.topic,
            group=args.group,
            partition=args.partition,
            offset=args.offset,
        ),
        timeout=args.timeout,
    )
    if args.json:
        session.json({})
    return 0


def offsets(session: Session) -> int:
    """Show a group's offsets, or change them with --set."""
    args = session.args
    place = {"cluster": args.cluster, "topic": args.topic, "group": args.group}
    if args.set:
        session.stub.SetOffsets(
            pb.SetOffsetsRq(
                **place, offsets=[pb.PartitionOffset(partition=p, offset=o) for p, o in args.set]
            ),
            timeout=args.timeout,
        )
    answer = session.stub.GetOffsets(pb.GetOffsetsRq(**place), timeout=args.timeout)
    columns = ("partition", "begin", "end", "count", "offset", "lag", "metadata", "sparse_acks")
    rows = [[getattr(po, column) for column in columns] for po in answer.offsets]
    if args.json:
        session.json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        session.table(columns, rows)
    return 0


def topics(session: Session) -> int:
    """List topics, or describe one."""
    args = session.args
    if args.topic:
        one = session.stub.GetTopicMetadata(
            pb.GetTopicMetadataRq(cluster=args.cluster, topic=args.topic, with_partitions=True),
            timeout=args.timeout,
        )
        found = {args.topic: one}
    else:
        found = dict(
            session.stub.ListTopics(
                pb.ListTopicRq(cluster=args.cluster, with_partitions=True), timeout=args.timeout
            ).topics
        )
    if args.json:
        session.json(
            {
                name: {
                    "config": dict(info.config),
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
                for name, info in sorted(found.items())
            }
        )
    elif args.topic:
        session.table(
            ("partition", "leader", "replicas", "isr"),
            [
                (part.partition, part.leader, list(part.replicas), list(part.isr))
                for part in found[args.topic].partitions
            ],
        )
        for key, value in sorted(found[args.topic].config.items()):
            session.out.print(Text(escaped(f"{key} = {value}")))
    else:
        session.table(
            ("topic", "partitions", "settings"),
            [
                (name, len(info.partitions), " ".join(f"{k}={v}" for k, v in info.config.items()))
                for name, info in sorted(found.items())
            ],
        )
    return 0


def consumers(session: Session) -> int:
    """Show who consumes a topic."""
    args = session.args
    answer = session.stub.ListConsumers(
        pb.ListConsumersRq(cluster=args.cluster, topic=args.topic, group=args.group), timeout=args.timeout
    )
    found = {
        group: {client: list(owned.partitions) for client, owned in sorted(clients.consumers.items())}
        for group, clients in sorted(answer.groups.items())
    }
    if args.json:
        session.json(found)
    else:
        session.table(
            ("group", "client", "partitions"),
            [
                (group, client, ",".join(map(str, partitions)))
                for group, clients in found.items()
                for client, partitions in clients.items()
            ],
        )
    return 0


def run(argv: Sequence[str]) -> int:
    """Run one command; return the exit code."""
    args = make_parser().parse_args(argv)
    functions: dict[str, Callable[[Session], int]] = {
        "produce": produce,
        "consume": consume,
        "ack": ack,
        "offsets": offsets,
        "topics": topics,
        "consumers": consumers,
    }
    try:
        session = Session(args)
    except OSError as error:
        print(f"kafka-pixy {args.command}: {error}", file=sys.stderr)
        return EXIT_ERROR
    try:
        return functions[args.command](session)
    except grpc.RpcError as error:
        text = f"kafka-pixy {args.command}: {error.code().name}: {error.details()}"
        print(escaped(text, keep="\n"), file=sys.stderr)
        return EXIT_ERROR
    except OSError as error:
        print(f"kafka-pixy {args.command}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return 130
    finally:
        session.close()

"""``kafka-pixy wire topic``: read an internal topic, decoded."""

from __future__ import annotations

import argparse
import base64
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pixy.cli.wire import EXITS
from pixy.cli.wire_batch import print_line
from pixy.wire import internal_topics
from pixy.wire.client import OLDEST, Broker, PartitionFetcher, Sasl, call_metadata
from pixy.wire.errors import describe
from pixy.wire.exceptions import WireError
from pixy.wire.json_form import to_json
from pixy.wire.record import Record

_DESCRIPTION = """\
Read an internal topic of a cluster from its oldest record to the end that it
has when the command starts: one JSON line for each record, {"partition",
"offset", "timestamp" (ms), "kind", "key", "version", "value"}. Bytes are in
base64, a value of null is a tombstone. Subscriptions and assignments of
consumers are decoded. A record that cannot be decoded has "error" instead of
"kind"."""

_EXAMPLES = {
    "kafka-pixy wire topic __consumer_offsets --broker kafka1:9092 --group billing": "all about one group",
    "kafka-pixy wire topic __transaction_state --broker kafka1:9092": "",
}


def add_parser(subparsers: Any) -> None:
    """Add the command to ``kafka-pixy wire``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "topic",
        help="read an internal topic: groups, commits, transactions, share groups",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        exits=EXITS | {1: "the cluster cannot be read; stderr names the reason"},
    )
    parser.add_argument("topic", choices=internal_topics.TOPICS, help="the topic", metavar="TOPIC")
    parser.add_argument("--broker", metavar="HOST:PORT[,...]", required=True, help="brokers of the cluster")
    parser.add_argument("--group", metavar="NAME", help="records of this group only")
    security = parser.add_argument_group("security")
    security.add_argument("--tls", action="store_true", help="connect by TLS, with the system's authorities")
    security.add_argument("--ca", metavar="FILE", help="connect by TLS, with the authorities in this file")
    security.add_argument("--cert", metavar="FILE", help="certificate of this client, with its key")
    security.add_argument("--sasl", metavar="MECHANISM", help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    security.add_argument("--username", metavar="NAME", help="user for SASL")
    security.add_argument("--password-file", metavar="FILE", help="file with the password for SASL")
    parser.set_defaults(handler=lambda args: _run(parser, args))


def _run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    options = _options(parser, args)
    brokers = args.broker.split(",")
    try:
        cluster = call_metadata(brokers, [args.topic], **options)
    except ValueError as error:
        parser.error(f"--broker: {error}")
    (found,) = cluster["Topics"]
    if found["ErrorCode"]:
        raise WireError(f"{args.topic}: {describe(found['ErrorCode'])}")
    leaders = {
        each["NodeId"]: Broker(each["Host"], each["Port"], each["NodeId"]) for each in cluster["Brokers"]
    }
    for each in sorted(found["Partitions"], key=lambda each: int(each["PartitionIndex"])):
        partition = each["PartitionIndex"]
        fetcher = PartitionFetcher(brokers, args.topic, partition, **options)
        fetcher.broker = leaders.get(each["LeaderId"])  # known already: the fetcher need not ask again
        for record in _records(fetcher):
            document = _document(args.topic, partition, record, args.group)
            if document is not None:
                print_line(sys.stdout, document)
    return 0


def _options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"client_id": "kafka-pixy wire topic"}
    try:
        if args.tls or args.ca or args.cert:
            found["tls"] = ssl.create_default_context(cafile=args.ca)
            if args.cert:
                found["tls"].load_cert_chain(args.cert)
        if args.sasl:
            if not (args.username and args.password_file):
                parser.error("--sasl needs --username and --password-file")
            password = Path(args.password_file).read_text(encoding="utf-8").rstrip("\n")
            found["sasl"] = Sasl(args.sasl, args.username, password)
        elif args.username or args.password_file:
            parser.error("--username and --password-file need --sasl")
    except OSError as error:  # also ssl.SSLError
        parser.error(f"{error.filename or args.ca or args.cert}: {error.strerror or error}")
    except ValueError as error:
        parser.error(str(error))
    return found


def _records(fetcher: PartitionFetcher) -> Iterator[Record]:
    topic, partition = fetcher.topic, fetcher.partition
    try:
        for code in (fetcher.seek(OLDEST).error_code, (newest := fetcher.list_offsets()).error_code):
            if code:
                raise WireError(f"{topic}/{partition}: {describe(code)}")
        while fetcher.offset < newest.offset:
            found = fetcher.fetch()
            if found.error_code:
                raise WireError(f"{topic}/{partition}: {describe(found.error_code)}")
            for record in found.records():
                if record.offset < newest.offset:
                    yield record
            fetcher.offset = found.next_offset
    finally:
        fetcher.close()


def _document(topic: str, partition: int, record: Record, group: str | None) -> dict[str, Any] | None:
    place = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
    try:
        found = internal_topics.decode(topic, record.key, record.value)
    except WireError as error:
        if group is not None:
            return None
        raw = {name: _base64(data) for name, data in (("key", record.key), ("value", record.value))}
        return {**place, "error": str(error), **raw}
    if group is not None and found.group != group:
        return None
    value = to_json(internal_topics.readable(found))
    return {**place, "kind": found.kind, "key": to_json(found.key), "version": found.version, "value": value}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()

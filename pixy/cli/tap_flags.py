"""The command line of ``kafka-pixy tap``."""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import Final
from urllib.parse import urlsplit

from pixy import __version__
from pixy.cli.arguments import Parser
from pixy.config.model import Tls
from pixy.errors import ConfigError
from pixy.tap.config import KAFKA_PORT, Bounds, BrokerTls, TapConfig, parse_address, parse_ports

_DESCRIPTION: Final = """\
A TCP proxy for Kafka's protocol that forwards every byte and shows, from the
traffic alone, who is in which consumer group, who owns which partition, why
groups rebalance, lag, and which clients Kafka 4 will refuse.
"""
_EXAMPLES: Final = {
    "kafka-pixy tap --broker kafka1:9092 --rewrite": "then use localhost:19093 as the clients' bootstrap server; each other broker gets a port of its own",
    "kafka-pixy tap --broker kafka1:9092,kafka2:9092 --rewrite \\\n"
    "      --listen 0.0.0.0:19093 --advertise tap.example.com": "",
    "kafka-pixy tap --broker kafka1:9092 --rewrite --output json --interval 10 |\n"
    "      jq 'select(.event == \"anomaly\")'": "",
    "kafka-pixy tap --broker kafka1:9092 --rewrite --output none \\\n"
    "      --metrics 0.0.0.0:9464": "GET /metrics, /groups, /groups/NAME, /timeline, /clients, /connections, /topics, /latency, /errors, "
    "/talkers, /slow, /findings, /healthz",
    "kafka-pixy tap --broker kafka1:9093 --rewrite --broker-tls-ca ca.pem \\\n"
    "      --tls-cert tap.pem --tls-key tap.key --advertise tap.example.com": "TLS ends at the tap and begins again behind it",
    "kafka-pixy tap --broker kafka1:9092 --rewrite --dump - \\\n"
    "      --filter 'group=bill*,api=OffsetCommit' | jq .body": "",
    "kafka-pixy tap --broker kafka1:9092 --rewrite --dump orders.pcapng \\\n"
    "      --filter topic=orders": "for Wireshark and tshark",
}
_EXITS: Final = {
    0: "stopped by Ctrl-C or SIGTERM, or the capture was read",
    1: "failed to start, an unreadable capture, or output that cannot be written",
    2: "wrong command line",
    4: "a part of the tap failed for good",
    130: "Ctrl-C before it served",
}
_REWRITE: Final = """\
Without --rewrite the tap changes no byte: use this where clients reach each
broker through the tap anyway. With --rewrite it changes Metadata,
FindCoordinator and DescribeCluster responses, and hides addresses in Produce
and Fetch responses. The tap neither decodes nor keeps payloads of records, and
does not read SASL tokens. docs/tap.md has the details.
"""
_LIMITS: Final = {
    "connections": "open connections; further clients wait",
    "groups": "groups",
    "members": "members of one group",
    "partitions": "partitions with end offsets; also (producer, partition) sequences",
    "offsets": "partitions with committed offsets in one group",
    "topics": "topics",
    "software": "client software in the inventory",
    "timeline": "rebalances in the timeline",
    "in_flight": "requests of a connection that wait for a response",
    "capture": "bytes of a captured frame",
    "backlog": "bytes of captured frames that wait for the observer",
    "rewrite": "bytes of a response in which addresses are rewritten",
    "dump": "bytes of the dump, which then ends",
    "heads": "partitions read in one Produce or Fetch",
    "decoded": "small requests that change no group, decoded a second; the others are counted",
}


def make_parser() -> argparse.ArgumentParser:
    """Make the parser."""
    parser = Parser(
        prog="kafka-pixy tap",
        description=_DESCRIPTION,
        epilog=_REWRITE,
        examples=_EXAMPLES,
        exits=_EXITS,
        allow_abbrev=False,
    )
    _add_forwarding(parser)
    _add_tls(parser)
    _add_output(parser)
    _add_dump(parser)
    _add_timeouts(parser)
    _add_slow(parser)
    _add_verify(parser)
    _add_limits(parser)
    parser.add_argument("--version", action="version", version=f"kafka-pixy {__version__}")
    return parser


def _add_forwarding(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--broker", metavar="HOST:PORT[,...]", default="", help="brokers of one cluster to forward to"
    )
    where.add_argument(
        "--sandbox",
        action="store_true",
        help="forward to a built-in, in-memory stand-in for Kafka",
    )
    where.add_argument(
        "--pcap",
        metavar="FILE",
        help="read a capture (pcap, pcapng; - for stdin) instead of forwarding, show what it holds, and end",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:19093",
        help="where clients connect; further brokers get the next ports, or any with port 0 (default %(default)s)",
    )
    parser.add_argument(
        "--rewrite", action="store_true", help="rewrite broker addresses, so that clients connect to the tap"
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST",
        default="",
        help="host in rewritten responses (default: the host that the client connected to)",
    )
    parser.add_argument(
        "--ports",
        metavar="FIRST-LAST",
        help="ports for brokers that responses name (default: those after the last --broker's)",
    )


def _add_tls(parser: argparse.ArgumentParser) -> None:
    tls = parser.add_argument_group("TLS (PEM files, read again on SIGHUP; SASL passes through)")
    for name, text in (
        ("tls-cert", "accept clients by TLS, with this certificate"),
        ("tls-key", "its key"),
        ("client-ca", "require a certificate of these authorities from clients"),
        ("broker-tls-ca", "connect to brokers by TLS, with the authorities in this file"),
        ("broker-tls-cert", "connect to brokers by TLS, with this certificate of the tap's"),
        ("broker-tls-key", "its key (default: in the certificate's file)"),
    ):
        tls.add_argument(f"--{name}", metavar="FILE", default="", help=text)
    tls.add_argument(
        "--broker-tls", action="store_true", help="connect to brokers by TLS, with the system's authorities"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        choices=("table", "json", "none"),
        help="table (default on a terminal), JSON lines (default elsewhere), or nothing",
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        default=0.0,
        help="interval between tables (default 1) or JSON snapshots (default: no snapshots)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve metrics for Prometheus and all views as JSON over HTTP",
    )
    parser.add_argument(
        "--otlp",
        metavar="URL",
        default="",
        help="send response times to an OpenTelemetry collector, such as http://127.0.0.1:4318/v1/metrics (extra otel)",
    )
    parser.add_argument(
        "--otlp-interval",
        metavar="SECONDS",
        type=_seconds,
        default=10.0,
        help="interval between those (default %(default)g)",
    )


def _add_dump(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dump",
        metavar="FILE",
        default="",
        help="write each request and response, decoded, as JSON lines, or to FILE.pcapng as packets; - for stdout",
    )
    parser.add_argument(
        "--dump-format",
        choices=("json", "pcapng"),
        help="format of the dump (default: pcapng if FILE ends so, else json)",
    )
    parser.add_argument(
        "--filter",
        metavar="KEY=VALUE[,...]",
        action="append",
        default=[],
        help="dump only what matches each key given: group, topic, client (id), api; * and ? in values; of one key, any value",
    )


def _add_timeouts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--connect-timeout",
        metavar="SECONDS",
        type=_seconds,
        default=10.0,
        help="timeout of a connection to a broker (default %(default)g)",
    )
    parser.add_argument(
        "--session-timeout",
        metavar="SECONDS",
        type=_seconds,
        default=45.0,
        help="session timeout of KIP-848 groups, a broker setting that is not transmitted (default %(default)g, as in Kafka)",
    )


def _add_slow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--slow",
        metavar="SECONDS",
        type=_seconds,
        default=1.0,
        help="report responses that take longer, beyond the time that a Fetch may wait (default %(default)g)",
    )


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--verify",
        metavar="SECONDS",
        type=_seconds,
        nargs="?",
        const=10.0,
        default=0.0,
        help="ask the brokers for ends and committed offsets, every 10 s or as given, and correct what the traffic told",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group(
        "limits (at a limit, the least recently used entry is forgotten and counted)"
    )
    for field in dataclasses.fields(Bounds):
        limits.add_argument(
            f"--max-{field.name.replace('_', '-')}",
            metavar="N",
            type=_positive,
            default=field.default,
            dest=f"max_{field.name}",
            help=f"{_LIMITS[field.name]} (default %(default)s)",
        )


def make_config(args: argparse.Namespace) -> TapConfig:
    """Make the configuration from the flags.

    Raises:
        ConfigError: a flag is missing, wrong, or contradicts another.
    """
    brokers = tuple(
        parse_address(part.strip(), KAFKA_PORT) for part in args.broker.split(",") if part.strip()
    )
    if not brokers and args.pcap:
        brokers = (("capture", KAFKA_PORT),)
    if not brokers:
        raise ConfigError("--broker names no broker" if args.broker else "--broker (or --sandbox) is needed")
    if args.pcap and (args.rewrite or args.metrics or args.verify or args.otlp):
        raise ConfigError(
            "--pcap forwards nothing: --rewrite, --metrics, --otlp and --verify have no use with it"
        )
    if args.otlp and not _is_url(args.otlp):
        raise ConfigError(f"--otlp {args.otlp}: write http://HOST:4318/v1/metrics")
    if any(not port for _, port in brokers):
        raise ConfigError("--broker: port 0 is not a broker's port")
    if len(set(brokers)) < len(brokers):
        raise ConfigError("--broker names a broker twice")
    listen = parse_address(args.listen)
    if listen in brokers:
        raise ConfigError("--listen is the address of a --broker: the tap would connect to itself")
    rewrite = args.rewrite or args.sandbox
    if (args.advertise or args.ports) and not rewrite:
        raise ConfigError("--advertise and --ports need --rewrite")
    if (args.filter or args.dump_format) and not args.dump:
        raise ConfigError("--filter and --dump-format need --dump")
    if args.dump == "-" and args.output in ("table", "json"):
        raise ConfigError(
            f"--dump - writes to standard output: --output {args.output} needs another place for the dump"
        )
    tls, broker_tls = _tls(args)
    return TapConfig(
        brokers,
        listen,
        rewrite,
        args.advertise,
        parse_ports(args.ports) if args.ports else None,
        args.connect_timeout,
        args.session_timeout,
        Bounds(**{field.name: getattr(args, f"max_{field.name}") for field in dataclasses.fields(Bounds)}),
        args.slow,
        args.verify,
        tls,
        broker_tls,
    )


def _is_url(text: str) -> bool:
    try:
        found = urlsplit(text)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:  # a port that is none
        return False


def _tls(args: argparse.Namespace) -> tuple[Tls | None, BrokerTls | None]:
    if bool(args.tls_cert) != bool(args.tls_key):
        raise ConfigError("--tls-cert and --tls-key are needed together")
    if args.client_ca and not args.tls_cert:
        raise ConfigError(
            "--client-ca needs --tls-cert and --tls-key: without TLS, clients show no certificate"
        )
    if args.broker_tls_key and not args.broker_tls_cert:
        raise ConfigError("--broker-tls-key needs --broker-tls-cert")
    to_brokers = args.broker_tls or args.broker_tls_ca or args.broker_tls_cert
    if (args.tls_cert or to_brokers) and args.pcap:
        raise ConfigError("--pcap connects to nobody: TLS has no use with it")
    if to_brokers and args.sandbox:
        raise ConfigError("the stand-in of --sandbox does not speak TLS: --broker-tls needs --broker")
    return (
        Tls(args.tls_cert, args.tls_key, args.client_ca) if args.tls_cert else None,
        BrokerTls(args.broker_tls_ca, args.broker_tls_cert, args.broker_tls_key) if to_brokers else None,
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)

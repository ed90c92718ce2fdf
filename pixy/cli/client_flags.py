"""Define the command lines of the client commands."""

from __future__ import annotations

import argparse

from pixy.cli import COMMANDS


def _partition_offset(text: str) -> tuple[int, int]:
    partition, equals, offset = text.partition("=")
    named = {"begin": -2, "end": -1}
    try:
        if not equals:
            raise ValueError
        return int(partition), named[offset] if offset in named else int(offset)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not PARTITION=OFFSET") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all client commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--server", default="localhost:19091", help="gRPC address (%(default)s)")
    common.add_argument("--cluster", default="", help="cluster name (default: the first one)")
    common.add_argument("--tls", action="store_true", help="connect over TLS")
    common.add_argument("--ca", default="", help="CA certificate of the server (implies --tls)")
    common.add_argument(
        "--token-file",
        default="",
        metavar="FILE",
        help="a file with an API key or a token (default: the environment variable KAFKA_PIXY_TOKEN)",
    )
    common.add_argument("--cert", default="", metavar="FILE", help="client certificate, with --ca")
    common.add_argument("--cert-key", default="", metavar="FILE", help="key of the client certificate")
    common.add_argument("--timeout", type=float, default=90.0, help="seconds a call may take")
    common.add_argument("--json", action="store_true", help="machine-readable output")
    parser = argparse.ArgumentParser(prog="kafka-pixy")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, group: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, parents=[common], help=COMMANDS[name], description=COMMANDS[name].capitalize()
        )
        if name != "topics":
            made.add_argument("topic")
        if group:
            made.add_argument(
                "-g", "--group", required=group == "required", default="", help="consumer group"
            )
        return made

    made = command("produce")
    made.add_argument("-k", "--key", help="key (default: none, any partition)")
    made.add_argument("-m", "--message", help="the message (default: one per line of stdin)")
    made.add_argument("-f", "--file", help="a file that is the message")
    made.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="record header"
    )
    made.add_argument("--async", dest="asynchronous", action="store_true", help="do not wait for Kafka")
    made.add_argument(
        "--in-flight",
        type=_positive,
        default=1,
        help="messages on their way at once; above 1 their order is not kept (%(default)s)",
    )
    made = command("consume", "required")
    made.add_argument("-n", "--count", type=int, default=1, help="messages to read; 0: no end (%(default)s)")
    made.add_argument("--follow", action="store_true", help="wait on when nothing comes")
    made.add_argument("--ack", choices=("explicit", "auto", "none"), default="explicit")
    made = command("ack", "required")
    made.add_argument("-p", "--partition", type=int, required=True)
    made.add_argument("-o", "--offset", type=int, required=True)
    made = command("offsets", "required")
    made.add_argument(
        "--set",
        action="append",
        type=_partition_offset,
        metavar="PARTITION=OFFSET",
        help="an offset, 'begin' or 'end'; nobody may consume as the group meanwhile",
    )
    made = command("topics")
    made.add_argument("topic", nargs="?", default="")
    command("consumers", "optional")
    return parser

"""``kafka-pixy wire``: Kafka's protocol at the shell, for debugging and scripts."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from pixy.wire.exceptions import WireError

EXIT_ERROR = 1

SUBCOMMANDS = {
    "batch": "pixy.cli.wire_batch",
    "decode": "pixy.cli.wire_messages",
    "encode": "pixy.cli.wire_messages",
    "list": "pixy.cli.wire_messages",
}
"""Command to the module whose ``add_parser(subparsers)`` adds it; its parser sets the default
``handler``, a function of the parsed arguments that returns the exit code."""


def make_parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, or of all of them."""
    parser = argparse.ArgumentParser(
        prog="kafka-pixy wire", description="Decode and encode Kafka's protocol at the shell."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Only what is called is imported: the tables of the messages are large.
    modules = [SUBCOMMANDS[wanted]] if wanted else dict.fromkeys(SUBCOMMANDS.values())
    for module in modules:
        importlib.import_module(module).add_parser(subparsers)
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command; return the exit code. A command line that is wrong exits with 2."""
    wanted = argv[0] if argv and argv[0] in SUBCOMMANDS else None
    args = make_parser(wanted).parse_args(argv)
    try:
        code = int(args.handler(args))
        sys.stdout.flush()
        return code
    except WireError as error:
        # What was decoded before the trouble has been printed: it goes out first.
        sys.stdout.flush()
        print(f"kafka-pixy wire {args.command}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except BrokenPipeError:
        # The reader has gone (`| head`); the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except KeyboardInterrupt:
        return 130

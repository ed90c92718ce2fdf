"""``kafka-pixy wire``: decode and encode Kafka's protocol at the shell, for debugging and scripts."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from pixy.cli.arguments import Parser
from pixy.cli.streams import EXIT_BROKEN_PIPE, failed, stuck
from pixy.wire.exceptions import WireError

EXIT_ERROR = 1
EXITS = {
    0: "done",
    1: "invalid input; stderr names the reason",
    2: "wrong command line",
    130: "ended by Ctrl-C",
    141: "the reader of the output has gone",
}
_EXAMPLES = {
    "kafka-pixy wire list Metadata": "the fields of a message",
    """echo '{"Topics": null}' | kafka-pixy wire encode Metadata 12""": "",
    "kafka-pixy wire batch --raw --batches < 00000000000000000000.log": "",
}

SUBCOMMANDS = {
    "batch": "pixy.cli.wire_batch",
    "decode": "pixy.cli.wire_messages",
    "encode": "pixy.cli.wire_messages",
    "list": "pixy.cli.wire_messages",
    "topic": "pixy.cli.wire_topic",
}
"""Command to the module whose ``add_parser(subparsers)`` adds it. The parser's default ``handler`` takes the parsed
arguments and returns the exit code."""


def make_parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command ``wanted``, None for all commands."""
    parser = Parser(
        prog="kafka-pixy wire",
        description="Decode and encode Kafka's protocol at the shell.",
        examples=_EXAMPLES,
        exits=EXITS,
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Import only the command that runs, because the message tables are large.
    modules = [SUBCOMMANDS[wanted]] if wanted else dict.fromkeys(SUBCOMMANDS.values())
    for module in modules:
        importlib.import_module(module).add_parser(subparsers)
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command and return the exit code. A wrong command line exits with 2."""
    wanted = argv[0] if argv and argv[0] in SUBCOMMANDS else None
    args = make_parser(wanted).parse_args(argv)
    try:
        code = int(args.handler(args))
        sys.stdout.flush()
        return code
    except WireError as error:
        # Flush the output decoded before the error, so that it precedes the error.
        sys.stdout.flush()
        print(f"kafka-pixy wire {args.command}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except BrokenPipeError:
        stuck()  # the reader is gone (`| head`)
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if output := stuck():
            return failed(output, ["wire"])
        why = error.strerror or str(error)
        print(f"kafka-pixy wire {args.command}: standard input: {why}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return 130

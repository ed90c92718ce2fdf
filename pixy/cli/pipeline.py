"""``kafka-pixy pipeline``: archive, replay, verify, scan and audit topics, and keep a lake in order.

A command's module is imported when the command is called: ``verify`` needs no Spark, ``--help`` needs nothing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from pixy.cli.arguments import Parser
from pixy.cli.importing import importing
from pixy.cli.pipeline_common import EXIT_ERROR, EXIT_FOUND, EXIT_INTERRUPTED, EXIT_USAGE, EXITS, fail
from pixy.errors import ConfigError, InvalidParameter, PixyError

MODULES = {
    "archive": ("pixy.cli.pipeline_archive", "write topics to a lake, exactly once"),
    "optimize": ("pixy.cli.pipeline_optimize", "rewrite a lake's closed days to large files"),
    "expire": ("pixy.cli.pipeline_expire", "remove the records of old days from a lake"),
    "erase": ("pixy.cli.pipeline_erase", "remove the records of a key or a condition from a lake"),
    "vacuum": ("pixy.cli.pipeline_vacuum", "delete files that a lake no longer lists"),
    "migrate": ("pixy.cli.pipeline_migrate", "make a lake of format 1 a Delta table"),
    "replay": ("pixy.cli.pipeline_replay", "write records of a lake to a topic"),
    "verify": ("pixy.cli.pipeline_verify", "check a lake: history against files against checksums"),
    "scan": ("pixy.cli.pipeline_scan", "count records by the headers of their batches"),
    "audit": ("pixy.cli.pipeline_audit", "report what was lost, duplicated or late"),
    "audit-table": (
        "pixy.cli.pipeline_audit_table",
        "report what a table of another program lacks, has twice or had late",
    ),
}
"""Module and help line of each command.

A module has ``add_parser(subparsers)``; the parser sets ``run``, a function of the parsed arguments that
returns the exit code and raises PixyError for what it refuses."""

_OF_THE_EXTRA = (
    "pyspark",
    "pyarrow",
    "deltalake",
    "xxhash",
    "py4j",
    "numpy",
    "pandas",
    "jinja2",
    "matplotlib",
)

_EXAMPLES = {
    "kafka-pixy pipeline archive --config pixy.yaml --topics orders --lake /lake": "",
    "kafka-pixy pipeline verify --lake /lake": "",
    "kafka-pixy pipeline audit --config pixy.yaml --lake /lake --out audit": "",
}
_EXITS = EXITS | {EXIT_FOUND: "done, and found damage in a lake, or a loss in an audit"}
_DESCRIPTION = "Archive topics to a lake with Spark, replay them, and prove both."


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    parser = Parser(
        prog="kafka-pixy pipeline",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        exits=_EXITS,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, text) in MODULES.items():
        if name == wanted:
            importlib.import_module(module).add_parser(commands)
        else:
            commands.add_parser(name, help=text, add_help=False)
    return parser


def make_parser() -> argparse.ArgumentParser:
    """Return the parser with the options of all commands that can be imported: those without Spark, if it is missing."""
    parser = Parser(
        prog="kafka-pixy pipeline",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        exits=_EXITS,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, text) in MODULES.items():
        try:
            importlib.import_module(module).add_parser(commands)
        except ImportError:
            commands.add_parser(name, help=text)
    return parser


def run(argv: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    wanted = argv[0] if argv and argv[0] in MODULES else None
    try:
        with importing():
            parser = _parser(wanted)
    except ImportError as error:
        print(f"kafka-pixy pipeline {wanted}: {_missing(error)}", file=sys.stderr)
        return EXIT_ERROR
    try:
        args = parser.parse_args(list(argv))
    except SystemExit as error:  # argparse has printed the reason
        return error.code if isinstance(error.code, int) else EXIT_ERROR
    try:
        return int(args.run(args))
    except ImportError as error:  # commands import their libraries when they run
        return fail(args, PixyError(_missing(error)), EXIT_ERROR)
    except PixyError as error:
        from pixy.pipeline.errors import UsageError

        wrong = isinstance(error, UsageError | ConfigError | InvalidParameter)
        return fail(args, error, EXIT_USAGE if wrong else EXIT_ERROR)
    except KeyboardInterrupt:
        return fail(args, PixyError("interrupted"), EXIT_INTERRUPTED)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark") or args.verbose:
            raise
        from pixy.pipeline.spark.java_errors import cause

        return fail(args, PixyError(f"Spark failed: {cause(str(error))} (-v shows all)"), EXIT_ERROR)


def _missing(error: ImportError) -> str:
    """Say which library of the extra is not installed, and how to install it; raise what is another error."""
    if (error.name or "").partition(".")[0] not in _OF_THE_EXTRA:
        raise error
    return f"{error.name} is not installed: make pipeline-install, or pip install '.[pipeline]' in a checkout"


__all__ = ["MODULES", "run"]

"""Options, configuration, output and exit codes shared by the commands of ``kafka-pixy pipeline``."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pixy.cli.arguments import Parser
from pixy.config import Proxy, load_app
from pixy.config.effective import checked
from pixy.config.load import Origins
from pixy.errors import ConfigError, PixyError, UnknownCluster
from pixy.escaping import escaped

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_FOUND = 3
"""The command did its work and found damage or loss."""

EXIT_INTERRUPTED = 130
EXITS: dict[int, str] = {
    EXIT_OK: "done, or stopped as asked (SIGTERM, Ctrl-C)",
    EXIT_ERROR: "failed; stderr names the reason. What is published stays as it is",
    EXIT_USAGE: "wrong command line or configuration",
    EXIT_INTERRUPTED: "Ctrl-C before the command could begin, or where it cannot stop in between",
}
"""Exit codes that all commands have."""

MAX_PARTITION = 2**31 - 1
MAX_DIGITS = 18
"""Of a number on the command line: so it fits into the 64 bits of Spark's and Kafka's."""

_ANY_WIDTH = 100_000
"""Columns of what is piped: nothing is broken or cut."""
_LEAST = 16
"""Columns that a text has in a table on a terminal, if it needs as many."""

console = Console(stderr=True, highlight=False)
"""For progress and remarks; stdout is for the result."""


def common_parser(*, cluster: bool, spark: bool) -> argparse.ArgumentParser:
    """Build a parent parser with the options that all commands have.

    Args:
        cluster: the command talks to Kafka, so --config is required.
        spark: the command runs Spark, so it has --jars and --conf.
    """
    parser = Parser(add_help=False)
    parser.add_argument(
        "--config",
        metavar="FILE",
        required=cluster,
        default="",
        help="the daemon's configuration, for the cluster's brokers and security",
    )
    parser.add_argument(
        "--cluster",
        metavar="C",
        default="",
        help="cluster in the configuration (default: its default cluster)",
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        default=None,
        help="Spark's master (default: local[*], or that of spark-submit)",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="log more to stderr, Spark's warnings too"
    )
    if spark:
        parser.add_argument(
            "--jars",
            metavar="DIR",
            default="",
            help="folder with the connector's jars (default: $KAFKA_PIXY_JARS, or where "
            "`make pipeline-install` puts them)",
        )
        parser.add_argument(
            "--conf",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="a setting of Spark; may be repeated",
        )
    return parser


def add_topics(parser: argparse.ArgumentParser, verb: str, dialect: str) -> None:
    """Add the choice between a list of topics and a pattern.

    Args:
        parser: the command's parser.
        verb: what the command does with the topics, for the help.
        dialect: the language of the regular expressions, for the help.
    """
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topics", metavar="A,B", help=f"topics to {verb}")
    which.add_argument(
        "--pattern",
        metavar="P",
        help=f"{verb} the topics whose whole name matches ({dialect}'s regular expressions)",
    )


def add_keys(parser: argparse._ArgumentGroup) -> None:
    """Add the options that choose records by their keys."""
    parser.add_argument(
        "--key", action="append", default=[], type=_key, help="records with this key; may be repeated"
    )
    parser.add_argument(
        "--key-hex",
        action="append",
        default=[],
        type=_hex,
        metavar="HEX",
        help="the same for a binary key, in hex",
    )


def _key(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("it is not UTF-8: --key-hex takes any bytes") from None


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not hexadecimal") from None


def add_delta_jars(parser: argparse.ArgumentParser) -> None:
    """Add the option that names Delta Lake's jars."""
    parser.add_argument(
        "--delta-jars",
        metavar="DIR|COORDINATES",
        default=None,
        help="Delta Lake's jars: a folder, or Maven coordinates such as io.delta:delta-spark_2.13:4.0.0, fetched "
        "once (default: $KAFKA_PIXY_DELTA_JARS, or where `python -m pixy.pipeline.spark.jars --delta` puts them)",
    )


def load_cluster(args: argparse.Namespace) -> tuple[str, Proxy]:
    """Load the name and configuration of the cluster that the arguments name.

    Raises:
        ConfigError: the file is missing or not a configuration.
        UnknownCluster: the configuration lacks the cluster.
    """
    if not args.config:
        raise ConfigError("--config is needed: it names the cluster's brokers")
    origins: Origins = {}
    app = checked(load_app(args.config, origins=origins), origins)
    name = app.cluster_name(args.cluster)
    if name not in app.proxies:
        raise UnknownCluster(name)
    return name, app.proxies[name]


def set_up_logging(args: argparse.Namespace) -> None:
    """Send logs to stderr."""
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # Py4J logs a traceback for what it also raises, such as Ctrl-C.
    logging.getLogger("py4j").setLevel(logging.WARNING if args.verbose else logging.CRITICAL + 1)


@contextlib.contextmanager
def doing(what: str) -> Iterator[Callable[[str], None]]:
    """Say on stderr what is being done: on a terminal with a spinner for as long as the context lasts, else as one line.

    Args:
        what: is done, such as ``starting Spark``.

    Yields:
        A function that changes the spinner's text; elsewhere it does nothing.
    """
    if not console.is_interactive:
        console.print(Text(escaped(f"{what} ...")), soft_wrap=True)
        yield lambda _text: None
        return
    with console.status(Text(escaped(what))) as status:
        yield lambda text: status.update(Text(escaped(text)))


def report(args: argparse.Namespace, summary: dict[str, Any], code: int = EXIT_OK) -> int:
    """Print the summary, as JSON or for people.

    Args:
        args: the parsed command line.
        summary: what to print.
        code: the exit code.

    Returns:
        ``code``.
    """
    if args.json:
        print(
            json.dumps({"ok": code == EXIT_OK, "command": args.command, **summary}, default=str), flush=True
        )
        return code
    out = Console(highlight=False, soft_wrap=True)
    tables = {key: rows for key, rows in summary.items() if _is_table(rows)}
    for key, value in summary.items():
        if key in tables or value in (None, [], {}):
            continue
        shown = "".join(f"\n  {each}" for each in value) if isinstance(value, list) else _shown(value)
        out.print(Text(escaped(f"{key.replace('_', ' ')}: {shown}", keep="\n")))
    for key, rows in tables.items():
        if rows:
            _print_table(out, key, rows)
    return code


def _print_table(out: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows, numbers to the right. A terminal breaks headings and texts, never numbers; elsewhere each row is one line, whole."""
    table = Table(box=None, pad_edge=False)
    needed = 0
    for name in rows[0]:
        heading = name.replace("_", " ")
        numbers = all(isinstance(row[name], int | float) for row in rows)
        widest = max(len(_shown(row[name])) for row in rows)
        least = max(widest if numbers else min(widest, _LEAST), *map(len, heading.split()))
        needed += least + 2
        fixed = least if numbers and out.is_terminal else None
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold", width=fixed)
    for row in rows:
        table.add_row(*[Text(escaped(_shown(cell)), overflow="fold") for cell in row.values()])
    out.print(Text(title.replace("_", " "), style="italic"))
    out.width = max(out.width, needed) if out.is_terminal else _ANY_WIDTH
    out.print(table, soft_wrap=False)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def fail(args: argparse.Namespace, error: PixyError, code: int) -> int:
    """Print the error on stderr, with --json on stdout as well.

    Args:
        args: the parsed command line.
        error: the error.
        code: the exit code.

    Returns:
        ``code``.
    """
    console.print(Text(escaped(f"kafka-pixy pipeline {args.command}: {error}", keep="\n")), soft_wrap=True)
    if args.json:
        print(
            json.dumps(
                {
                    "ok": False,
                    "command": args.command,
                    "error": str(error),
                    "kind": type(error).__name__,
                }
            ),
            flush=True,
        )
    return code


__all__ = [
    "EXITS",
    "EXIT_ERROR",
    "EXIT_FOUND",
    "EXIT_INTERRUPTED",
    "EXIT_OK",
    "EXIT_USAGE",
    "MAX_DIGITS",
    "MAX_PARTITION",
    "add_delta_jars",
    "add_keys",
    "add_topics",
    "common_parser",
    "console",
    "doing",
    "fail",
    "load_cluster",
    "report",
    "set_up_logging",
]

"""``kafka-pixy top``: findings, groups and busy actors of a daemon in a terminal, from its admin listener."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pixy.cli.admin_client import (
    ADMIN,
    DEFAULT,
    AdminClient,
    AdminError,
    Connection,
    tls_of_environment,
)
from pixy.cli.arguments import Parser
from pixy.cli.top_tables import actors_table, duration, groups_table
from pixy.escaping import escaped

EXIT_OK, EXIT_INTERRUPTED = 0, 130
_FINDINGS, _GROUPS, _ACTORS = 8, 12, 8
"""Lines of each part."""
_WIDE = 100
"""Columns from which on the texts of a finding stand beside its rule."""
_PIPED_WIDTH = 100_000
"""Columns of what is not shown on a terminal: all of them, and no name is broken."""
_INDENT = (0, 0, 0, 4)
_EXAMPLES = {
    "kafka-pixy top": "the daemon on this machine",
    "kafka-pixy top --admin https://pixy1:19093 --once": "print one look, of another one",
    "kafka-pixy top --admin pixy1:19093 --ca ca.pem --token-file ops.apikey": "over TLS, with an API key",
}
_EXITS = {
    0: "shown",
    1: "the daemon does not answer, or refuses; output that cannot be written",
    2: "wrong command line, or a file that it names cannot be used",
    130: "ended by Ctrl-C",
    141: "the reader of the output has gone",
}
_TONES = {"error": "bold red", "warning": "yellow"}


def run(args: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    options = make_parser().parse_args(args)
    try:
        client = AdminClient(options.admin, _connection(options))
        return _show(client, options)
    except AdminError as error:
        print(f"kafka-pixy top: {escaped(str(error))}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="kafka-pixy top",
        description="Show what is wrong with a daemon, its groups, and its busiest actors, until\n"
        "Ctrl-C. The daemon needs an admin_addr. With auth the caller needs the verb\n"
        "`console`.",
        examples=_EXAMPLES,
        exits=_EXITS,
    )
    parser.add_argument(
        "--admin",
        metavar="ADDR",
        default=os.environ.get(ADMIN) or DEFAULT,
        help=f"host:port or URL of the admin listener (default: ${ADMIN}, or {DEFAULT})",
    )
    _add_connection(parser)
    parser.add_argument(
        "--every", metavar="SECONDS", type=_seconds, default=2.0, help="time between two looks (default 2)"
    )
    parser.add_argument("--once", action="store_true", help="print one look, and end")
    return parser


def _add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options of TLS and the caller; they are called as those of the shell."""
    parser.add_argument(
        "--tls", action="store_true", default=tls_of_environment(), help="connect over TLS ($KAFKA_PIXY_TLS)"
    )
    for name, default, text in (
        (
            "ca",
            os.environ.get("KAFKA_PIXY_CA", ""),
            "CA certificate of the daemon (implies --tls; default: $KAFKA_PIXY_CA)",
        ),
        ("cert", "", "client certificate (implies --tls)"),
        ("cert-key", "", "key of the client certificate"),
        ("token-file", "", "a file with an API key or a token (default: it stands in $KAFKA_PIXY_TOKEN)"),
    ):
        parser.add_argument(f"--{name}", metavar="FILE", default=default, help=text)


def _connection(options: argparse.Namespace) -> Connection:
    return Connection(options.tls, options.ca, options.cert, options.cert_key, options.token_file)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.5 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.5 to 3600")
    return found


def _show(client: AdminClient, options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    shown = _look(client, console.width)  # what is wrong from the beginning costs one line, not a screen
    if options.once or not console.is_terminal:
        console.print(shown)
        return EXIT_OK
    try:
        with Live(shown, console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.refresh()
                time.sleep(options.every)
                try:
                    shown = _look(client, console.width)
                    live.update(shown)
                except AdminError as error:
                    live.update(Text(escaped(str(error)), style="bold red"))  # it may come back
    finally:
        console.print(shown)  # the alternate screen is gone; the last look stays


def _look(client: AdminClient, width: int) -> RenderableType:
    findings = client.get("/findings", has="findings")
    groups = client.get(f"/console/api/kafka.groups?size={_GROUPS}", has="rows")
    actors = client.get(f"/debug/actors?sort=busy&limit={_ACTORS}", has="actors")
    return render(client.url, findings, groups, actors, width)


def render(url: str, findings: Any, groups: Any, actors: Any, width: int) -> RenderableType:
    """Lay out one look.

    Args:
        url: of the admin listener.
        findings: as ``/findings`` answers.
        groups: a page of groups.
        actors: as ``/debug/actors`` answers.
        width: columns of the terminal.
    """
    when = time.strftime("%H:%M:%S", time.localtime(findings["at"]))
    found = findings["findings"]
    head = Text(f"kafka-pixy {url}  {when}  ", style="bold")
    head.append(_plural(len(found), "finding") if found else "nothing is wrong", style=_worst(found))
    head.append(f", {_plural(groups['total'], 'group')}, {_plural(actors['total'], 'actor')}")
    return Group(
        head,
        Text(),
        *_findings(found, width),
        groups_table(groups["rows"], width),
        Text(),
        actors_table(actors["actors"], width),
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _worst(found: Any) -> str:
    return (
        _TONES["error" if any(each["severity"] == "error" for each in found) else "warning"]
        if found
        else "green"
    )


def _findings(found: Any, width: int) -> list[RenderableType]:
    """Lay out the findings: in columns, or where these would be narrow, texts below the rule."""
    if not found:
        return []
    wide = width >= _WIDE
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    lines: list[RenderableType] = [grid] if wide else []
    for each in found[:_FINDINGS]:
        rule = Text(each["rule"], style=_TONES[each["severity"]])
        age, cause = Text(duration(each["age"])), Text(escaped(each["cause"]))
        todo = Text(escaped(each["todo"]), style="dim")
        if wide:
            grid.add_row(rule, age, Group(cause, todo))
        else:
            lines += [Text.assemble(rule, "  ", age), Padding(cause, _INDENT), Padding(todo, _INDENT)]
    if len(found) > _FINDINGS:
        lines.append(Text(f"and {len(found) - _FINDINGS} more", style="dim"))
    return [*lines, Text()]


__all__ = ["duration", "make_parser", "render", "run"]

"""Man pages of all commands, from what their help says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import click

from pixy import __version__

_BROKEN: Final = re.compile(r" \\\n\s*")
"""Matches the places where an example of the help goes on in another line."""


def pages() -> Iterator[tuple[str, str]]:
    """Return the name and the text (roff) of each page."""
    from pixy.cli.shell.app import PROGRAM, ROOT

    yield from _pages(click.Context(ROOT, info_name=PROGRAM, resilient_parsing=True))


def _pages(ctx: click.Context) -> Iterator[tuple[str, str]]:
    yield ctx.command_path.replace(" ", "-"), _page(ctx)
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            if command is not None and not command.hidden:
                yield from _pages(click.Context(command, info_name=name, parent=ctx))


def _page(ctx: click.Context) -> str:
    command = ctx.command
    name = ctx.command_path.replace(" ", "-")
    help_text = command.help or command.get_short_help_str()
    date = datetime.now(UTC).date().isoformat()
    lines = [
        f'.TH "{name.upper()}" 1 "{date}" "kafka-pixy {__version__}" "Kafka-Pixy"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_text(ctx.command_path)}",
        _text(" ".join(command.collect_usage_pieces(ctx))),
        ".SH DESCRIPTION",
        *map(_text, help_text.splitlines()),
    ]
    options = [record for each in command.get_params(ctx) if (record := each.get_help_record(ctx))]
    if options:
        lines.append(".SH OPTIONS")
        for flags, meaning in options:
            lines += [".TP", f"\\fB{_text(flags)}\\fR", _text(meaning)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for each in command.list_commands(ctx):
            found = command.get_command(ctx, each)
            if found is not None:
                lines += [".TP", f"\\fB{_text(each)}\\fR", _text(found.get_short_help_str(200))]
    if examples := getattr(command, "examples", {}):
        lines += [".SH EXAMPLES"]
        for line, meaning in examples.items():
            lines += [".TP", f"\\fB{_text(_BROKEN.sub(' ', line))}\\fR", _text(meaning)]
    if exits := getattr(command, "exits", {}):
        lines.append(".SH EXIT STATUS")
        for code, meaning in sorted(exits.items()):
            lines += [".TP", str(code), _text(meaning)]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """Escape what roff would take for its own."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


__all__ = ["pages"]

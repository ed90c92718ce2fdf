"""The programs beside the shell (``tap``, ``wire``, ``pipeline``, ``config``, ``serve``) as click sees them.

They parse their command lines with argparse. For completion, help and man pages their options become click's; when one runs, it gets its
arguments as they are.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from pixy.cli import MODULES, PROGRAMS
from pixy.cli.shell.framework import Group

_PARSERS: Final = {
    "tap": ("pixy.cli.tap_flags", "make_parser"),
    "config": ("pixy.cli.config_commands", "_parser"),
}
"""The module and the function that make the argparse parser of a program, where that is not its own ``make_parser``."""
_FILES: Final = {
    "FILE": "file",
    "PATH": "file",
    "PATH|NAME": "file",
    "DIR": "dir",
    "FOLDER": "dir",
    "DIR|COORDINATES": "dir",
}
"""What a shell completes for a value that help calls so."""


class _Names(click.ParamType[Any]):
    """A value that the shell completes as a file or a directory; the program itself checks it."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Have the shell complete the name."""
        return [CompletionItem(incomplete, type=self.name)]


def program(name: str) -> click.Command:
    """Return a program as a click command."""
    module = importlib.import_module(f"pixy.cli.{MODULES.get(name, name)}")
    where, function = _PARSERS.get(name, (f"pixy.cli.{name}", "make_parser"))
    parser: argparse.ArgumentParser = getattr(importlib.import_module(where), function)()
    command = of_parser(parser, name, PROGRAMS[name])
    if name == "config" and isinstance(command, click.Group):
        for each in ("check", "show"):
            command.commands[each].params += daemon_flags()

    def invoke(ctx: click.Context) -> int:
        return int(module.run(ctx.args))

    command.invoke = invoke  # type: ignore[method-assign]
    return command


def daemon_flags() -> list[click.Parameter]:
    """Return the daemon's own flags."""
    from pixy.cli.flags import make_parser

    return of_parser(make_parser(), "kafka-pixy").params


def of_parser(parser: argparse.ArgumentParser, name: str, short_help: str = "") -> click.Command:
    """Return a click command with the options of an argparse parser, for completion and man pages.

    Args:
        parser: what has subparsers becomes a group.
        name: of the command.
        short_help: its line in a list of commands, and its help if the parser has no description.
    """
    params: list[click.Parameter] = []
    commands: dict[str, click.Command] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for each, sub in action.choices.items():
                commands[each] = of_parser(sub, each, helps.get(each, ""))
        elif action.option_strings:
            if not isinstance(action, argparse._HelpAction):
                params.append(_option(action))
        elif action.help is not argparse.SUPPRESS:
            params.append(click.Argument([action.dest], required=False, nargs=1, type=_kind(action)))
    options: dict[str, Any] = {
        "name": name,
        "params": params,
        "help": parser.description or short_help,
        "short_help": short_help or None,
        "epilog": parser.epilog,
        "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
    }
    command = Group(commands=commands, **options) if commands else click.Command(**options)
    for name_of_end in ("examples", "exits"):  # man pages have them
        setattr(command, name_of_end, getattr(parser, name_of_end, {}))
    return command


def _kind(action: argparse.Action) -> click.ParamType[Any] | None:
    if action.choices:
        return click.Choice([str(each) for each in action.choices])
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return _Names(_FILES[metavar]) if metavar in _FILES else None


def _option(action: argparse.Action) -> click.Option:
    switch = action.nargs == 0 or action.const is True
    metavar = action.metavar if isinstance(action.metavar, str) else None
    text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
    text = (
        text.replace("%(default)s", str(action.default))
        .replace("%(default)g", str(action.default))
        .replace("%%", "%")
    )
    return click.Option(
        [*action.option_strings, f"x_{action.dest}"],
        is_flag=switch,
        type=None if switch else _kind(action),
        metavar=None if switch else metavar,
        help=text,
        hidden=action.help is argparse.SUPPRESS,
    )


__all__ = ["daemon_flags", "of_parser", "program"]

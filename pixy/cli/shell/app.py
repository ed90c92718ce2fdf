"""Runs a command of the shell: finds its module, and turns what a person caused into one line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import click

from pixy.cli import COMMANDS, COMPLETE, EXAMPLES, EXITS, PROGRAMS
from pixy.cli.importing import importing
from pixy.cli.shell.errors import EXIT_ERROR, EXIT_USAGE, ShellError
from pixy.cli.shell.framework import Group
from pixy.cli.shell.interrupts import exit_code, remembered
from pixy.cli.streams import abandon, failed, stuck
from pixy.errors import in_words
from pixy.escaping import escaped

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM: Final = "kafka-pixy"
_LONGEST: Final = 1000
"""Characters of an error of the command line."""

_MODULES: Final = {
    "produce": "produce",
    "consume": "consume",
    "topic": "topic",
    "group": "group",
    "ack": "offsets",
    "offsets": "offsets",
    "topics": "lists",
    "consumers": "lists",
    "status": "about",
    "doctor": "doctor",
    "trace": "trace",
    "version": "about",
    "completion": "about",
    "man": "about",
}
"""The module of each command, in this package; it has a click command of that name."""


class Root(Group):
    """All commands. One that runs is imported when it is named."""

    examples: Mapping[str, str] = EXAMPLES
    exits: Mapping[int, str] = EXITS

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the daemon's flags, for man pages and completion; a command that runs does without the import."""
        params = super().get_params(ctx)
        if ctx.resilient_parsing:
            from pixy.cli.shell.bridge import daemon_flags

            params = [*daemon_flags(), *params]
        return params

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands of the shell, and the programs beside it."""
        return [*COMMANDS, *PROGRAMS]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands, described as in the help, without an import of theirs."""
        from click.shell_completion import CompletionItem  # here: commands that run do without it

        named = [
            (name, text) for name, text in {**COMMANDS, **PROGRAMS}.items() if name.startswith(incomplete)
        ]
        return [
            *(CompletionItem(name, help=text) for name, text in named),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name in PROGRAMS:
            from pixy.cli.shell.bridge import program

            return program(cmd_name)
        if cmd_name not in _MODULES:
            return None
        with importing():
            found: Any = importlib.import_module(f"pixy.cli.shell.{_MODULES[cmd_name]}")
        return cast(click.Command, getattr(found, cmd_name))


ROOT: Final = Root(PROGRAM, help="gRPC and REST proxy for Apache Kafka. Without a command it serves.")


def run(argv: Sequence[str]) -> int:
    """Run one command; return the exit code."""
    name = " ".join([PROGRAM, *argv[:1]])
    try:
        with remembered(), ROOT.make_context(PROGRAM, list(argv)) as ctx:
            code = ROOT.invoke(ctx)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        lacking: Any = error.ctx
        where, known = lacking.command_path, ", ".join(lacking.command.list_commands(lacking))
        _complain(f"{where}: name a command: {known} (see {where} --help)")
        return EXIT_USAGE
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else name
        text = _short(_plain(" ".join(error.format_message().split()).removesuffix(".")))
        _complain(f"{where}: {_origin(error)}{text} (see {where} --help)")
        return EXIT_USAGE
    except ShellError as error:
        _complain(f"{name}: {error}")
        return error.code
    except OSError as error:
        if output := stuck():
            return failed(output, list(argv))
        _complain(f"{name}: {in_words(error)}")
        return EXIT_ERROR
    except (KeyboardInterrupt, click.Abort):
        abandon(unless_read=True)
        return exit_code()


def _origin(error: click.ClickException) -> str:
    """Name the profile file if a value of it is wrong; empty for the command line."""
    ctx, param = getattr(error, "ctx", None), getattr(error, "param", None)
    if ctx is None or param is None:
        return ""
    from pixy.cli.shell.profiles import file_of

    return file_of(ctx, param.name)


def _plain(text: str) -> str:
    """Replace click's words for a wrong number, such as `is not a valid integer range`, by plain ones."""
    for kind, word in (
        ("integer range", "a whole number"),
        ("integer", "a whole number"),
        ("float range", "a number"),
    ):
        text = text.replace(f"is not a valid {kind}", f"is not {word}")
    return text


def _short(text: str) -> str:
    """Leave out the middle of a text that nobody reads to its end, such as that of a number with thousands of digits."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def complete() -> int:
    """Answer a shell's completion script."""
    from click.shell_completion import shell_complete

    return shell_complete(ROOT, {}, PROGRAM, COMPLETE, os.environ[COMPLETE])


def _complain(text: str) -> None:
    print(escaped(text, keep="\n"), file=sys.stderr, flush=True)


__all__ = ["COMPLETE", "PROGRAM", "ROOT", "complete", "run"]

"""The shape of a command: help with examples and exit codes, and the options that all commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from pixy.cli.shell.credentials import check_server
from pixy.cli.shell.errors import ShellError
from pixy.cli.shell.output import FORMS
from pixy.cli.shell.profiles import of_profile, use_profile
from pixy.cli.shell.session import Session, Settings
from pixy.cli.shell.values import Seconds, check_texts

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXITS: Final = {
    0: "done",
    1: "failed; stderr names the reason",
    2: "wrong command line",
    130: "ended by Ctrl-C",
    143: "ended by SIGTERM",
}
"""Exit codes that most commands have."""
_SAID_BY: Final[dict[Any, str]] = {
    click.core.ParameterSource.ENVIRONMENT: "KAFKA_PIXY_SERVER",
}
"""Errors name the source of the daemon's address by these texts; other sources are the flag, and a profile's file."""
_HELP: Final = ["-h", "-help", "--help"]
"""As the daemon's own flags."""
_NO_EXAMPLES: Final[Mapping[str, str]] = {}
_WIDTH: Final = 100
_SENTENCE: Final = 200
"""Characters of a command's first sentence in the help of its group; a terminal breaks it."""


class Command(click.Command):
    """A command whose help ends with examples and exit codes.

    Args:
        examples: command lines without the program's name, each with what it does.
        exits: exit codes and their meaning.
    """

    def __init__(
        self,
        *args: Any,
        examples: Mapping[str, str] | None = None,
        exits: Mapping[int, str] = EXITS,
        **options: Any,
    ) -> None:
        options.setdefault("context_settings", {"help_option_names": _HELP, "max_content_width": _WIDTH})
        super().__init__(*args, **options)
        self.examples = examples or {}
        self.exits = exits

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line. Raises click.UsageError for an option that takes one value and has two: none is dropped in silence."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for param in order:
                once = isinstance(param, click.Option) and not (param.multiple or param.is_flag)
                if once and order.count(param) > 1:
                    raise click.UsageError(
                        f"{' / '.join(param.opts)} is given twice: it takes one value", ctx
                    )
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the exit codes."""
        _write_ends(ctx, formatter, self.examples, self.exits)


def _write_ends(
    ctx: click.Context, formatter: click.HelpFormatter, examples: Mapping[str, str], exits: Mapping[int, str]
) -> None:
    program = ctx.find_root().info_name or "kafka-pixy"
    if examples:
        with formatter.section("Examples"):
            for line, meaning in examples.items():
                formatter.write(f"  {line.replace('kafka-pixy', program)}\n")
                if meaning:
                    formatter.write(f"      {meaning}\n")
    if exits:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in sorted(exits.items())])


class Group(click.Group):
    """A group of commands. Arguments as of :class:`Command`."""

    command_class = Command
    group_class = type
    examples: Mapping[str, str] = _NO_EXAMPLES
    exits: Mapping[int, str] = EXITS

    def __init__(self, *args: Any, examples: Mapping[str, str] | None = None, **options: Any) -> None:
        options.setdefault("context_settings", {"help_option_names": _HELP, "max_content_width": _WIDTH})
        super().__init__(*args, **options)
        self.examples = examples or self.examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the exit codes."""
        _write_ends(ctx, formatter, self.examples, self.exits)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with its first sentence, whole: click would cut it."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, found.get_short_help_str(_SENTENCE)) for name, found in commands if found is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands, described as in the help; click would cut their texts."""
        from click.shell_completion import CompletionItem  # here: commands that run do without it

        named = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [(name, self.get_command(ctx, name)) for name in named]
        return [
            *(
                CompletionItem(name, help=each.get_short_help_str(_SENTENCE))
                for name, each in found
                if each is not None and not each.hidden
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


_CONNECTION: Final = (
    click.option(
        "--profile",
        envvar="KAFKA_PIXY_PROFILE",
        default="default",
        show_default=True,
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=use_profile,
        help="Section of the profile file (docs/shell.md) whose values are the defaults.",
    ),
    click.option(
        "--server",
        envvar="KAFKA_PIXY_SERVER",
        default="localhost:19091",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="gRPC address of the daemon.",
    ),
)
"""Flags that name the daemon."""
_CREDENTIALS: Final = (
    click.option("--tls", is_flag=True, envvar="KAFKA_PIXY_TLS", show_envvar=True, help="Connect over TLS."),
    click.option(
        "--ca",
        envvar="KAFKA_PIXY_CA",
        default="",
        show_envvar=True,
        type=click.Path(),
        metavar="FILE",
        help="CA certificate of the server (implies --tls).",
    ),
    click.option(
        "--cert", default="", type=click.Path(), metavar="FILE", help="Client certificate (implies --tls)."
    ),
    click.option(
        "--cert-key", default="", type=click.Path(), metavar="FILE", help="Key of the client certificate."
    ),
    click.option(
        "--token-file",
        default="",
        type=click.Path(),
        metavar="FILE",
        help="A file with an API key or a token.  [default: the environment variable KAFKA_PIXY_TOKEN]",
    ),
)
"""Flags for TLS, and for who calls."""
_CALLS: Final = (
    click.option(
        "--cluster",
        envvar="KAFKA_PIXY_CLUSTER",
        default="",
        show_envvar=True,
        help="Cluster of the daemon's configuration.  [default: the first one]",
    ),
    click.option(
        "--timeout",
        type=Seconds(),
        default=90.0,
        show_default=True,
        help="Seconds that a call may take.",
    ),
)
_OUTPUT: Final = (
    click.option(
        "--output",
        type=click.Choice(FORMS),
        default="table",
        show_default=True,
        help="For people, or for programs.",
    ),
    click.option("--json", "as_json", is_flag=True, help="The same as --output json."),
)


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command's function, and pass it a :class:`Session` first."""

    @functools.wraps(function)
    def called(**values: Any) -> Any:
        ctx = click.get_current_context()
        check_texts(ctx)
        form = "json" if values.pop("as_json") else values.pop("output")
        values.pop("output", None)
        names = ("server", "cluster", "tls", "ca", "cert", "cert_key", "token_file", "timeout")
        settings = Settings(form=form, **{name: values.pop(name) for name in names})
        try:
            check_server(settings.server, _SAID_BY.get(ctx.get_parameter_source("server"), "--server"))
            session = Session(settings)
        except ShellError as error:
            raise of_profile(error, ctx) from None
        with session:
            return function(session, **values)

    return _with(called, *_CONNECTION, *_CREDENTIALS, *_CALLS, *_OUTPUT)


def with_connection(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a daemon and the caller, and those of the output, to a command that may do without the daemon."""
    return _with(function, *_CONNECTION, *_CREDENTIALS, *_OUTPUT)


def with_credentials(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of TLS and the caller to a command that asks the admin listener."""
    return _with(function, *_CREDENTIALS)


def with_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the output to a command."""
    return _with(function, *_OUTPUT)


def _with(function: Callable[..., Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


__all__ = ["EXITS", "Command", "Group", "connected", "with_connection", "with_credentials", "with_output"]

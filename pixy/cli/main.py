"""Entry point: run the command that the first argument names; otherwise run the daemon."""

from __future__ import annotations

import os
import sys

from pixy.cli import COMMANDS, COMPLETE, MODULES, PROGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    # What is imported up here is a time in which Ctrl-C prints a traceback.
    from collections.abc import Callable, Sequence

EXIT_INTERRUPTED = 130
_SHOWS = frozenset(("-h", "-help", "--help", "-version", "--version"))
"""Flags of the daemon with which it prints something, and ends."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    try:
        args = list(sys.argv[1:] if argv is None else argv)
        from pixy.cli import streams
        from pixy.cli.importing import ending, importing

        if argv is None:  # a test has streams of its own
            streams.prepare(results=_has_results(args))
        with importing():
            command = _command(args)
        code = streams.guarded(command, args)
        if argv is None:
            ending()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED  # before a command has begun to listen to signals


def _has_results(args: list[str]) -> bool:
    """Return whether what goes to standard output is what the command line asks for; a daemon's log is not."""
    return bool(args) and (args[0] in (*COMMANDS, *PROGRAMS, "help") or not _SHOWS.isdisjoint(args))


def _command(args: list[str]) -> Callable[[], int]:
    """Import what the command line asks for."""
    # Imported late: the daemon does not pay for the commands' libraries, nor they for the daemon's.
    if COMPLETE in os.environ or (args and args[0] in COMMANDS):
        # gRPC writes its own lines to standard error. Before it is imported: then it reads this.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if COMPLETE in os.environ:
        from pixy.cli.shell.app import complete

        return complete
    if args and args[0] in COMMANDS:
        from pixy.cli.shell.app import run

        return lambda: run(args)
    if args and args[0] in PROGRAMS:
        import importlib

        module = importlib.import_module(f"pixy.cli.{MODULES.get(args[0], args[0])}")
        return lambda: int(module.run(args[1:]))
    if args and args[0] == "help":
        return lambda: main([*args[1:], "--help"])
    from pixy.cli.start import run as serve

    return lambda: serve(args[1:] if args and args[0] == "serve" else args)


if __name__ == "__main__":
    sys.exit(main())

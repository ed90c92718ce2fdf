"""Entry point: run the command that the first argument names; otherwise run the daemon."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from pixy.cli import COMMANDS, COMPLETE, MODULES, PROGRAMS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 130  # during imports, or before a command has begun to listen to signals


def _main(args: list[str]) -> int:
    # Imported late: the daemon does not pay for the commands' libraries, nor they for the daemon's.
    if COMPLETE in os.environ:
        from pixy.cli.shell.app import complete

        return complete()
    if args and args[0] in COMMANDS:
        from pixy.cli.shell.app import run

        return run(args)
    if args and args[0] in PROGRAMS:
        module = f"pixy.cli.{MODULES.get(args[0], args[0])}"
        return int(importlib.import_module(module).run(args[1:]))
    if args and args[0] == "help":
        args = [*args[1:], "--help"]
        return main(args)
    if args and args[0] == "serve":
        args = args[1:]
    from pixy.cli.serve import run as serve

    return serve(args)


if __name__ == "__main__":
    sys.exit(main())

"""Entry point: run the command that the first argument names; otherwise run the daemon."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from pixy.cli import COMMANDS, MODULES, PROGRAMS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    # Imported late: the daemon does not pay for the commands' libraries, nor they for the daemon's.
    if args and args[0] in COMMANDS:
        from pixy.cli.client import run

        return run(args)
    if args and args[0] in PROGRAMS:
        module = f"pixy.cli.{MODULES.get(args[0], args[0])}"
        return int(importlib.import_module(module).run(args[1:]))
    if args and args[0] == "help":
        args = [*args[1:2], "--help"]
        return main(args)
    if args and args[0] == "serve":
        args = args[1:]
    from pixy.cli.serve import run as serve

    return serve(args)


if __name__ == "__main__":
    sys.exit(main())

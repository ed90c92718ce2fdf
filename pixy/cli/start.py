"""Read the daemon's command line before its libraries are imported: help and mistakes are answered in a fifth of the time."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence

from pixy.cli.flags import UsageError, parse
from pixy.cli.importing import importing
from pixy.config import App
from pixy.errors import ConfigError
from pixy.escaping import escaped

EXIT_FAILED_TO_START = 1
EXIT_USAGE = 2


def run(args: Sequence[str]) -> int:
    """Serve until a signal arrives; return the exit code."""
    try:
        found: tuple[argparse.Namespace, App] = parse(args)
    except UsageError as error:
        complain(f"kafka-pixy: {error}")
        return EXIT_USAGE
    except ConfigError as error:
        # The text may have several lines; the error is one.
        complain(f"Failed to load config: err=({' '.join(str(error).split())})")
        return EXIT_FAILED_TO_START
    with importing():
        from pixy.cli.serve import serve
    return serve(*found, args)


def complain(text: str) -> None:
    """Write a line to standard error."""
    with contextlib.suppress(OSError):  # nobody reads it, or the disk is full
        print(escaped(text), file=sys.stderr, flush=True)


__all__ = ["EXIT_FAILED_TO_START", "EXIT_USAGE", "complain", "parse", "run"]

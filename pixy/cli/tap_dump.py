"""``kafka-pixy tap --dump FILE``: where a dump goes, and what it shows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from pixy.errors import StartError, reason_of
from pixy.tap.config import Bounds
from pixy.tap.dump_actor import DumpTarget
from pixy.tap.dump_filter import DumpFilter
from pixy.tap.dump_writers import JsonDump, Limited, PcapngDump


def open_dump(
    args: argparse.Namespace, wanted: DumpFilter, bounds: Bounds, on_end: Callable[[Exception], None]
) -> DumpTarget | None:
    """Open the file that the command line names; None if it names none.

    Args:
        args: the command line.
        wanted: which frames to show.
        bounds: limits the dump's bytes.
        on_end: is called once if the dump ends before the tap does.

    Raises:
        StartError: the file cannot be written, or a library is missing.
    """
    if not args.dump:
        return None
    kind = args.dump_format or ("pcapng" if args.dump.endswith(".pcapng") else "json")
    try:
        file = sys.stdout.buffer if args.dump == "-" else open(args.dump, "wb")  # noqa: SIM115  # as long as the tap
        limited = Limited(file, bounds.dump)
        writer = PcapngDump(limited, bounds) if kind == "pcapng" else JsonDump(limited)
    except OSError as error:
        raise StartError(f"--dump {args.dump}: {reason_of(error)}") from error
    return DumpTarget(wanted, writer, on_end)


def why_ended(error: Exception) -> str:
    """Say why a dump has ended."""
    if isinstance(error, BrokenPipeError):
        return "nobody reads it any more"
    return reason_of(error) if isinstance(error, OSError) and error.errno else str(error) or repr(error)


__all__ = ["open_dump", "why_ended"]

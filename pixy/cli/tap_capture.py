"""``kafka-pixy tap --pcap FILE``: show what a capture file holds."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from pixy.cli.streams import failed, stuck
from pixy.errors import StartError, reason_of
from pixy.escaping import json_text
from pixy.tap.capture import Capture
from pixy.tap.capture_file import segments
from pixy.tap.config import TapConfig
from pixy.tap.dump import Dump, DumpEvent, limit
from pixy.tap.dump_actor import DumpTarget
from pixy.tap.dump_writers import DumpFull
from pixy.tap.observer import Observer
from pixy.tap.observer_actor import TABLE_REBALANCES
from pixy.tap.table import render

EXIT_UNREADABLE = 1


class _Dumped:
    """Hand frames to a dump at once: nothing waits."""

    def __init__(self, target: DumpTarget, config: TapConfig) -> None:
        self._target, self._dump = target, Dump(target.wanted, target.writer, config.bounds)
        self._failed: OSError | None = None

    def limit(self, key: int, version: int) -> int | None:
        return None if self._failed else limit(self._target.wanted, key, version)

    def reserve(self, size: int) -> bool:
        return size >= 0

    def unreserve(self, size: int) -> None:
        pass

    def put(self, event: DumpEvent) -> None:
        try:
            if self._failed is None:
                self._dump.take(event)
        except OSError as error:  # told by finish(): it is no defect of the conversation
            self._failed = error

    def finish(self) -> None:
        """Write what is left. Raises OSError, also DumpFull, if the dump could not be written."""
        if self._failed is not None:
            raise self._failed
        self._target.writer.file.flush()


def read_capture(path: str, config: TapConfig, output: str, dump: DumpTarget | None = None) -> int:
    """Read a capture and print its events as JSON lines with a snapshot at the end, or the last table.

    Args:
        path: the file, ``-`` for standard input.
        config: limits.
        output: ``json``, ``table`` or ``none``.
        dump: where its requests and responses go, decoded; None for no dump.

    Returns:
        The exit code.
    """
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as file:
            observer = Observer(config, _print if output == "json" else None)
            dumped = None if dump is None else _Dumped(dump, config)
            capture = Capture(config, observer, dumped)
            for segment in segments(file):
                capture.take(segment)
            capture.finish()
            if dumped is not None:
                dumped.finish()
        if not observer.counts["connections"]:
            raise StartError(f"no connection that speaks Kafka's protocol in {capture.segments} TCP segments")
        _show(observer, capture.now, path, output)
    except DumpFull as error:
        print(f"kafka-pixy tap: --dump: {error}", file=sys.stderr)
        return EXIT_UNREADABLE
    except BrokenPipeError:
        stuck()
        return 0
    except StartError as error:
        print(f"kafka-pixy tap: {path}: {error}", file=sys.stderr)
        return EXIT_UNREADABLE
    except OSError as error:
        if error.filename is None:  # of standard output
            stuck()
            return failed(error, ["tap"])
        print(f"kafka-pixy tap: {path}: {reason_of(error)}", file=sys.stderr)
        return EXIT_UNREADABLE
    return 0


def _show(observer: Observer, at: float, path: str, output: str) -> None:
    found = observer.snapshot(at)
    if output == "json":
        _print({"time": found["time"], "event": "snapshot", **found})
    elif output == "table":
        table: dict[str, Any] = {
            **found,
            "timeline": observer.registry.timeline.to_json(at)[-TABLE_REBALANCES:],
            "clients": observer.inventory.to_json(),
        }
        console = Console(highlight=False)
        console.print(render(table, console, [path]))
    sys.stdout.flush()


def _print(document: dict[str, Any]) -> None:
    sys.stdout.write(f"{json_text(document, sys.stdout.encoding)}\n")


__all__ = ["read_capture"]

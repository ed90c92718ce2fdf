"""``kafka-pixy tap``: a proxy that shows who is in which group and who owns which partition."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Any

from pixy.cli.open_files import allow_open_files, too_few
from pixy.cli.streams import failed, remark, stuck
from pixy.cli.tap_flags import make_config, make_parser
from pixy.errors import ConfigError, StartError
from pixy.tap.config import TapConfig, parse_address, show_address
from pixy.tap.printer import JsonPrinter, Show, TablePrinter
from pixy.tap.service import TapService

EXIT_FAILED_TO_START = 1
EXIT_USAGE = 2
EXIT_BROKEN = 4
_SWITCH_INTERVAL = (
    0.0002  # seconds: the loop, which forwards, must soon get the GIL back from the observer's thread
)


def run(argv: Sequence[str]) -> int:
    """Run the tap until a signal; return the exit code."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if problem := too_few(allow_open_files()):
        print(f"kafka-pixy tap: {problem}", file=sys.stderr)
        return EXIT_FAILED_TO_START
    try:
        sandbox = _sandbox(args)
    except StartError as error:
        print(f"kafka-pixy tap: {error}", file=sys.stderr)
        return EXIT_FAILED_TO_START
    try:
        config = make_config(args)
        http = parse_address(args.metrics) if args.metrics else None
    except ConfigError as error:
        print(f"kafka-pixy tap: {error}", file=sys.stderr)
        return EXIT_USAGE
    sys.setswitchinterval(_SWITCH_INTERVAL)
    output = args.output or ("table" if sys.stdout.isatty() else "json")
    try:
        return int(_runner().run(_Program(config, http, output, args).run()))
    except KeyboardInterrupt:
        return 130
    finally:
        del sandbox


def _sandbox(args: argparse.Namespace) -> object:
    if not args.sandbox:
        return None
    from pixy.kafka.sandbox import Sandbox

    made = Sandbox()
    args.broker = ",".join(made.seed_peers[:1])
    return made


def _runner() -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio
    return uvloop


def _listening(service: TapService) -> list[str]:
    return [f"{show_address(address)} -> {show_address(broker)}" for address, broker in service.listening]


class _Program:
    def __init__(self, config: TapConfig, http: Any, output: str, args: argparse.Namespace) -> None:
        self._config, self._http, self._output, self._args = config, http, output, args
        self._stop = asyncio.Event()
        self._printer: Any = None
        self._code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        service = TapService(self._config, http=self._http)
        if self._output == "json":
            self._printer = service.system.spawn(
                JsonPrinter, lambda error: loop.call_soon_threadsafe(self._broken, error), name="json"
            )
            service.add_output(self._printer.notify)
        try:
            await service.start()
        except StartError as error:
            remark(f"kafka-pixy tap: {error}")
            return EXIT_FAILED_TO_START
        self._announce(service)
        views = asyncio.create_task(self._views(service))
        failed = asyncio.create_task(service.failed())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait((failed, stopped, views), return_when=asyncio.FIRST_COMPLETED)
        code = 0
        if failed.done():
            remark(f"kafka-pixy tap: stopping: {failed.result()}")
            code = EXIT_BROKEN
        elif views.done() and not self._stop.is_set():
            views.result()
        for task in (views, failed, stopped):
            task.cancel()
        await service.stop()
        return code or self._code

    def _broken(self, error: Exception) -> None:
        stuck()
        if not isinstance(error, BrokenPipeError):  # the reader has gone (`| head`): that is no failure
            self._code = failed(OSError(*error.args), ["tap"])
        self._stop.set()

    def _announce(self, service: TapService) -> None:
        for text in [*_listening(service), *self._notes(service)]:
            remark(text)

    def _notes(self, service: TapService) -> list[str]:
        notes = [] if service.http is None else [f"views: http://{show_address(service.http)}/"]
        if not self._config.rewrite:
            notes.append(
                "note: without --rewrite, clients connect to the addresses that the brokers advertise"
            )
        return notes

    async def _views(self, service: TapService) -> None:
        if self._output == "table":
            self._printer = service.system.spawn(
                TablePrinter, _listening(service), self._notes(service), name="table"
            )
        interval = self._args.interval
        while True:
            if self._output == "table":
                self._printer.notify(Show(await service.ask("table")))
            elif self._output == "json" and interval:
                await asyncio.sleep(interval)
                found = await service.ask("snapshot")
                self._printer.notify({"time": found["time"], "event": "snapshot", **found})
                continue
            await asyncio.sleep(interval or 1.0)


__all__ = ["run"]

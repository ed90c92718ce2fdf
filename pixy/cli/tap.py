"""``kafka-pixy tap``: a proxy that shows who is in which group and who owns which partition."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from actors import Timeout
from pixy.cli.open_files import allow_open_files, too_few
from pixy.cli.streams import remark, stuck
from pixy.cli.tap_capture import read_capture
from pixy.cli.tap_dump import open_dump, why_ended
from pixy.cli.tap_flags import make_config, make_parser
from pixy.cli.tap_otlp import check_otlp, exporting
from pixy.errors import ConfigError, StartError
from pixy.tap.config import Address, TapConfig, parse_address, show_address
from pixy.tap.dump_actor import DumpTarget
from pixy.tap.dump_filter import parse_filter
from pixy.tap.messages import ViewName
from pixy.tap.printer import JsonOutput, JsonPrinter, Show, TablePrinter
from pixy.tap.service import TapService

EXIT_FAILED_TO_START = 1
EXIT_USAGE = 2
EXIT_BROKEN = 4
EXIT_OUTPUT = 1
"""Standard output took not all, though its reader had not gone."""
_SWITCH_INTERVAL = (
    0.0002  # seconds: the loop, which forwards, must soon get the GIL back from the observer's thread
)

_RESOLVE_TIMEOUT = 2.0
"""Seconds for which the first table waits for the brokers' names; connections are served meanwhile."""
_FIRST_VIEW = 5.0
"""Seconds for which a stop waits for the first table, if there has been none yet."""


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
        wanted = parse_filter(args.filter)
    except ConfigError as error:
        print(f"kafka-pixy tap: {error}", file=sys.stderr)
        return EXIT_USAGE
    output = args.output or ("none" if args.dump == "-" else "table" if sys.stdout.isatty() else "json")
    try:
        check_otlp(args.otlp)
        dump = open_dump(args, wanted, config.bounds, _dump_ended)
    except StartError as error:
        print(f"kafka-pixy tap: {error}", file=sys.stderr)
        return EXIT_FAILED_TO_START
    if args.pcap:
        return read_capture(args.pcap, config, output, dump)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        return int(_runner().run(_Program(config, http, output, args, dump).run()))
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


async def _unknown_hosts(brokers: Sequence[Address]) -> list[str]:
    """Describe the brokers whose names do not resolve: a line each. The tap asks again for each connection."""
    loop = asyncio.get_running_loop()

    async def problem(broker: Address) -> str:
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT):
                await loop.getaddrinfo(*broker, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            why = (error.strerror or str(error)).lower()
            return (
                f"kafka-pixy tap: --broker {show_address(broker)}: the name does not resolve ({why}); "
                "connections fail until it does"
            )
        except (OSError, TimeoutError):  # connections will say so
            pass
        return ""

    found = await asyncio.gather(*map(problem, brokers))
    return [each for each in found if each]


def _dump_ended(error: Exception) -> None:
    """Say that the dump has ended before the tap."""
    if isinstance(error, BrokenPipeError):
        stuck()
    remark(f"kafka-pixy tap: the dump has ended: {why_ended(error)}; the tap goes on without it")


class _Program:
    def __init__(
        self, config: TapConfig, http: Any, output: str, args: argparse.Namespace, dump: DumpTarget | None
    ) -> None:
        self._config, self._http, self._output, self._args = config, http, output, args
        self._dump = dump
        self._stop = asyncio.Event()
        self._first_view = asyncio.Event()
        self._printer: Any = None
        self._reloading: asyncio.Task[None] | None = None
        self._shown = output != "none"
        self._unwritten = False
        """Whether standard output has failed."""
        self._unknown: list[str] = []
        """What to know about brokers whose names do not resolve."""

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        service = TapService(self._config, http=self._http, dump=self._dump)
        if self._config.tls is not None or self._config.broker_tls is not None:
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup, service)
        if self._output == "json":
            self._printer = service.system.spawn(JsonPrinter, self._on_broken(loop), name="json")
            service.add_output(JsonOutput(self._printer))
        try:
            await service.start()
        except StartError as error:
            remark(f"kafka-pixy tap: {error}")
            return EXIT_FAILED_TO_START
        self._unknown = await _unknown_hosts(self._config.brokers)
        self._announce(service)
        async with exporting(service, self._args.otlp, self._args.otlp_interval):
            code = await self._serve(service)
        await service.stop()
        return code or (EXIT_OUTPUT if self._unwritten else 0)

    async def _serve(self, service: TapService) -> int:
        """Show what is to be shown until a signal or a failure; return the exit code."""
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
        elif self._output == "table":  # of a tap that is stopped at once, too
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._first_view.wait(), _FIRST_VIEW)
        for task in (views, failed, stopped):
            task.cancel()
        return code

    def _on_hangup(self, service: TapService) -> None:
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload(service))

    async def _reload(self, service: TapService) -> None:
        try:
            await service.reload_certificates()
        except StartError as error:
            remark(f"kafka-pixy tap: the earlier certificates stay in use: {error}")
        else:
            remark("kafka-pixy tap: new connections use the certificates read now")

    def _on_broken(self, loop: asyncio.AbstractEventLoop) -> Callable[[Exception], None]:
        def broken(error: Exception) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is left to tell
                loop.call_soon_threadsafe(self._broken, error)

        return broken

    def _broken(self, error: Exception) -> None:
        """Go on without output: clients depend on the tap, and nobody can be made to read."""
        stuck()
        self._shown = False
        gone = isinstance(error, BrokenPipeError)
        self._unwritten = not gone
        why = "nobody reads it any more" if gone else getattr(error, "strerror", None) or str(error)
        if not self._stop.is_set():
            remark(f"kafka-pixy tap: standard output: {why}; the tap goes on without it (Ctrl-C ends it)")
        elif not gone:
            remark(f"kafka-pixy tap: standard output: {why}")

    def _announce(self, service: TapService) -> None:
        for text in [*_listening(service), *self._notes(service)]:
            remark(text)

    def _notes(self, service: TapService) -> list[str]:
        notes = [] if service.http is None else [f"views: http://{show_address(service.http)}/"]
        if not self._config.rewrite:
            notes.append(
                "note: without --rewrite, clients connect to the addresses that the brokers advertise"
            )
        return [*self._unknown, *notes]

    async def _views(self, service: TapService) -> None:
        if self._output == "table":
            self._printer = service.system.spawn(
                TablePrinter,
                _listening(service),
                self._notes(service),
                self._on_broken(asyncio.get_running_loop()),
                name="table",
            )
        view: ViewName = "table" if self._output == "table" else "snapshot"
        interval = self._args.interval or (1.0 if self._output == "table" else 0.0)
        if not self._printer or not interval:
            await self._stop.wait()
            return
        if self._output == "json":
            await asyncio.sleep(interval)
        while self._shown:
            # Wait until it is shown: a terminal that takes nothing holds one snapshot and no more.
            with contextlib.suppress(Timeout):  # the observer is behind: the next one may be in time
                await self._printer.ask(Show(await service.ask(view)), block=False)
            self._first_view.set()
            await asyncio.sleep(interval)
        await self._stop.wait()


__all__ = ["run"]

"""Run the daemon: configuration, signals, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pixy.cli.dumps import Dumps
from pixy.cli.leftovers import Leftovers
from pixy.cli.logs import ON_STDERR, configured
from pixy.cli.open_files import allow_open_files, too_few
from pixy.cli.pid_file import PidFile
from pixy.cli.reloading import Reloader
from pixy.cli.start import EXIT_FAILED_TO_START, complain as _complain, parse
from pixy.cli.start_problems import listener_problem, log_problem
from pixy.cli.streams import stuck
from pixy.cli.waiting import kafka_answers
from pixy.cli.welcome import greet
from pixy.config import App
from pixy.config.environment import CONFIG
from pixy.config.exposure import exposed
from pixy.config.files import tls_problem
from pixy.config.notes import start_notes
from pixy.config.validity import invalid_note
from pixy.engine.engine import Engine
from pixy.engine.service import ListenerSpec
from pixy.errors import ConfigError, PixyError, StartError, in_words
from pixy.kafka.errors import OUT_OF_BROKERS

if TYPE_CHECKING:
    from pixy.api.siblings import WorkerSockets

logger = logging.getLogger("pixy")

EXIT_OK = 0
EXIT_NOT_DRAINED = 3
EXIT_BROKEN = 4
EXIT_SIGNAL = 128
"""Plus the number of the signal: a second signal ends the process at once."""

_HINTS = {
    errno.EMFILE: "let the daemon open more of them (ulimit -n, LimitNOFILE of systemd)",
    errno.ENFILE: "the machine has no more of them: raise fs.file-max, or end what holds them",
    errno.ENOSPC: "free some space",
}
_NO_BROKER = (
    "name other brokers with --kafkaPeers, wait for them with --waitForKafka, or try it out with --sandbox"
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_SWITCH_INTERVAL = 0.001
_COLLECT_AFTER = (50_000, 20, 50)


def serve(options: argparse.Namespace, app: App, args: Sequence[str]) -> int:
    """Serve until a signal arrives; return the exit code.

    Args:
        options: the flags.
        app: the configuration.
        args: the command line that they come from.
    """
    # Before anything is opened, and before Kafka is waited for.
    if problem := tls_problem(app.tls) or listener_problem(app) or log_problem(app):
        _complain(f"Failed to start service: err=({problem})")
        return EXIT_FAILED_TO_START
    tune_process()
    if problem := too_few(allow_open_files()):
        _complain(f"Failed to start service: err=({problem})")
        return EXIT_FAILED_TO_START
    # gRPC's core would write to stderr what clients send, as it is. Before the core begins.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    reloader = Reloader(app, lambda: parse(args)[1], options.config or os.environ.get(CONFIG, ""))
    hosted = app.server.front == "envoy"
    try:
        sandboxes = make_sandboxes(app, bool(options.sandbox) and not hosted)
    except StartError as error:
        _complain(f"Failed to start service: err=({error})")
        return EXIT_FAILED_TO_START
    if not app.auth.enabled and (open_to_others := exposed(app)):
        _complain(f"kafka-pixy: insecure: anybody who can reach it is served on {', '.join(open_to_others)}")
    for note in filter(None, (*start_notes(app), *options.notes, invalid_note(app.tls))):
        _complain(f"kafka-pixy: {note}")
    try:
        if hosted or app.server.processes > 1:
            code = _supervised(app, options, args)
        else:
            code = _logged(app, options, reloader)
    except StartError as error:
        # Here, because now the log is written: this is the last line.
        hint = f": {_NO_BROKER}" if OUT_OF_BROKERS in str(error) else ""
        _complain(f"Failed to start service: err=({error}{hint})")
        code = EXIT_FAILED_TO_START
    except (ConfigError, OSError, ValueError) as error:
        _complain(f"Failed to initialize: err=({_why(error)})")
        code = EXIT_FAILED_TO_START
    del sandboxes
    return code


def _supervised(app: App, options: argparse.Namespace, args: Sequence[str]) -> int:
    """Run the daemon within Envoy, or as workers; return the exit code. The log is written there."""
    pid_file = PidFile(options.pidFile)
    pid_file.check()
    try:
        if app.server.front == "envoy":
            from pixy.cli.envoy.supervisor import Supervisor

            return asyncio.run(Supervisor(app, args, pid_file).run())
        from pixy.cli.workers.supervisor import supervise

        return supervise(app, args, pid_file)
    finally:
        pid_file.remove()


def _logged(app: App, options: argparse.Namespace, reloader: Reloader) -> int:
    """Run the daemon with its log and its pid file, and end the process; raise what fails its start, which the log has too.

    The process ends with the last line of its log. Python would wait for its threads, some of which are in librdkafka: its
    clients end when the answer of a frozen broker is late enough, half a minute after everything was drained.
    """
    with contextlib.ExitStack() as opened:
        opened.enter_context(configured(app.logging))

        def abandon(code: int) -> NoReturn:
            opened.close()
            stuck()
            os._exit(code)

        async def run() -> NoReturn:
            abandon(await daemon.run())

        try:
            pid_file = PidFile(options.pidFile)
            opened.callback(pid_file.remove)
            pid_file.check()  # before anything is opened; it is written when the daemon serves
            daemon = Daemon(
                app,
                abandon,
                reloader,
                announce=bool(options.sandbox),
                wait_for_kafka=bool(options.waitForKafka),
                pid_file=pid_file,
            )
            return run_loop(run)
        except (PixyError, OSError, ValueError) as error:
            logger.error("failed to start: %s", _why(error), extra={ON_STDERR: True})
            raise


def _why(error: Exception) -> str:
    """Return what keeps the daemon from starting as one line, with what to do if that is known."""
    hint = _HINTS.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    return f"{in_words(error)}{hint and f': {hint}'}"


def tune_process() -> None:
    """Let threads alternate sooner; run the cycle collector less often, and never over the objects of start-up.

    The loop shares the GIL with librdkafka's callback threads; a shorter interval lets them alternate sooner. Too short a one costs
    much where many wait (see docs/performance.md).

    A batch of 100 records is some 300 objects that live until Kafka has answered. With Python's default
    threshold of 700, the collector scanned all records in flight again and again: a record cost 5.8
    microseconds of the loop, 4.3 with this threshold, 4.0 with no collector (REST, 100 records a request).
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def run_loop(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a coroutine in the fastest loop that there is; return its result."""
    runner: Any
    try:
        # 15 % more synchronous produces a second than asyncio's own loop (docs/performance.md).
        import uvloop as runner
    except ImportError:
        runner = asyncio
    daemon = main()
    try:
        return int(runner.run(daemon))
    finally:
        daemon.close()  # without files there is no loop, and nobody has begun it


def make_sandboxes(app: App, wanted: bool) -> list[object]:
    """Start a stand-in for each cluster, and name it as the cluster's broker. They live as long as the list."""
    if not wanted:
        return []
    from pixy.kafka.sandbox import Sandbox

    made: list[object] = []
    for proxy in app.proxies.values():
        sandbox = Sandbox()
        proxy.kafka.seed_peers = sandbox.seed_peers
        made.append(sandbox)
    return made


def listeners(engine: Engine, app: App, siblings: WorkerSockets | None = None) -> list[ListenerSpec]:
    """List the configured API servers.

    Args:
        engine: answers requests.
        app: the configuration.
        siblings: the other processes that serve the same addresses; None: it is alone.
    """
    from pixy.api.edge.edge import Edge

    edge = Edge(app, engine.access_log, engine.meter, None if siblings is None else siblings.worker)
    specs: list[ListenerSpec] = []
    if app.grpc_addr:
        from pixy.api.grpc.server import GrpcServer

        specs.append((GrpcServer, (engine, app.grpc_addr, edge), "grpc"))
    from pixy.api.rest.server import RestServer, RestV1Server
    from pixy.api.restv1.app import RestV1

    if siblings is None:
        rest_v1 = RestV1(engine, edge.proxies)
    else:
        from pixy.api.rest.internal import WorkerServer
        from pixy.api.restv1.workers import with_workers

        specs.insert(0, (WorkerServer, (engine, siblings, edge), "workers"))
        rest_v1 = RestV1(engine, edge.proxies, with_workers(siblings))
    if app.rest.addr:
        specs.append((RestV1Server, (engine, app.rest.addr, rest_v1, edge), "rest-v1"))
    if app.admin_addr:
        from pixy.api.admin.server import AdminServer

        specs.append((AdminServer, (engine, app.admin_addr, edge, siblings), "admin"))
    # TCP last: when it answers, everything does.
    for address, name in ((app.unix_addr, "rest-unix"), (app.tcp_addr, "rest")):
        if address:
            specs.append((RestServer, (engine, address, rest_v1, edge), name))
    return specs


def _has_terminal() -> bool:
    """Return whether a person started the daemon: its standard input is a terminal."""
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # closed
        return False


class Daemon:
    """One run of the service in an event loop.

    Args:
        app: its configuration.
        abandon: ends the process with an exit code, whatever still runs in it. After a stop that was not clean, tasks and
            threads are stuck, some of them in librdkafka: unwinding them could wait for ever, or crash.
        reloader: reads everything again on SIGHUP, and when a file has changed.
        announce: print how to use the sandbox.
        wait_for_kafka: wait until the brokers answer, instead of failing to start.
        pid_file: written once the ports are bound; the caller removes it.
    """

    def __init__(
        self,
        app: App,
        abandon: Callable[[int], None],
        reloader: Reloader,
        *,
        announce: bool = False,
        wait_for_kafka: bool = False,
        pid_file: PidFile | None = None,
    ) -> None:
        self._app = app
        self._abandon = abandon
        self._reloader = reloader
        self._announce = announce
        self._wait_for_kafka = wait_for_kafka
        self._signalled = asyncio.Event()
        self._pid_file = pid_file or PidFile("")
        self._leftovers = Leftovers(self._pid_file, app.unix_addr)

    def on_signal(self, number: int, call: Callable[..., None], *args: object) -> None:
        """Call a function on a signal from now on."""
        asyncio.get_running_loop().add_signal_handler(number, call, *args)

    def engine(self) -> Engine:
        """Make the engine."""
        return Engine(self._app)

    def listeners(self, engine: Engine) -> list[ListenerSpec]:
        """List the configured API servers."""
        return listeners(engine, self._app)

    async def serves(self, engine: Engine) -> None:
        """Note that all listeners serve."""

    async def run(self) -> int:
        """Start, wait for a signal or a failure, drain, stop; return the exit code."""
        for number in _SIGNALS:
            self.on_signal(number, self._signal, number)
        if self._announce and _has_terminal():
            # A sandbox that was tried out does not outlive its terminal, and hold its ports.
            self.on_signal(signal.SIGHUP, self._signal, signal.SIGHUP)
        else:
            self.on_signal(signal.SIGHUP, self._reloader.request)
        self.on_signal(signal.SIGUSR1, logger.warning, "dump (SIGUSR1): waiting for Kafka")
        if self._wait_for_kafka and not await kafka_answers(self._app.proxies, self._signalled):
            return EXIT_OK
        engine = self.engine()
        # Before it has started, there is nothing to describe.
        dumps = Dumps(lambda: engine.diagnostics.dumping() if hasattr(engine, "diagnostics") else ())
        self.on_signal(signal.SIGUSR1, dumps.request)
        await engine.start(self.listeners(engine))
        self._leftovers.made()
        # Here as well as at the start of the program: a worker that replaces another may find another certificate.
        if note := await asyncio.to_thread(invalid_note, self._app.tls):
            logger.warning("%s", note, extra={ON_STDERR: True})
        try:
            self._pid_file.write()
        except ConfigError:
            await engine.stop()
            raise
        if self._announce:
            with contextlib.suppress(OSError):  # as with a log that nobody reads: it serves all the same
                greet(self._app, engine.addresses)
        await self.serves(engine)
        return await self._serve(engine)

    async def _serve(self, engine: Engine) -> int:
        reloading = asyncio.create_task(self._reloader.run(engine))
        signalled = asyncio.create_task(self._signalled.wait())
        failed = asyncio.create_task(engine.failed())
        await asyncio.wait((signalled, failed), return_when=asyncio.FIRST_COMPLETED)
        code = EXIT_OK
        if failed.done():
            code = EXIT_BROKEN
            logger.error(
                "a part of the service has failed for good: %s", failed.result(), extra={ON_STDERR: True}
            )
            _complain(f"kafka-pixy: stopping: {failed.result()}")
        for task in (signalled, failed, reloading):
            task.cancel()
        logger.info("draining, at most %.0f s", self._app.shutdown_timeout)
        result = await engine.stop()
        if not result.clean:
            _complain(
                f"kafka-pixy: stopped without draining: {result.lost_messages} messages not "
                f"delivered; still busy: {', '.join(result.left) or 'nobody'}"
            )
            code = code or EXIT_NOT_DRAINED
            self._leftovers.remove()
            self._abandon(code)
        logger.info("stopped, exit code %d", code)
        return code

    def _signal(self, number: int) -> None:
        if self._signalled.is_set():
            self._leftovers.remove()
            os._exit(EXIT_SIGNAL + number)
        self._signalled.set()

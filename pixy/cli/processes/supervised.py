"""A daemon whose signals, pid file and exit code are its supervisor's."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any

from pixy.cli import flags
from pixy.cli.logs import ON_STDERR, configured
from pixy.cli.processes.channel import Channel
from pixy.cli.reloading import Reloader
from pixy.cli.serve import Daemon, make_sandboxes, tune_process
from pixy.config import App
from pixy.config.environment import CONFIG
from pixy.errors import PixyError, in_words

logger = logging.getLogger("pixy")


class SupervisedDaemon(Daemon):
    """A run of the service within a supervised process.

    Args:
        app: its configuration.
        channel: the line to the supervisor.
        reloader: reads everything again on SIGHUP, and when a file has changed.
        announce: print how to use the sandbox.
        wait_for_kafka: wait until the brokers answer, instead of failing to start.
    """

    def __init__(
        self,
        app: App,
        channel: Channel,
        reloader: Reloader,
        *,
        announce: bool = False,
        wait_for_kafka: bool = False,
    ) -> None:
        super().__init__(app, self._leave, reloader, announce=announce, wait_for_kafka=wait_for_kafka)
        self.channel = channel
        self._calls: dict[int, Callable[[], None]] = {}

    def on_signal(self, number: int, call: Callable[..., None], *args: object) -> None:
        """Call a function on a signal to the supervisor from now on."""
        self._calls[number] = lambda: call(*args)

    def signalled(self, number: int) -> None:
        """Do what a signal asks for."""
        call = self._calls.get(number)
        if call is not None:
            call()

    def _leave(self, code: int) -> None:
        self.channel.say("ended", code)
        os._exit(code)


class Life:
    """The life of the daemon in a supervised process, from its command line to its exit code.

    Args:
        channel: the line to the supervisor.
        args: the command line.
        make: makes the daemon from its flags, its configuration and what reads that again.
        adapt: changes what is read, each time that it is.
    """

    def __init__(
        self,
        channel: Channel,
        args: list[str],
        make: Callable[[argparse.Namespace, App, Reloader], SupervisedDaemon],
        adapt: Callable[[App], App] = lambda app: app,
    ) -> None:
        self._channel = channel
        self._args = args
        self._make = make
        self._adapt = adapt
        self.daemon: SupervisedDaemon | None = None
        self._early: list[int] = []
        """Signals that have come before there was a daemon."""

    def signal(self, number: int) -> None:
        """Do what a signal asks for, as soon as there is a daemon."""
        if self.daemon is None:
            self._early.append(number)
        else:
            self.daemon.signalled(number)

    async def run(self) -> int:
        """Run the daemon; tell the supervisor how it ended."""
        code = 1
        with contextlib.ExitStack() as opened:
            try:
                options, app = flags.parse(self._args)
                app = self._adapt(app)
                tune_process()
                os.environ.setdefault("GRPC_VERBOSITY", "NONE")
                opened.enter_context(configured(app.logging))
                # It compares with what was read, which has no addresses of the sandbox.
                reloader = self._reloader(app, options)
                sandboxes = make_sandboxes(app, bool(options.sandbox))
                self.daemon = self._make(options, app, reloader)
                asyncio.get_running_loop().call_soon(self._repeat)
                code = await self.daemon.run()
                del sandboxes
            except (PixyError, OSError, ValueError) as error:
                logger.error("failed to start: %s", in_words(error), extra={ON_STDERR: True})
                self._fail(type(error), in_words(error))
                return code
            except Exception as error:
                logger.exception("failed to start")
                self._fail(type(error), repr(error))
                return code
        self._channel.say("ended", code)
        return code

    def _reloader(self, app: App, options: argparse.Namespace) -> Reloader:
        return Reloader(
            app,
            lambda: self._adapt(flags.parse(self._args)[1]),
            options.config or os.environ.get(CONFIG, ""),
        )

    def _fail(self, kind: type[Any], text: str) -> None:
        self._channel.say("failed", [kind.__name__, text])

    def _repeat(self) -> None:
        for number in self._early:
            self.signal(number)


__all__ = ["Life", "SupervisedDaemon"]

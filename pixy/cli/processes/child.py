"""A process with a daemon in it, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pixy.api.edge import sockets
from pixy.api.listener import split_address
from pixy.cli.processes.channel import VARIABLE, Channel, Host
from pixy.config.model import App
from pixy.errors import ConfigError, StartError

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
PASSED: Final = (signal.SIGHUP, signal.SIGUSR1)
LEAVE: Final = 5.0
"""Seconds that a process may take to end once the daemon in it has; then it is killed."""
SIGNAL: Final = 128
"""Plus the number of the signal: the exit code after a second one."""


class Child:
    """A process with a daemon in it, and the line to it.

    Args:
        process: has been started.
        channel: is open.
    """

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.process = process
        self.channel = channel

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        host: Host,
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
    ) -> Child:
        """Start a process, in a session of its own: Ctrl-C is for the supervisor alone.

        Args:
            command: the program and its arguments.
            host: what the daemon must know; its descriptor is set here.
            environment: variables besides the supervisor's own.
            descriptors: files that the process inherits.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            host = dataclasses.replace(host, descriptor=theirs.fileno())
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **environment, VARIABLE: host.variable()},
                pass_fds=(theirs.fileno(), *descriptors),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        channel = Channel(ours)
        await channel.open()
        return cls(process, channel)

    def how_it_ended(self) -> str:
        """Return the exit code or the signal in words. It has ended."""
        returned = self.process.returncode or 0
        return f"signal {-returned}" if returned < 0 else f"exit code {returned}"

    def kill(self) -> None:
        """End the process at once, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def end(self, within: float = LEAVE) -> None:
        """Terminate the process if it still runs, and wait for its end.

        Args:
            within: seconds until it is killed.
        """
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(within):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()


def failure_of(value: Sequence[str]) -> StartError | ConfigError:
    """Return the error of a daemon that says ``failed``, with the name of its class and its text."""
    name, text = value
    return ConfigError(text) if name == "ConfigError" else StartError(text)


def on_signals(stop: Callable[[int], None], passed: Callable[[int], None]) -> None:
    """Handle the supervisor's signals from now on.

    Args:
        stop: called with the number of a signal that ends the daemon.
        passed: called with the number of one that only the daemon knows.
    """
    loop = asyncio.get_running_loop()
    for number in STOPS:
        loop.add_signal_handler(number, stop, int(number))
    for number in PASSED:
        loop.add_signal_handler(number, passed, int(number))


def tcp_addresses(app: App) -> dict[str, str]:
    """Return the TCP addresses of the APIs by the listener's name; paths of unix sockets are not among them."""
    found = {"grpc": app.grpc_addr, "rest-v1": app.rest.addr, "rest": app.tcp_addr}
    return {name: address for name, address in found.items() if ":" in address}


def check_addresses(addresses: Mapping[str, str]) -> None:
    """Try whether somebody can listen on addresses. Blocks.

    Args:
        addresses: by the listener's name.

    Raises:
        StartError: nobody can listen on one of them.
    """
    for name, address in addresses.items():
        reason = sockets.tcp_refusal(*split_address(address))
        if reason:
            kind = "gRPC server" if name == "grpc" else "TCP based HTTP API server"
            raise StartError(
                f"failed to start {kind}: failed to create listener: listen tcp {address}: {reason}"
            )


__all__ = [
    "LEAVE",
    "PASSED",
    "SIGNAL",
    "STOPS",
    "Child",
    "check_addresses",
    "failure_of",
    "on_signals",
    "tcp_addresses",
]

"""The actor that accepts the connections for one broker."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import Any, Final

from actors import STOP_ON_FAILURE, Actor, ActorRef, SpawnRefused, handles
from pixy.tap.config import Address
from pixy.tap.connection import Connection, TapContext

logger = logging.getLogger("pixy.tap")

_ACCEPTS: Final = 64
"""Connections that are accepted in one go; the loop serves the other connections in between."""
_PAUSE: Final = 0.1
"""Seconds without accepting, after the process ran out of files or reached its limit of connections."""


@dataclass(frozen=True, slots=True)
class _Resume:
    """Accept again after a pause."""


class Listener(Actor):
    """Accept connections for one broker and spawn an actor for each."""

    supervision = STOP_ON_FAILURE

    def __init__(self, server: socket.socket, broker: Address, context: TapContext) -> None:
        super().__init__()
        self._server, self._broker, self._context = server, broker, context
        self._queue, self._limit = context.queue, context.config.bounds.connections
        self._loop = asyncio.get_running_loop()
        self._accepting = False

    def on_start(self) -> None:
        """Start to accept."""
        self._start_accepting()

    @handles(_Resume)
    def _resume(self, _: _Resume) -> None:
        self._start_accepting()

    def on_child_stopped(self, ref: ActorRef[Any]) -> None:
        """Accept again: there is room for another connection."""
        self._queue.connections -= 1
        self._start_accepting()

    def on_stop(self) -> None:
        """Close the socket."""
        self._stop_accepting()
        self._server.close()

    def _start_accepting(self) -> None:
        if not self._accepting and self._server.fileno() >= 0:
            self._accepting = True
            self._loop.add_reader(self._server, self._accept)

    def _stop_accepting(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._server)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            if self._queue.connections >= self._limit:
                # Clients wait in the backlog. A connection of another listener that ends does not wake this one.
                self._pause()
                return
            try:
                client, address = self._server.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Usually the process has no file descriptor left: pause, or the loop would spin.
                logger.warning("%s: cannot accept: %s", self.path, error.strerror)
                self._pause()
                return
            self._spawn(client, address[:2])

    def _pause(self) -> None:
        self._stop_accepting()
        self.set_timer("resume", _PAUSE, _Resume())

    def _spawn(self, client: socket.socket, address: Address) -> None:
        client.setblocking(False)
        number = self._queue.next_number()
        self._queue.connections += 1
        try:
            self.spawn(Connection, client, address, number, self._broker, self._context, name=f"{number}")
        except SpawnRefused:  # the tap stops
            self._queue.connections -= 1
            client.close()


__all__ = ["Listener"]

"""The actor of one client connection."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any

from actors import Actor
from pixy.tap import events
from pixy.tap.broker_ports import BrokerPorts
from pixy.tap.config import Address, TapConfig, show_address
from pixy.tap.conversation import Conversation
from pixy.tap.event_queue import EventQueue
from pixy.tap.relay import Relay, SharedBuffer
from pixy.tap.rewrite import rewrite


@dataclass(frozen=True, slots=True)
class TapContext:
    """The objects that all connections of a tap share."""

    config: TapConfig
    queue: EventQueue
    buffer: SharedBuffer
    ports: BrokerPorts


class Connection(Actor):
    """Connect to the broker, relay until either side ends, and report the end."""

    def __init__(
        self, client: socket.socket, address: Address, number: int, broker: Address, context: TapContext
    ) -> None:
        super().__init__()
        self._client, self._address, self._number, self._broker = client, address, number, broker
        self._context, self._queue = context, context.queue
        self._relay: Relay | None = None
        self._upstream: socket.socket | None = None
        self._ended = False

    def on_start(self) -> None:
        """Report the connection and connect to the broker."""
        client, broker = show_address(self._address), show_address(self._broker)
        self._queue.put(events.Opened(self._number, self._queue.clock(), client, broker))
        self.start_task(self._connect())

    async def _connect(self) -> None:
        broker, timeout = show_address(self._broker), self._context.config.connect_timeout
        try:
            async with asyncio.timeout(timeout):
                self._upstream = await _open(self._broker)
            for each in (self._client, self._upstream):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except TimeoutError:
            self._end(f"no connection to {broker} within {timeout:g} s")
            return
        except OSError as error:
            self._end(f"no connection to {broker}: {(error.strerror or str(error)).lower()}")
            return
        self._run(self._upstream)

    def _run(self, upstream: socket.socket) -> None:
        config, host = self._context.config, self._client.getsockname()[0]
        tap_address = self._context.ports.tap_address
        change = None
        if config.rewrite:

            def change(frame: bytes, key: int, version: int) -> bytes | None:
                return rewrite(frame, key, version, lambda broker, count: tap_address(broker, count, host))

        conversation = Conversation(self._number, self._queue, self._queue.clock, config.bounds, change)
        self._queue.conversations[self._number] = conversation
        self._relay = Relay(
            self._client,
            upstream,
            conversation,
            self._context.buffer,
            self._end,
            rewriting=config.rewrite,
        )
        self._relay.start()

    def _end(self, reason: str) -> None:
        self._report_end(reason)
        self.stop()

    def _report_end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        conversation = self._queue.conversations.pop(self._number, None)
        if conversation is not None:
            conversation.close()
            tally = conversation.tally()
            if tally is not None:
                self._queue.put(tally)
        self._queue.put(events.Closed(self._number, self._queue.clock(), reason))

    def on_stop(self) -> None:
        """Close both sockets."""
        self._report_end("the tap stops")
        if self._relay is not None:
            self._relay.close("the tap stops")
        for each in (self._client, self._upstream):
            if each is not None:
                each.close()

    def on_failure(self, kind: Any, error: Any, trace: Any) -> None:
        """Close both sockets after a defect, so that the client does not wait on a dead connection."""
        self.on_stop()


async def _open(broker: Address) -> socket.socket:
    """Connect to the first of the broker's addresses that accepts."""
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    for family, kind, proto, _, address in await loop.getaddrinfo(*broker, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, proto)
        made.setblocking(False)
        try:
            await loop.sock_connect(made, address)
            return made
        except OSError as error:
            made.close()
            failed = error
        except BaseException:
            made.close()
            raise
    raise failed or OSError(f"{broker[0]} has no address")


__all__ = ["Connection", "TapContext"]

"""The actor of one client connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import Any

from actors import Actor
from pixy.tap import events
from pixy.tap.broker_ports import BrokerPorts
from pixy.tap.config import Address, TapConfig, show_address
from pixy.tap.conversation import Conversation
from pixy.tap.dump_actor import DumpQueue
from pixy.tap.event_queue import EventQueue
from pixy.tap.fast_path import Sampler
from pixy.tap.pipes import SharedBuffer
from pixy.tap.relay import Relay
from pixy.tap.rewrite import rewrite
from pixy.tap.tls import Certificates, shake_hands, why_refused
from pixy.wire.dialing import open_socket


@dataclass(frozen=True, slots=True)
class TapContext:
    """The objects that all connections of a tap share."""

    config: TapConfig
    queue: EventQueue
    buffer: SharedBuffer
    ports: BrokerPorts
    sampler: Sampler
    certificates: Certificates
    dump: DumpQueue | None = None


class _Refused(Exception):
    """The client and the tap do not agree on TLS."""


class Connection(Actor):
    """Shake hands where there is TLS, connect to the broker, relay until either side ends, and report the end."""

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
        self._put(events.Opened(self._number, self._queue.clock(), client, broker))
        self.start_task(self._connect())

    def _put(self, event: events.Opened | events.Closed) -> None:
        self._queue.put(event)
        if self._context.dump is not None:
            self._context.dump.put(event)

    async def _connect(self) -> None:
        broker, timeout = show_address(self._broker), self._context.config.connect_timeout
        try:
            await self._secure_client(timeout)
            async with asyncio.timeout(timeout):
                self._upstream = await open_socket(*self._broker)
                for each in (self._client, self._upstream):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                context = self._context.certificates.for_brokers
                if context is not None:
                    self._upstream = await shake_hands(self._upstream, context, self._broker[0])
        except _Refused as error:
            self._end(str(error))
        except TimeoutError:
            self._end(f"no connection to {broker} within {timeout:g} s", broker)
        except OSError as error:
            self._end(f"no connection to {broker}: {why_refused(error)}", broker)
        else:
            self._run(self._upstream)

    async def _secure_client(self, timeout: float) -> None:
        context = self._context.certificates.for_clients
        if context is None:
            return
        try:
            async with asyncio.timeout(timeout):
                self._client = await shake_hands(self._client, context)
        except TimeoutError:
            raise _Refused(f"no TLS handshake within {timeout:g} s") from None
        except OSError as error:
            raise _Refused(f"TLS with the client: {why_refused(error)}") from error

    def _run(self, upstream: socket.socket) -> None:
        config, host = self._context.config, self._client.getsockname()[0]
        tap_address = self._context.ports.tap_address
        change = None
        if config.rewrite:

            def change(frame: bytes, key: int, version: int) -> bytes | None:
                return rewrite(frame, key, version, lambda broker, count: tap_address(broker, count, host))

        conversation = Conversation(
            self._number,
            self._queue,
            self._queue.clock,
            config.bounds,
            change,
            self._context.sampler,
            config.slow,
            self._context.dump,
        )
        if self._context.dump is not None:
            with contextlib.suppress(OSError):  # one of them has gone already
                ends = self._client.getpeername()[:2], upstream.getpeername()[:2]
                self._context.dump.put(events.Connected(self._number, self._queue.clock(), *ends))
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

    def _end(self, reason: str, unreached: str = "") -> None:
        self._report_end(reason, unreached)
        self.stop()

    def _report_end(self, reason: str, unreached: str = "") -> None:
        if self._ended:
            return
        self._ended = True
        conversation = self._queue.conversations.pop(self._number, None)
        if conversation is not None:
            conversation.close()
            tally = conversation.tally()
            if tally is not None:
                self._queue.put(tally)
        self._put(events.Closed(self._number, self._queue.clock(), reason, unreached))

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


__all__ = ["Connection", "TapContext"]

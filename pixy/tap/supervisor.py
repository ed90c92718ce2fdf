"""The root of the tap's tree: the observer, a listener per broker, and below it an actor per connection."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Final

from actors import Actor, ActorDeadError, ActorError, ActorRef, SpawnRefused, Timeout, handles
from pixy.errors import StartError
from pixy.tap.apis import load_tables
from pixy.tap.broker_ports import BrokerPorts
from pixy.tap.config import Address, TapConfig, show_address
from pixy.tap.connection import TapContext
from pixy.tap.dump_actor import DumpActor, DumpBatch, DumpQueue, DumpTarget, FlushDump
from pixy.tap.event_queue import EventBatch, EventQueue
from pixy.tap.fast_path import Sampler
from pixy.tap.listener import Listener
from pixy.tap.messages import DrainTap, GetView, OpenPorts, Tick
from pixy.tap.observer import Output
from pixy.tap.observer_actor import ObserverActor
from pixy.tap.pipes import SharedBuffer
from pixy.tap.tls import Certificates
from pixy.tap.verify import Verifier

_TICK: Final = 1.0


class Tap(Actor):
    """Open the ports, move events to the observer, and pass requests for views on to it."""

    def __init__(
        self,
        config: TapConfig,
        certificates: Certificates,
        output: Output | None = None,
        dump: DumpTarget | None = None,
    ) -> None:
        super().__init__()
        self._config, self._output, self._certificates = config, output, certificates
        self._dump_target, self._dump = dump, None if dump is None else self._dump_queue(dump)
        self._queue = EventQueue(config.bounds, self._deliver, time.time)
        self._ports = BrokerPorts(config, self._listen)
        self._context = TapContext(
            config,
            self._queue,
            SharedBuffer(),
            self._ports,
            Sampler(config.bounds.decoded),
            certificates,
            self._dump,
        )
        self._observer: ActorRef[ObserverActor]
        self._dumper: ActorRef[DumpActor] | None = None
        self._listeners: list[ActorRef[Listener]] = []

    def on_start(self) -> None:
        """Start the observer."""
        load_tables()
        self._observer = self.spawn(ObserverActor, self._config, self._queue, self._output, name="observer")
        if self._dump_target is not None and self._dump is not None:
            self._dumper = self.spawn(
                DumpActor, self._dump_target, self._dump, self._config.bounds, name="dump"
            )
        if self._config.verify:
            tls = self._certificates
            self.spawn(Verifier, self._config, self._queue, self._observer, tls, name="verifier")
        self.set_timer("tick", _TICK, Tick(), every=_TICK)

    def on_stop(self) -> None:
        """Close the pipes, which the connections share."""
        self._context.buffer.close()

    @handles(OpenPorts)
    def _open_ports(self, _: OpenPorts) -> list[tuple[Address, Address]]:
        return self._ports.start()

    @handles(Tick)
    def _tick(self, message: Tick) -> None:
        self._queue.tally()
        self._observer.notify(message)

    @handles(GetView)
    def _view(self, message: GetView) -> None:
        self._queue.tally()
        self._queue.flush()
        self._observer.forward(message, self.take_reply())

    @handles(DrainTap)
    async def _drain(self, _: DrainTap) -> None:
        for listener in self._listeners:
            await listener.stop(block=False)
        self._queue.flush()
        # If one of them is behind or dead, its last events are not shown.
        with contextlib.suppress(ActorDeadError, ActorError, Timeout):
            await self._observer.ask(Tick(), block=False, timeout=_TICK)
        if self._dump is not None and self._dumper is not None:
            self._dump.flush()
            with contextlib.suppress(ActorDeadError, ActorError, Timeout):
                await self._dumper.ask(FlushDump(), block=False, timeout=_TICK)

    def _deliver(self, batch: EventBatch) -> bool:
        return self._observer.notify(batch)

    def _dump_queue(self, target: DumpTarget) -> DumpQueue:
        def deliver(batch: DumpBatch) -> bool:
            return self._dumper is not None and self._dumper.notify(batch)

        return DumpQueue(target.wanted, self._config.bounds, deliver)

    def _listen(self, server: socket.socket, broker: Address) -> None:
        name = self.free_name(show_address(server.getsockname()[:2]))
        try:
            self._listeners.append(self.spawn(Listener, server, broker, self._context, name=name))
        except SpawnRefused as error:
            server.close()
            raise StartError("the tap stops") from error


__all__ = ["Tap"]

"""The tap's tree: a supervisor, a listener per broker address, an actor per connection, the observer, the views."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from dataclasses import dataclass
from typing import Any

from actors import (
    STOP_ON_FAILURE,
    Actor,
    ActorDeadError,
    ActorError,
    ActorRef,
    ThreadedActor,
    Timeout,
)
from pixy.tap import events
from pixy.tap.config import Address, TapConfig, show_address
from pixy.tap.conversation import Conversation, warm_up
from pixy.tap.event_queue import Batch, Hub
from pixy.tap.listeners import Places
from pixy.tap.observer import Observer, Output
from pixy.tap.relay import Relay, Scratch
from pixy.tap.rewrite import rewrite

logger = logging.getLogger("pixy.tap")

_TICK = 1.0
_ACCEPTS = 64  # in one go: other connections are waiting too
_PAUSE = 0.1  # after the system had no file left


@dataclass(frozen=True, slots=True)
class Listen:
    """To the tap: open the ports. The reply: (where, for which broker) of each; or a StartError."""


@dataclass(frozen=True, slots=True)
class Drain:
    """To the tap: close all ports and connections, and have the observer take in what there is, within a second."""


@dataclass(frozen=True, slots=True)
class Ask:
    """To the observer: a view. The reply is JSON; ``what`` is a key of :data:`VIEWS`."""

    what: str
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Resume:
    """To a listener: accept again."""


VIEWS = ("snapshot", "timeline", "clients", "connections", "topics", "metrics", "table")
TABLE_REBALANCES = 5


class ObserverActor(ThreadedActor):
    """Decodes in a thread of its own, so that forwarding never waits for it."""

    mailbox_capacity = 200
    use_daemon_thread = True

    def __init__(self, config: TapConfig, hub: Hub, output: Output | None) -> None:
        super().__init__()
        self._hub = hub
        self._observer = Observer(config, output)

    def on_receive(self, message: Any) -> Any:
        """A batch, a question, or a tick."""
        if isinstance(message, Batch):
            try:
                for event in message.events:
                    self._observer.take(event)
            finally:
                self._hub.done(message)
            return None
        now = self._hub.clock()
        if isinstance(message, Tick):
            self._observer.tick(now)
            return None
        if isinstance(message, Ask):
            return self._answer(message, now)
        return super().on_receive(message)

    def _answer(self, message: Ask, now: float) -> Any:
        observer = self._observer
        if message.what == "timeline":
            return observer.registry.timeline.to_json(now, message.group)
        if message.what == "clients":
            return observer.inventory.to_json()
        if message.what == "connections":
            return observer.describe_connections(now)
        if message.what == "topics":
            return observer.topics.usage()
        if message.what == "metrics":
            from pixy.tap.metrics import exposition

            return exposition(observer, self._hub.backlog, now)
        found = {**observer.snapshot(now, message.group), "backlog": self._hub.backlog}
        if message.what == "table":
            found["timeline"] = observer.registry.timeline.to_json(now)[-TABLE_REBALANCES:]
            found["clients"] = observer.inventory.to_json()
        return found


class Connection(Actor):
    """One client's connection: connects to the broker, relays, and ends with either side."""

    def __init__(
        self,
        client: socket.socket,
        address: Address,
        number: int,
        broker: Address,
        config: TapConfig,
        hub: Hub,
        scratch: Scratch,
        places: Places,
    ) -> None:
        super().__init__()
        self._client, self._address, self._number, self._broker = client, address, number, broker
        self._config, self._hub, self._scratch, self._places = config, hub, scratch, places
        self._relay: Relay | None = None
        self._upstream: socket.socket | None = None
        self._ended = False

    def on_start(self) -> None:
        """Connect."""
        client, broker = show_address(self._address), show_address(self._broker)
        self._hub.put(events.Opened(self._number, self._hub.clock(), client, broker))
        self.start_task(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._config.connect_timeout):
                self._upstream = await _open(self._broker)
            for each in (self._client, self._upstream):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except TimeoutError:
            self._over(
                f"no connection to {show_address(self._broker)} within {self._config.connect_timeout:g} s"
            )
            return
        except OSError as error:
            self._over(
                f"no connection to {show_address(self._broker)}: {(error.strerror or str(error)).lower()}"
            )
            return
        self._run(self._upstream)

    def _run(self, upstream: socket.socket) -> None:
        host = self._client.getsockname()[0]
        place = self._places.place
        changed = None
        if self._config.rewrite:

            def changed(frame: bytes, key: int, version: int) -> bytes | None:
                return rewrite(frame, key, version, lambda broker, count: place(broker, count, host))

        conversation = Conversation(self._number, self._hub, self._hub.clock, self._config.bounds, changed)
        self._hub.conversations[self._number] = conversation
        self._relay = Relay(
            self._client, upstream, conversation, self._scratch, self._over, rewriting=changed is not None
        )
        self._relay.start()

    def _over(self, reason: str) -> None:
        self._finish(reason)
        self.stop()

    def _finish(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        conversation = self._hub.conversations.pop(self._number, None)
        if conversation is not None:
            conversation.close()
            tally = conversation.tally()
            if tally is not None:
                self._hub.put(tally)
        self._hub.put(events.Closed(self._number, self._hub.clock(), reason))

    def on_stop(self) -> None:
        """Close both sockets."""
        self._finish("the tap stops")
        if self._relay is not None:
            self._relay.close("the tap stops")
        for each in (self._client, self._upstream):
            if each is not None:
                each.close()

    def on_failure(self, kind: Any, error: Any, trace: Any) -> None:
        """A defect: nobody may be left with a connection that nobody serves."""
        self.on_stop()


async def _open(broker: Address) -> socket.socket:
    """A socket that is connected to the broker, by the first of its addresses that answers."""
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


class Listener(Actor):
    """Accepts connections for one broker."""

    supervision = STOP_ON_FAILURE

    def __init__(
        self,
        server: socket.socket,
        broker: Address,
        config: TapConfig,
        hub: Hub,
        scratch: Scratch,
        places: Places,
    ) -> None:
        super().__init__()
        self._server = server
        self._parts = (broker, config, hub, scratch, places)
        self._hub, self._most = hub, config.bounds.connections
        self._loop = asyncio.get_running_loop()
        self._accepting = False

    def on_start(self) -> None:
        """Begin to accept."""
        self._accept_on()

    def on_receive(self, message: Any) -> Any:
        """See :class:`Resume`."""
        if isinstance(message, Resume):
            return self._accept_on()
        return super().on_receive(message)

    def on_child_stopped(self, ref: ActorRef[Any]) -> None:
        """There is room for another connection."""
        self._hub.connections -= 1
        self._accept_on()

    def on_stop(self) -> None:
        """Close the socket."""
        self._accept_off()
        self._server.close()

    def _accept_on(self) -> None:
        if not self._accepting and self._server.fileno() >= 0:
            self._accepting = True
            self._loop.add_reader(self._server, self._accept)

    def _accept_off(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._server)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            if self._hub.connections >= self._most:
                # The others wait in the backlog; other listeners' ends do not wake this one.
                self._pause()
                return
            try:
                client, address = self._server.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No file left, as a rule: try again, without a loop that does nothing else.
                logger.warning("%s: cannot accept: %s", self.path, error.strerror)
                self._pause()
                return
            self._take(client, address[:2])

    def _pause(self) -> None:
        self._accept_off()
        self.set_timer("resume", _PAUSE, Resume())

    def _take(self, client: socket.socket, address: Address) -> None:
        client.setblocking(False)
        number = self._hub.next_number()
        self._hub.connections += 1
        self.spawn(Connection, client, address, number, *self._parts, name=f"{number}")


class Tap(Actor):
    """The supervisor."""

    def __init__(self, config: TapConfig, output: Output | None = None) -> None:
        super().__init__()
        self._config, self._output = config, output
        self._scratch = Scratch()
        self._hub = Hub(config.bounds, self._deliver, time.time)
        self._places = Places(config, self._open)
        self._observer: ActorRef[ObserverActor]
        self._listeners: list[ActorRef[Listener]] = []

    def on_start(self) -> None:
        """Start the observer."""
        warm_up()
        self._observer = self.spawn(ObserverActor, self._config, self._hub, self._output, name="observer")
        self.set_timer("tick", _TICK, Tick(), every=_TICK)

    async def on_receive(self, message: Any) -> Any:
        """See :class:`Listen`, :class:`Drain`; an :class:`Ask` goes to the observer."""
        if isinstance(message, Listen):
            return self._places.start()
        if isinstance(message, Tick):
            self._hub.tally()
            self._observer.notify(message)
            return None
        if isinstance(message, Ask):
            self._hub.tally()
            self._hub.flush()
            self._observer.forward(message, self.take_reply())
            return None
        if isinstance(message, Drain):
            return await self._drain()
        return super().on_receive(message)

    async def _drain(self) -> None:
        for listener in self._listeners:
            await listener.stop(block=False)
        self._hub.flush()
        try:
            await self._observer.ask(Tick(), block=False, timeout=_TICK)
        except (ActorDeadError, ActorError, Timeout):
            pass  # it is behind: what it has not seen is not told

    def _deliver(self, batch: Batch) -> bool:
        return self._observer.notify(batch)

    def _open(self, server: socket.socket, broker: Address) -> None:
        name = self.free_name(f"{show_address(server.getsockname()[:2])}")
        self._listeners.append(
            self.spawn(
                Listener,
                server,
                broker,
                self._config,
                self._hub,
                self._scratch,
                self._places,
                name=name,
            )
        )

"""The root of the actor tree: starts the clusters and the listeners, drains and stops them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from actors import ESCALATE, Actor, ActorRef, Request, handles
from pixy.config.model import App
from pixy.engine.cluster import Cluster
from pixy.engine.cluster_messages import DrainCluster, Reach
from pixy.errors import PixyError, StartError

logger = logging.getLogger("pixy.engine")

ListenerSpec = tuple[type[Actor], tuple[Any, ...], str]
"""A listener's actor class, its constructor's arguments, and its name in the tree."""


@dataclass(frozen=True, slots=True)
class Start(Request[dict[str, ActorRef[Cluster]]]):
    """Connect to the clusters. The reply is their refs by name, or a StartError."""


@dataclass(frozen=True, slots=True)
class Listen(Request[dict[str, str]]):
    """Start the listeners. The reply is the address of each by name, or a StartError."""

    listeners: tuple[ListenerSpec, ...]


@dataclass(frozen=True, slots=True)
class Shutdown(Request[int]):
    """Drain the clusters while the listeners still answer, then stop the listeners.

    The reply is the number of produced messages that were given up.
    """


@dataclass(frozen=True, slots=True)
class Bind(Request[str]):
    """To a listener: open the socket and serve. The reply is the address, or a StartError."""


@dataclass(frozen=True, slots=True)
class Draining(Request[None]):
    """To a listener: the daemon is about to stop. Keep answering, but report it to health checks."""


@dataclass(frozen=True, slots=True)
class Reload(Request[None]):
    """To a listener, or to the service for all of them: read the certificates again. The reply may be a StartError."""


class Service(Actor):
    """Root supervisor. A cluster that fails too often, or a listener that fails, ends the process."""

    def __init__(self, config: App) -> None:
        super().__init__()
        self._config = config
        self._clusters: dict[str, ActorRef[Cluster]] = {}
        self._listeners: list[ActorRef[Any]] = []

    def on_start(self) -> None:
        """Start the clusters, which connect in the background."""
        for name, proxy in self._config.proxies.items():
            self._clusters[name] = self.spawn(
                Cluster, name, proxy, self._config.rest.node_id, name=self.free_name(name)
            )

    @handles(Start)
    async def _start(self, _message: Start) -> None:
        answer = self.take_reply()
        reached = [ref.ask(Reach(), block=False) for ref in self._clusters.values()]
        try:
            for reply in reached:
                await reply
        except PixyError as error:
            answer.try_fail(error)  # a person's mistake, which needs no traceback
        else:
            answer.try_set(self._clusters)

    @handles(Listen)
    async def _listen(self, message: Listen) -> None:
        reply = self.take_reply()
        try:
            reply.try_set(await self._bind(message))
        except PixyError as error:
            reply.try_fail(error)

    async def _bind(self, message: Listen) -> dict[str, str]:
        addresses: dict[str, str] = {}
        for actor_class, args, name in message.listeners:
            ref = self.spawn(actor_class, *args, name=self.free_name(name), supervision=ESCALATE)
            self._listeners.append(ref)
            try:
                addresses[name] = await ref.ask(Bind(), block=False)
            except PixyError:
                raise
            except Exception as error:
                raise StartError(f"failed to start {name}: {error}") from error
            logger.info("%s: serving %s on %s", self.path, name, addresses[name])
        return addresses

    @handles(Reload)
    async def _reload(self, _message: Reload) -> None:
        reply = self.take_reply()
        try:
            for asked in [listener.ask(Reload(), block=False) for listener in self._listeners]:
                await asked
        except PixyError as error:
            reply.try_fail(error)
        else:
            reply.try_set(None)

    @handles(Shutdown)
    async def _shutdown(self, _message: Shutdown) -> int:
        lost = 0
        for listener in self._listeners:
            await listener.ask(Draining(), block=False)
        drained = [ref.ask(DrainCluster(), block=False) for ref in self._clusters.values()]
        for reply in drained:
            lost += await reply
        for listener in reversed(self._listeners):
            await listener.stop(block=False)
        return lost

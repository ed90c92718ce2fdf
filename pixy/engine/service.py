"""The root of the tree: starts the clusters and the listeners, drains and stops them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actors import ESCALATE, Actor, ActorRef
from pixy.config.model import App
from pixy.engine.cluster import Cluster, DrainCluster, Reach
from pixy.errors import PixyError, StartError

logger = logging.getLogger("pixy.engine")

ListenerSpec = tuple[type[Actor], tuple[Any, ...], str]
"""A listener's actor class, its constructor's arguments, and its name in the tree."""


@dataclass(frozen=True, slots=True)
class Start:
    """Connect to the clusters. The reply: name to ``ActorRef[Cluster]``, or a StartError."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Start the listeners. The reply: name to the address that each serves on, or a StartError."""

    listeners: tuple[ListenerSpec, ...]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Drain the clusters while the listeners still answer, then stop the listeners.

    The reply: how many produced messages were given up.
    """


@dataclass(frozen=True, slots=True)
class Bind:
    """To a listener: open the socket and serve. The reply is the address, or a StartError."""


@dataclass(frozen=True, slots=True)
class Draining:
    """To a listener: the end is near; go on answering, but say so to whoever asks for health."""


class Service(Actor):
    """Root supervisor. A cluster that fails too often, or a listener that dies, ends the process."""

    def __init__(self, config: App) -> None:
        super().__init__()
        self._config = config
        self._clusters: dict[str, ActorRef[Cluster]] = {}
        self._listeners: list[ActorRef[Any]] = []

    def on_start(self) -> None:
        """Make the clusters; they connect in the background."""
        for name, proxy in self._config.proxies.items():
            self._clusters[name] = self.spawn(
                Cluster, name, proxy, self._config.rest.node_id, name=self.free_name(name)
            )

    async def on_receive(self, message: Any) -> Any:
        """See the messages of this module."""
        if isinstance(message, Start):
            return await self._start()
        if isinstance(message, Listen):
            return await self._listen(message.listeners)
        if isinstance(message, Shutdown):
            return await self._shutdown()
        return super().on_receive(message)

    async def _start(self) -> dict[str, ActorRef[Cluster]]:
        reached = [ref.ask(Reach(), block=False) for ref in self._clusters.values()]
        for reply in reached:
            await reply
        return self._clusters

    async def _listen(self, listeners: Sequence[ListenerSpec]) -> dict[str, str]:
        addresses: dict[str, str] = {}
        for actor_class, args, name in listeners:
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

    async def _shutdown(self) -> int:
        lost = 0
        for listener in self._listeners:
            await listener.ask(Draining(), block=False)
        drained = [ref.ask(DrainCluster(), block=False) for ref in self._clusters.values()]
        for reply in drained:
            lost += await reply or 0
        for listener in reversed(self._listeners):
            await listener.stop(block=False)
        return lost

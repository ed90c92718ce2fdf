"""The root of the actor tree: starts the clusters and the listeners, drains and stops them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from actors import (
    ESCALATE,
    Actor,
    ActorDeadError,
    ActorRef,
    Backoff,
    Future,
    Intensity,
    Request,
    Supervision,
    handles,
)
from pixy.config.model import App, Proxy
from pixy.engine.cluster import Cluster
from pixy.engine.cluster_messages import DrainCluster, GivenUp, Reach
from pixy.engine.counters import ClusterCounters
from pixy.errors import PixyError, ShuttingDown, StartError

logger = logging.getLogger("pixy.engine")

_FOR_EVER = Supervision(
    intensity=Intensity(restarts=1_000_000, window=1.0), backoff=Backoff(first=1.0, most=30.0)
)
"""An identity that fails is restarted, and never ends the service."""

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
class Shutdown(Request[None]):
    """Drain the clusters while the listeners still answer, then stop the listeners.

    Attributes:
        within: seconds after which produced messages are given up, unless ``producer.shutdown_timeout`` is over before.
        given_up: counts them.
    """

    within: float
    given_up: GivenUp


@dataclass(frozen=True, slots=True)
class Bind(Request[str]):
    """To a listener: open the socket and serve. The reply is the address, or a StartError."""


@dataclass(frozen=True, slots=True)
class Draining(Request[None]):
    """To a listener: the daemon is about to stop. Keep answering, but report it to health checks."""


@dataclass(frozen=True, slots=True)
class Retire(Request[None]):
    """To a listener, or to the service for all of them: leave the address to another worker.

    No more connections are accepted, and those that there are end once their requests are answered. The reply comes when they have, or
    after ``within`` seconds.
    """

    within: float


@dataclass(frozen=True, slots=True)
class Reload(Request[None]):
    """To a listener, or to the service for all of them: read the certificates again. The reply may be a StartError."""


@dataclass(frozen=True, slots=True)
class OpenIdentity(Request[ActorRef[Cluster]]):
    """Start a cluster's actor for one of its identities. The reply is its ref.

    Attributes:
        cluster: its name.
        identity: the identity's.
        proxy: the cluster's configuration with the credentials of the identity.
    """

    cluster: str
    identity: str
    proxy: Proxy


@dataclass(frozen=True, slots=True)
class CloseIdentity(Request[None]):
    """Drain and stop what :class:`OpenIdentity` has started. The reply comes when it has stopped."""

    ref: ActorRef[Cluster]


class Service(Actor):
    """Root supervisor. A cluster that fails too often, or a listener that fails, ends the process.

    Args:
        config: the whole configuration.
        counters: of each cluster.
    """

    def __init__(self, config: App, counters: Mapping[str, ClusterCounters]) -> None:
        super().__init__()
        self._counters = counters
        self._config = config
        self._clusters: dict[str, ActorRef[Cluster]] = {}
        self._identities: dict[ActorRef[Cluster], None] = {}
        self._listeners: list[ActorRef[Any]] = []
        self._draining = False

    def on_start(self) -> None:
        """Start the clusters, which connect in the background."""
        for name, proxy in self._config.proxies.items():
            self._clusters[name] = self.spawn(
                Cluster,
                name,
                proxy,
                self._config.rest.node_id,
                counters=self._counters[name],
                name=self.free_name(name),
            )

    @handles(OpenIdentity)
    def _open_identity(self, message: OpenIdentity) -> ActorRef[Cluster]:
        if self._draining:
            raise ShuttingDown
        ref = self.spawn(
            Cluster,
            message.cluster,
            message.proxy,
            self._config.rest.node_id,
            self._config.proxies[message.cluster],
            self._counters[message.cluster].without_statistics(),
            name=self.free_name(f"{message.cluster}@{message.identity}"),
            supervision=_FOR_EVER,
        )
        self._identities[ref] = None
        logger.info("%s: cluster %s is used as %s", self.path, message.cluster, message.identity)
        return ref

    @handles(CloseIdentity)
    def _close_identity(self, message: CloseIdentity) -> None:
        self._identities.pop(message.ref, None)
        self.start_task(self._close(message.ref, self.take_reply()))

    async def _close(self, ref: ActorRef[Cluster], reply: Future[Any]) -> None:
        try:
            await ref.ask(DrainCluster(), block=False)
            await ref.stop(block=False)
        except (ActorDeadError, PixyError) as error:
            logger.info("%s: %s: %s", self.path, ref, error)
        reply.try_set(None)

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

    @handles(Retire)
    def _retire(self, message: Retire) -> None:
        asked = [listener.ask(message, block=False) for listener in self._listeners]
        self.start_task(_all(asked, self.take_reply()))

    @handles(Shutdown)
    async def _shutdown(self, message: Shutdown) -> None:
        self._draining = True
        for listener in self._listeners:
            with suppress(ActorDeadError):  # whatever fails now, the others drain
                await listener.ask(Draining(), block=False)
        clusters = (*self._clusters.values(), *self._identities)
        drain = DrainCluster(message.within, message.given_up)
        drained = [ref.ask(drain, block=False) for ref in clusters]
        for reply in drained:
            with suppress(ActorDeadError):
                await reply
        for listener in reversed(self._listeners):
            await listener.stop(block=False)


async def _all(asked: Sequence[Awaitable[None]], reply: Future[None]) -> None:
    for each in asked:
        with suppress(ActorDeadError):
            await each
    reply.try_set(None)

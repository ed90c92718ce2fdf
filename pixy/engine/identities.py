"""The Kafka identities of callers: each has Kafka clients of its own, and Kafka's ACLs see it instead of the daemon.

A cluster actor has all the clients of one cluster: the producer, the requests for metadata and offsets, the readers by
offset, groups and consumer instances. So an identity is one more cluster actor, with other SASL credentials: what callers of
different identities do never meets in a client. Identities are opened by their first request, and closed again when they
have nothing to do for a while; there are at most ``identities.max`` of them in a cluster.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from actors import ActorDeadError, ActorRef
from pixy.auth.patterns import Who
from pixy.auth.principal import Principal
from pixy.config.model import Proxy
from pixy.config.security import OWN
from pixy.engine.client import ClusterClient
from pixy.engine.workers import Strays
from pixy.errors import ConfigError, Forbidden, Limited, PixyError

logger = logging.getLogger("pixy.engine")

_LOOKS: Final = 2
"""The number of times that idle identities are looked for within ``idle_timeout``."""

Open = Callable[[str, Proxy], Awaitable[ActorRef[Any]]]
"""Starts the actor of an identity, by its name and configuration."""
Idle = Callable[[ActorRef[Any]], Awaitable[bool]]
"""Tells whether the actor of an identity has nothing to do."""
Close = Callable[[ActorRef[Any]], Awaitable[None]]
"""Ends the actor of an identity."""


def proxy_as(proxy: Proxy, name: str) -> Proxy:
    """Return the configuration of a cluster for one of its identities.

    Args:
        proxy: the cluster's.
        name: of the identity.
    """
    identity = proxy.identities.users[name]
    sasl = dataclasses.replace(proxy.net.sasl, user=identity.user or name, password=identity.password)
    consumer = proxy.consumer
    if consumer.group_instance_id:  # two members of a group may not have the same
        consumer = dataclasses.replace(consumer, group_instance_id=f"{consumer.group_instance_id}.{name}")
    return dataclasses.replace(
        proxy,
        client_id=f"{proxy.client_id}.{name}",
        net=dataclasses.replace(proxy.net, sasl=sasl),
        consumer=consumer,
    )


class _Opening:
    """Stands for a cluster actor that the first request starts."""

    def __init__(self, start: Callable[[], Awaitable[ActorRef[Any]]]) -> None:
        self._start = start
        self._starting: asyncio.Task[ActorRef[Any]] | None = None
        self.ref: ActorRef[Any] | None = None

    async def ask(self, request: Any, *, block: bool = False) -> Any:
        """See :class:`actors.ActorRef`."""
        ref = self.ref
        if ref is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.get_running_loop().create_task(self._open())
            # A client that goes away does not end the start: nobody would know the actor then.
            ref = await asyncio.shield(self._starting)
        return await ref.ask(request, block=block)

    async def _open(self) -> ActorRef[Any]:
        self.ref = await self._start()
        return self.ref


@dataclasses.dataclass(slots=True)
class _Identity:
    client: ClusterClient
    opening: _Opening
    used: float


class Identities:
    """The identities of one cluster. For one event loop.

    Args:
        cluster: its name.
        proxy: its configuration, with identities.
        groups: ``auth.groups``.
        start: starts the actor of an identity.
        idle: whether it has nothing to do.
        close: ends it.
        stopping: whether the engine stops.
        clock: seconds.
        strays: acknowledges for an identity what other workers have delivered.

    Raises:
        ConfigError: a pattern is wrong.
    """

    def __init__(
        self,
        cluster: str,
        proxy: Proxy,
        groups: Mapping[str, Sequence[str]],
        start: Open,
        idle: Idle,
        close: Close,
        stopping: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        strays: Callable[[str], Strays | None] = lambda _identity: None,
    ) -> None:
        self._strays = strays
        self._cluster = cluster
        self._proxy = proxy
        self._config = proxy.identities
        self._start = start
        self._idle = idle
        self._close = close
        self._stopping = stopping
        self._clock = clock
        self._open: dict[str, _Identity] = {}
        self._closing = 0
        self._one_closes = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self.regroup(groups)()

    def regroup(self, groups: Mapping[str, Sequence[str]]) -> Callable[[], None]:
        """Read who has which identity, with other groups.

        Args:
            groups: ``auth.groups``.

        Returns:
            A function that makes them count.

        Raises:
            ConfigError: a pattern is wrong.
        """
        found: list[tuple[Who, str]] = []
        for name, each in self._config.users.items():
            try:
                found.append((Who(each.who, groups), name))
            except ConfigError as error:
                raise ConfigError(f"proxies.{self._cluster}.identities.users.{name}: {error}") from None

        def use() -> None:
            self._who = found

        return use

    def client(self, principal: Principal) -> ClusterClient | None:
        """Return the operations on the cluster as a principal's identity; None: as the daemon itself.

        Args:
            principal: who calls.

        Raises:
            Forbidden: he has no identity, and may not use the daemon's (``identities.others``).
            Limited: ``identities.max`` others are in use.
        """
        name = next((name for who, name in self._who if who(principal)), None)
        if name is None:
            if self._config.others == OWN:
                return None
            raise Forbidden(f"{principal.name} has no Kafka identity in cluster {self._cluster}")
        found = self._open.get(name)
        if found is None:
            if len(self._open) + self._closing >= self._config.max:
                self.look()
                raise Limited("all Kafka identities are in use (`identities.max`)")
            proxy = proxy_as(self._proxy, name)
            opening = _Opening(lambda: self._start(name, proxy))
            client = ClusterClient(opening, proxy, self._stopping, self._strays(name))
            found = self._open[name] = _Identity(client, opening, 0.0)
        found.used = self._clock()
        return found.client

    def opened(self, name: str) -> ClusterClient | None:
        """Return the operations on the cluster as an identity; None: nobody uses it at present."""
        found = self._open.get(name)
        return None if found is None else found.client

    def refs(self) -> list[ActorRef[Any]]:
        """Return the actors of the identities that are in use."""
        return [each.opening.ref for each in self._open.values() if each.opening.ref is not None]

    def look(self) -> None:
        """Begin to close identities that have had nothing to do for ``idle_timeout``."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self.close_idle())

    async def close_idle(self) -> None:
        """Close identities that have had nothing to do for ``idle_timeout``."""
        async with self._one_closes:
            await self._close_idle()

    async def _close_idle(self) -> None:
        oldest = self._clock() - self._config.idle_timeout
        for name, identity in tuple(self._open.items()):
            ref = identity.opening.ref
            try:
                if identity.used > oldest or not (ref is None or await self._idle(ref)):
                    continue
                if identity.used > oldest:
                    continue  # a request came meanwhile
                del self._open[name]
                self._closing += 1  # it counts until its clients are gone
                try:
                    if ref is not None:
                        await self._close(ref)
                finally:
                    self._closing -= 1
            except (PixyError, ActorDeadError) as error:
                logger.warning("%s as %s: closing failed: %s", self._cluster, name, error)

    async def keep_closing(self) -> None:
        """Close what is idle, until cancelled."""
        while True:
            await asyncio.sleep(self._config.idle_timeout / _LOOKS)
            await self.close_idle()


__all__ = ["Identities", "proxy_as"]

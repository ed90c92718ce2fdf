"""The engine as one object: start it, use its clusters, stop it. Programs embed it; APIs serve it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from actors import ESCALATE, ActorDeadError, ActorRef, ActorSystem
from pixy.auth.authenticator import Authenticator
from pixy.config.model import App
from pixy.engine.access_log import access_log_of
from pixy.engine.client import ClusterClient
from pixy.engine.cluster import Cluster
from pixy.engine.cluster_messages import GivenUp, IsIdle
from pixy.engine.counters import ClusterCounters
from pixy.engine.diagnostics import Diagnostics
from pixy.engine.guard import Guard
from pixy.engine.guarded import AnyCluster, GuardedCluster
from pixy.engine.identities import Identities
from pixy.engine.inspector import Inspector
from pixy.engine.life.lives import Lives
from pixy.engine.message_spans import MessageSpans
from pixy.engine.meter import Meter
from pixy.engine.operator import Operator
from pixy.engine.service import (
    CloseIdentity,
    Listen,
    ListenerSpec,
    OpenIdentity,
    Reload,
    Retire,
    Service,
    Shutdown,
    Start,
)
from pixy.engine.workers import Siblings, Stray, Strays
from pixy.errors import ConfigError, NotConsumed, PixyError, StartError, UnknownCluster, needs_extra
from pixy.kafka.statistics import Statistics

logger = logging.getLogger("pixy.engine")

_TO_TELL: Final = 1.0
"""Seconds of ``shutdown_timeout``, at most half of it, that are kept to name and count the messages that are given up."""


@dataclass(frozen=True, slots=True)
class StopResult:
    """The outcome of a stop.

    Attributes:
        lost_messages: produced messages that were given up.
        left: paths of actors that were still busy.
        drained: whether the drain ended in time.
    """

    lost_messages: int = 0
    left: tuple[str, ...] = ()
    drained: bool = True

    @property
    def clean(self) -> bool:
        """True if the drain ended in time, no message was given up and no actor was left."""
        return self.drained and not self.lost_messages and not self.left


class Engine:
    """``async with Engine(config) as engine: await engine.cluster().produce("t", b"v")``."""

    def __init__(self, config: App, siblings: Siblings | None = None) -> None:
        self.config = config
        self._siblings = siblings
        self.stopping = False
        self._began = time.monotonic()
        self.guard = Guard(config) if config.auth.enabled else None
        """Decides who may do what; None without ``auth``."""
        self.access_log = access_log_of(config)
        """Takes a line for each request; None without ``access_log.path``."""
        watched = bool(config.admin_addr)
        self.meter = Meter() if watched else None
        """Counts requests; None without ``admin_addr``."""
        self.counters = {name: ClusterCounters(Statistics() if watched else None) for name in config.proxies}
        """What has happened so far, by cluster."""
        self.spans = _spans_of(config)
        """Makes spans of messages; none without ``tracing.export.endpoint``."""
        self.addresses: dict[str, str] = {}
        """The listeners' addresses by name, with the actual port where the configuration says 0."""
        self.diagnostics: Diagnostics
        """Watches the actors; set by :meth:`start`."""
        self._system: ActorSystem
        self._service: ActorRef[Service]
        self._clusters: dict[str, ClusterClient] = {}
        self._actors: dict[str, ActorRef[Cluster]] = {}
        self._identities: dict[str, Identities] = {}
        """The Kafka identities of callers, by cluster; of those clusters that have any."""
        self._closing: list[asyncio.Task[None]] = []
        if self.guard is not None:
            self._make_identities()

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    @property
    def uptime(self) -> float:
        """Seconds since this engine was made."""
        return time.monotonic() - self._began

    @property
    def system(self) -> ActorSystem:
        """The engine's actor system."""
        return self._system

    async def start(self, listeners: Sequence[ListenerSpec] = ()) -> None:
        """Connect to all clusters, then open the listeners.

        Raises:
            StartError: a cluster or a listener failed; nothing keeps running.
        """
        if self.access_log is not None:
            self.access_log.start()
        if self.guard is not None:
            self.guard.start()
        settings = self.config.diagnostics
        self._system = ActorSystem("pixy", slow_handler=settings.slow_handler)
        self.diagnostics = Diagnostics(self._system, settings, getattr(self.spans, "provider", None))
        self.diagnostics.start()
        self._service = self._system.spawn(
            Service, self.config, self.counters, name="service", supervision=ESCALATE
        )
        try:
            clusters = await self._service.ask(Start(), block=False)
            # Before the listeners start, so that the first request finds the clusters.
            self._clusters.update(
                {
                    name: ClusterClient(
                        ref, self.config.proxies[name], lambda: self.stopping, self._strays(name)
                    )
                    for name, ref in clusters.items()
                }
            )
            self._actors.update(clusters)
            self._closing = [asyncio.create_task(each.keep_closing()) for each in self._identities.values()]
            self.addresses = await self._service.ask(Listen(tuple(listeners)), block=False)
        except ActorDeadError as error:
            cause = self._system.failure.result() if self._system.failure.done() else error
            await self._stopped()
            raise StartError(str(cause)) from error
        except BaseException:
            await self._system.stop()
            await self._stopped()
            raise

    def inspector(self) -> Inspector:
        """Return what looks into the running engine: for the admin listener, which checks rights by itself."""
        return Inspector(self._actors, self._clusters, self._identity_actors)

    def operator(self) -> Operator:
        """Return what acts on the running engine: for the admin listener, which checks rights by itself."""
        return Operator(self.inspector(), self.counters, self._clusters, self._system, self.diagnostics)

    def lives(self) -> Lives:
        """Return what tells lives of messages. It checks the rights of the caller of each request."""
        return Lives(self.inspector(), self.guard, self.config, self._system.loop.time)

    def cluster(self, name: str = "") -> AnyCluster:
        """Return a cluster as the caller of this request may use it.

        Args:
            name: as configured; empty: the default one.

        Raises:
            UnknownCluster: there is none of this name.
            Unauthenticated: ``auth`` is on, and nobody was recognized.
            Forbidden: the caller may do nothing in a cluster of this name, whether there is one or not.
        """
        if self.guard is not None:
            return self._guarded(self.guard, name or self.config.cluster_name(""))
        client = self._clusters.get(name or self.config.cluster_name(""))
        if client is None:
            raise UnknownCluster(name)
        return client

    def _guarded(self, guard: Guard, name: str) -> GuardedCluster:
        caller = guard.caller()
        guard.admit(caller, name)
        client = self._clusters.get(name)
        if client is None:
            raise UnknownCluster(name)
        identities = self._identities.get(name)
        if identities is not None:
            try:
                client = identities.client(caller.principal) or client
            except PixyError as error:
                guard.note_refusal(caller, name, error)
                raise
        return GuardedCluster(client, guard, caller, name)

    def _identity_actors(self, cluster: str) -> list[ActorRef[Cluster]]:
        identities = self._identities.get(cluster)
        return [] if identities is None else identities.refs()

    def _strays(self, cluster: str, identity: str = "") -> Strays | None:
        return None if self._siblings is None else Strays(self._siblings, cluster, identity)

    async def ack_here(self, stray: Stray) -> None:
        """Acknowledge a message that this process has delivered, for another worker, which has checked the caller's rights.

        Raises:
            PixyError: it has not, or no longer holds it.
        """
        client: ClusterClient | None = self._clusters.get(stray.cluster)
        if stray.identity:
            identities = self._identities.get(stray.cluster)
            client = None if identities is None else identities.opened(stray.identity)
        if client is None:
            raise NotConsumed(stray.group, stray.topic, stray.partition)
        await client.ack_here(stray.topic, stray.group, stray.partition, stray.offset)

    def _make_identities(self) -> None:
        for name, proxy in self.config.proxies.items():
            if proxy.identities.users:
                self._identities[name] = Identities(
                    name,
                    proxy,
                    self.config.auth.groups,
                    lambda identity, made, name=name: self._service.ask(  # type: ignore[misc]
                        OpenIdentity(name, identity, made), block=False
                    ),
                    lambda ref: ref.ask(IsIdle(), block=False),
                    lambda ref: self._service.ask(CloseIdentity(ref), block=False),
                    lambda: self.stopping,
                    strays=lambda identity, name=name: self._strays(name, identity),  # type: ignore[misc]
                )

    def reload_rules(self, config: App) -> None:
        """Use the rules, limits and groups of callers of a configuration from now on. Any thread may call.

        Raises:
            ConfigError: one of them is wrong, or would open the daemon (:meth:`pixy.engine.guard.Guard.reload`); all stay
                as they were.
        """
        if self.guard is not None:
            regrouped = [each.regroup(config.auth.groups) for each in self._identities.values()]
            self.guard.reload(config)
            for use in regrouped:
                use()

    async def read_keys(
        self, read: Callable[[Authenticator], Callable[[], None]] = Authenticator.read
    ) -> Callable[[], None]:
        """Read the files of API keys and of tokens' keys again.

        Args:
            read: reads both or one of them.

        Returns:
            A function that makes them count.

        Raises:
            ConfigError: a file cannot be read, or is empty and was not.
        """
        if self.guard is None:
            return lambda: None
        return await asyncio.to_thread(read, self.guard.authenticator)

    def reopen_logs(self) -> None:
        """Go on with audit log and access log in new files: the earlier ones were renamed."""
        if self.guard is not None and self.guard.audit is not None:
            self.guard.audit.reopen()
        if self.access_log is not None:
            self.access_log.reopen()

    async def reload_certificates(self) -> None:
        """Read the listeners' certificates again. Raises StartError, and then the earlier ones stay in use."""
        await self._service.ask(Reload(), block=False)

    async def retire(self, within: float) -> None:
        """Leave the addresses to another worker: accept no more connections, and wait for the ends of those that there are.

        Args:
            within: seconds of the longest wait.
        """
        await self._service.ask(Retire(within), block=False)

    async def failed(self) -> Exception:
        """Wait until the service fails for good. Return the error."""
        return await asyncio.shield(self._system.failure)

    async def stop(self) -> StopResult:
        """Flush producers, take acks and commit within ``shutdown_timeout``, then stop all actors."""
        self.stopping = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.shutdown_timeout
        given_up, drained = GivenUp(), False
        # What is given up is to be told within the time, too.
        within = max(self.config.shutdown_timeout / 2, self.config.shutdown_timeout - _TO_TELL)
        try:
            async with asyncio.timeout_at(deadline):
                await self._service.ask(Shutdown(within, given_up), block=False)
            drained = True
        except TimeoutError:
            logger.error("draining took longer than shutdown_timeout, giving up")
        except ActorDeadError:
            pass
        report = await self._system.stop(max(1.0, deadline - loop.time()))
        await self._stopped()
        return StopResult(given_up.messages, report.left, drained)

    async def _stopped(self) -> None:
        for task in self._closing:
            task.cancel()
        self.diagnostics.stop()
        await self.spans.stop()
        if self.guard is not None:
            await self.guard.stop()
        if self.access_log is not None:
            await asyncio.to_thread(self.access_log.stop)


def _spans_of(config: App) -> MessageSpans:
    """Return what makes spans. Raises ConfigError if the extra ``otel`` is missing."""
    if not config.tracing.export.endpoint:
        return MessageSpans()
    try:
        from pixy.engine.otel_spans import OTelSpans
    except ImportError as error:
        raise ConfigError(needs_extra("tracing.export", "otel", error)) from error
    return OTelSpans(config, random.Random())

"""One Kafka cluster: the parent of its topics' producers, its groups, and the actors that serve the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from actors import (
    Actor,
    ActorDeadError,
    ActorRef,
    Backoff,
    Future,
    Intensity,
    MailboxFull,
    Supervision,
    handles,
)
from pixy.config.model import Proxy
from pixy.engine.admin import Admin, Catalogue
from pixy.engine.admin_messages import AdminRequest, HasCommits, HasMembers
from pixy.engine.cluster_messages import (
    ClusterView,
    DrainCluster,
    GetAdmin,
    GetFetcher,
    GetGroup,
    GetInstances,
    GetProducer,
    GroupRefs,
    HoldGroup,
    IsIdle,
    KnownGroups,
    LetGroupGo,
    OwnGroups,
    Reach,
    ViewCluster,
)
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.consume.group_messages import GroupLeaving, GroupStarted, Leave, Owned
from pixy.engine.consume.groups import Groups
from pixy.engine.counters import ClusterCounters
from pixy.engine.fetcher import Fetcher
from pixy.engine.instances.messages import InstanceSpec
from pixy.engine.instances.registry import CloseInstances, CountInstances, Instances
from pixy.engine.journal import writer
from pixy.engine.journal.buffer import Journal
from pixy.engine.produce.messages import DeliveryReports, DrainProducer
from pixy.engine.produce.partitioner import LIBRDKAFKA_PARTITIONER
from pixy.engine.produce.pending_records import ProducerLife
from pixy.engine.produce.settling import Settler
from pixy.engine.produce.topic_producer import TopicProducer
from pixy.engine.producers import Producers
from pixy.engine.topic_lookups import TopicLookups
from pixy.errors import (
    Disabled,
    InvalidParameter,
    KafkaError,
    StartError,
    Unavailable,
)
from pixy.kafka import settings
from pixy.kafka.errors import OUT_OF_BROKERS
from pixy.kafka.fetcher import FetchClient
from pixy.kafka.producer import ProducerClient
from pixy.kafka.producer_clients import ProducerClients
from pixy.kafka.producer_messages import Report
from pixy.kafka.record_headers import HeaderReader
from pixy.membership import Event, Session
from pixy.membership.instances import Earlier, InstanceEvent, InstanceSession
from pixy.membership.kafka.beginnings import Memory
from pixy.membership.kafka.instance import KafkaInstance
from pixy.membership.kafka.session import KafkaSession
from pixy.membership.zookeeper.interfaces import Outlook
from pixy.membership.zookeeper.layout import check_name

if TYPE_CHECKING:
    from pixy.membership.zookeeper.groups import ZooKeeperGroups

logger = logging.getLogger("pixy.engine")

_REACH_SLICE = 1.0
_GIVE_UP_DOWN = 3


@dataclass(frozen=True, slots=True)
class _ClientFailed:
    error: Exception


class Cluster(Actor):
    """Child of the service.

    A child that fails is restarted, for ever: no topic and no group takes its cluster down with it. An error of the
    producer client itself does: then the cluster restarts with new clients. A fatal error of librdkafka's producer is none:
    the client replaces that producer.

    Args:
        name: as the configuration names the cluster.
        proxy: the cluster's configuration.
        node: ``rest.node_id``, which the generated names of REST consumer instances contain.
        own: the configuration with the daemon's own credentials, by which the journal is written; None: ``proxy``.
        counters: count what happens in the cluster; they outlive this actor.
    """

    # Requests wait in the mailbox during the pause, so it is not long.
    supervision = Supervision(intensity=Intensity(restarts=1_000_000), backoff=Backoff(most=5.0))

    def __init__(
        self,
        name: str,
        proxy: Proxy,
        node: str = "",
        own: Proxy | None = None,
        counters: ClusterCounters | None = None,
    ) -> None:
        super().__init__()
        self._counters = counters or ClusterCounters()
        self._own = own or proxy
        self._name = name
        self._proxy = proxy
        self._node = node
        self._instances: ActorRef[Instances]
        self._clients: ProducerClients
        self._admin: ActorRef[Admin]
        self._fetcher: ActorRef[Fetcher]
        self._journal: Journal | None = None
        self._journal_writer: ActorRef[Any] | None = None
        self._producers = Producers(self._spawn_producer, proxy.producer.max_topics)
        self._groups = Groups(self._spawn_group, proxy.consumer.max_groups)
        self._draining = False
        self._lookups: TopicLookups
        self._zookeeper: ZooKeeperGroups | None = None

    def on_start(self) -> None:
        """Create the clients, which connect by themselves, and the children that always run."""
        partitioner = LIBRDKAFKA_PARTITIONER[self._proxy.producer.partitioner]
        figures = self._counters.statistics
        self._clients = ProducerClients(
            settings.producer(self._proxy, partitioner),
            self._deliver,
            self._client_error,
            extra=None if figures is None else figures.settings(),
            stamp=bool(self._proxy.journal.topic),
        )
        pause = self._proxy.consumer.retry_backoff
        self._lookups = TopicLookups(self._clients.metadata, pause, self.system.loop.time)
        if self._proxy.journal.topic:
            self._start_journal()
        ref = self.actor_ref
        if self._proxy.consumer.membership == "zookeeper":
            self._zookeeper = self._use_zookeeper()
        self._admin = self.spawn(
            Admin,
            self._proxy,
            lambda: ref.ask(OwnGroups(), block=False),
            None if self._zookeeper is None else self._zookeeper.owners,
            lambda: ref.ask(KnownGroups(), block=False),
            name="admin",
        )
        known: dict[str, tuple[int, float]] = {}
        proxy = self._proxy
        self._fetcher = self.spawn(
            Fetcher,
            proxy,
            lambda: FetchClient(settings.fetcher(proxy), known),
            HeaderReader(settings.fetcher(proxy)),
            name="fetcher",
        )
        self._instances = self.spawn(
            Instances,
            proxy,
            self._node,
            partial(_open_instance, proxy),
            Catalogue(self._admin),
            name="instances",
        )

    def _use_zookeeper(self) -> ZooKeeperGroups:
        from pixy.membership.zookeeper.groups import ZooKeeperGroups  # and kazoo, which nobody else needs

        async def ask(question: AdminRequest[bool]) -> bool:
            try:
                return await self._admin.ask(question, block=False)
            except (ActorDeadError, MailboxFull) as error:
                raise Unavailable(f"the admin does not answer now: {error}") from error

        async def has_members(group: str) -> bool:
            return await ask(HasMembers(group))

        async def has_commits(group: str, topic: str) -> bool:
            return await ask(HasCommits(group, topic))

        return ZooKeeperGroups(self._proxy, Outlook(self._lookups.partitions, has_members, has_commits))

    def _start_journal(self) -> None:
        conf = self._proxy.journal
        made = settings.journal(self._own)
        self._journal = Journal(conf, self.system.loop.time)
        self._journal_writer = self.spawn(
            writer.JournalWriter,
            self._journal,
            conf,
            self._proxy.client_id,
            lambda deliver, failed: ProducerClient(made, deliver, failed),
            name="journal",
            supervision=writer.SUPERVISION,
        )

    async def on_stop(self) -> None:  # type: ignore[override]
        """Close the producer, which a drain has emptied."""
        self._lookups.close()
        if self._zookeeper is not None:
            await self._zookeeper.close()
        await self._clients.close(0.0)

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """Close the producer: the next life has a new one."""
        if hasattr(self, "_lookups"):
            self._lookups.close()
        if self._zookeeper is not None:
            await self._zookeeper.close()
        if hasattr(self, "_clients"):
            await self._clients.close(1.0)

    def on_child_stopped(self, ref: ActorRef[Any]) -> None:
        """Forget the child; start a group that somebody waits for again."""
        self._producers.stopped(ref)
        self._groups.stopped(ref)

    # -- producing ------------------------------------------------------------------------------

    @handles(GetProducer)
    def _get_producer(self, request: GetProducer) -> ActorRef[TopicProducer] | None:
        if (ref := self._producers.get(request.topic)) is not None:
            return ref
        if request.topic == self._proxy.journal.topic:
            raise InvalidParameter(
                f"bad topic: only the daemon itself writes to its journal, {request.topic}"
            )
        self._producers.check_room(self._lookups.waiting)
        self.start_task(self._producers.find(request, self.take_reply(), self._lookups))
        return None

    def _spawn_producer(self, topic: str) -> ActorRef[TopicProducer]:
        return self.spawn(
            TopicProducer,
            topic,
            self._proxy.producer,
            self._clients,
            self._lookups.writable,
            legacy=settings.record_headers_unsupported(self._proxy),
            journal=self._journal,
            counters=self._counters.produced.of(topic),
            name=self.free_name(f"{topic}.producer"),
        )

    def _deliver(self, reports: list[Report]) -> None:
        by_life: dict[ProducerLife, list[Report]] = {}
        for report in reports:
            by_life.setdefault(report[0].life, []).append(report)
        for life, own in by_life.items():
            try:
                life.ref.tell(DeliveryReports(life, tuple(own)), urgent=True)
            except ActorDeadError:
                logger.info("%s: %d late delivery reports", self.path, len(own))
                settler = Settler(self.path, None)
                for pending in settler.settle(tuple(own)):  # logs what is lost and had no caller
                    settler.refuse(pending)
                settler.end()

    def _client_error(self, error: Exception) -> None:
        self.actor_ref.tell(_ClientFailed(error), urgent=True)

    @handles(_ClientFailed)
    def _client_failed(self, failed: _ClientFailed) -> None:
        raise failed.error

    # -- consuming ------------------------------------------------------------------------------

    @handles(GetGroup)
    def _get_group(self, request: GetGroup) -> ActorRef[GroupConsumer] | None:
        if self._proxy.consumer.disabled:
            raise Disabled
        if self._zookeeper is not None:
            check_name(request.group)
        return self._groups.get(request.group, request.caller, self.take_reply)

    def _spawn_group(self, name: str, memory: Memory) -> ActorRef[GroupConsumer]:
        return self.spawn(
            GroupConsumer,
            name,
            self._proxy,
            self.actor_ref,
            partial(self._session, memory),
            self._lookups.partitions,
            self._journal,
            self._counters.groups.of(name),
            partial(self._counters.pauses.covers, name),
            name=self.free_name(name),
        )

    def _session(self, memory: Memory, group: str, post: Callable[[Event], None]) -> Session:
        if self._zookeeper is not None:
            return self._zookeeper.session(group, post)
        return KafkaSession(self._proxy, group, post, memory)

    @handles(GroupLeaving)
    def _group_leaving(self, message: GroupLeaving) -> None:
        self._groups.leaving(message.group)

    @handles(GroupStarted)
    def _group_started(self, message: GroupStarted) -> None:
        self._groups.started(message.group)

    @handles(IsIdle)
    async def _is_idle(self, _query: IsIdle) -> bool:
        if self._producers or self._groups:
            return False
        states = await self._instances.ask(CountInstances(), block=False)
        return not any(states.values()) and not self._producers and not self._groups

    @handles(OwnGroups)
    async def _own_groups(self, _query: OwnGroups) -> dict[str, dict[str, list[int]]]:
        own: dict[str, dict[str, list[int]]] = {}
        for name, ref in self._groups.refs().items():
            try:
                own[name] = await ref.ask(Owned(), block=False, urgent=True)
            except ActorDeadError:
                continue
        return own

    @handles(GroupRefs)
    def _group_refs(self, _query: GroupRefs) -> dict[str, ActorRef[GroupConsumer]]:
        return self._groups.refs()

    @handles(HoldGroup)
    def _hold_group(self, request: HoldGroup) -> bool:
        return self._groups.hold(request.group)

    @handles(LetGroupGo)
    def _let_group_go(self, message: LetGroupGo) -> None:
        self._groups.let_go(message.group)

    @handles(ViewCluster)
    def _view(self, _query: ViewCluster) -> ClusterView:
        journal = self._journal
        return ClusterView(
            self._clients.down,
            len(self._groups),
            self._proxy.consumer.max_groups,
            len(self._producers),
            self._proxy.producer.max_topics,
            None if journal is None else (journal.held, journal.limit, journal.lost_total),
        )

    @handles(KnownGroups)
    def _known_groups(self, _query: KnownGroups) -> list[str]:
        return self._groups.known()

    # -- the other children -----------------------------------------------------------------------

    @handles(GetAdmin)
    def _get_admin(self, _request: GetAdmin) -> ActorRef[Admin]:
        return self._admin

    @handles(GetFetcher)
    def _get_fetcher(self, _request: GetFetcher) -> ActorRef[Fetcher]:
        return self._fetcher

    @handles(GetInstances)
    def _get_instances(self, _request: GetInstances) -> ActorRef[Instances]:
        return self._instances

    # -- start and stop -------------------------------------------------------------------------

    @handles(Reach)
    async def _reach(self, _query: Reach) -> None:
        reply = self.take_reply()
        deadline = self._proxy.net.dial_timeout
        waited, down = 0.0, 0
        while True:
            try:
                await self._clients.metadata(None, _REACH_SLICE)
                reply.try_set(None)
                return
            except KafkaError as error:
                waited += _REACH_SLICE
                down += bool(self._clients.down)
                if waited < deadline and down < _GIVE_UP_DOWN:
                    continue
                peers = ",".join(self._proxy.kafka.seed_peers)
                why = (self._clients.down or str(error)).removeprefix(f"{peers}: ")
                reply.try_fail(
                    StartError(
                        f"failed to spawn proxy, name={self._name}: failed to create Kafka client: "
                        f"{OUT_OF_BROKERS} [{peers}: {why}]"
                    )
                )
                return

    @handles(DrainCluster)
    def _drain(self, request: DrainCluster) -> None:
        if not self._draining:
            self._draining = self._groups.closed = self._producers.closed = True
            self.start_task(self._drain_all(request, self.take_reply()))

    async def _drain_all(self, request: DrainCluster, reply: Future[None]) -> None:
        groups = [ref.ask(Leave(), block=False, urgent=True) for ref in self._groups.refs().values()]
        delivered = asyncio.create_task(self._deliver_all(request))
        for waiting in (*groups, self._instances.ask(CloseInstances(), block=False, urgent=True)):
            with contextlib.suppress(ActorDeadError):
                await waiting
        await delivered
        if self._journal_writer is not None:
            try:  # last, because the others still add events
                await self._journal_writer.ask(writer.DrainJournal(), block=False)
            except ActorDeadError:
                pass
        reply.try_set(None)

    async def _deliver_all(self, request: DrainCluster) -> None:
        """Deliver what was produced, or count what is given up, beside the groups: their coordinator may be frozen."""
        within = min(request.within, self._proxy.producer.shutdown_timeout)
        until = self.system.loop.time() + within
        for producer in [ref.ask(DrainProducer(within), block=False) for ref in self._producers.alive()]:
            with contextlib.suppress(ActorDeadError):
                request.given_up.messages += await producer
        # The producers have used up some of this time: their messages were on their way meanwhile, too.
        request.given_up.messages += await self._clients.close(max(0.0, until - self.system.loop.time()))


def _open_instance(
    proxy: Proxy,
    group: str,
    name: str,
    spec: InstanceSpec,
    earlier: Earlier,
    post: Callable[[InstanceEvent], None],
) -> InstanceSession:
    return KafkaInstance(proxy, group, name, spec.reset, spec.isolation, spec.auto_commit, earlier, post)

"""Makes snapshots of a running daemon, for the rules, the metrics and the console.

However many look, one snapshot serves all of them for :data:`FRESH` seconds. What only time shows needs a look now and then also while
nobody watches: one message per group every :data:`TICK` seconds, a few microseconds each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from actors import ActorSystem, LoopBlocked
from pixy.config.model import Proxy
from pixy.console.actor_figures import ActorFigures, figures_of
from pixy.console.history import Rates, Since
from pixy.console.kafka_check import KafkaCheck
from pixy.console.kafka_facts import KafkaFacts, Pair
from pixy.engine.consume.views import GroupView, OffersView, OfferView, PartitionView
from pixy.engine.counters import ClusterCounters, GroupCounters
from pixy.engine.inspector import GroupRef, Inspector
from pixy.engine.meter import RECENT, Meter
from pixy.errors import PixyError
from pixy.findings import Finding, find
from pixy.findings.consuming import EXPIRED
from pixy.findings.snapshot import (
    WHOLE,
    Block,
    Broker,
    Cluster,
    Group,
    Mailbox,
    Partition,
    Paused,
    Refused,
    Snapshot,
    Topic,
    Unacked,
)

logger = logging.getLogger("pixy.console")

FRESH: Final = 1.0
"""Seconds for which a snapshot serves everybody who asks."""
TICK: Final = 5.0
"""Seconds between two looks at the groups while nobody watches."""
KAFKA_LIMIT: Final = 2.0
"""Seconds that a snapshot waits for Kafka's answer; without one, librdkafka's word counts."""
MOST_OWNERS: Final = 1000
"""Owners that are asked for one snapshot, of those with un-acked messages first."""
_BLOCKS: Final = 100
_MINUTE: Final = 60.0
_CROWDED: Final = 20
"""Mailboxes in a snapshot, the fullest ones."""

PartitionKey = tuple[str, str, str, int]


class Watch:
    """Looks at one engine, from :meth:`start` to :meth:`stop`.

    Args:
        inspector: asks its actors.
        counters: of its clusters.
        meter: of its requests.
        system: its actors.
        proxies: the configuration of its clusters.
        wall: seconds since 1970.
    """

    def __init__(
        self,
        inspector: Inspector,
        counters: Mapping[str, ClusterCounters],
        meter: Meter,
        system: ActorSystem,
        proxies: Mapping[str, Proxy],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.inspector = inspector
        self.counters = counters
        self.meter = meter
        self.system = system
        self._proxies = proxies
        self._wall = wall
        self.facts = KafkaFacts(inspector, system.loop.time)
        self.kafka = KafkaCheck(inspector, system.loop.time)
        self.blocked = 0
        """How often the loop was found blocked."""
        self.actors: ActorFigures = ActorFigures()
        """Of the last snapshot."""
        self._blocks: deque[tuple[float, float, str | None, float]] = deque(maxlen=_BLOCKS)
        self._positions: Since[PartitionKey] = Since()
        self._failures: Since[tuple[str, str]] = Since()
        self._acks: Rates[tuple[str, str]] = Rates(_MINUTE)
        self._lost: Rates[str] = Rates(RECENT)
        self._rejected: Rates[str] = Rates(RECENT)
        self._snapshot: Snapshot | None = None
        self._findings: list[Finding] = []
        self._made_at = float("-inf")
        self._making: asyncio.Task[Snapshot] | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to look now and then."""
        self._unsubscribe = self.system.events.subscribe(self._loop_blocked, LoopBlocked)
        self._ticking = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """End."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        tasks = [each for each in (self._ticking, self._making) if each is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.facts.close()
        await self.kafka.close()

    async def snapshot(self) -> Snapshot:
        """Return a snapshot that is at most :data:`FRESH` seconds old."""
        if self._snapshot is not None and self._now() - self._made_at < FRESH:
            return self._snapshot
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
        return await asyncio.shield(self._making)

    async def findings(self) -> tuple[Snapshot, list[Finding]]:
        """Return a snapshot, and what the rules find in it."""
        snapshot = await self.snapshot()
        return snapshot, self._findings

    def _loop_blocked(self, event: LoopBlocked) -> None:
        self.blocked += 1
        self._blocks.append((self._now(), event.seconds, event.path, event.starved))

    def _now(self) -> float:
        return self.system.loop.time()

    # -- now and then -------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                for cluster in self.inspector.clusters():
                    await self._views(cluster)
                    await self._note_kafka(cluster)
            except Exception:
                logger.exception("a look at the groups has failed")

    async def _views(self, cluster: str) -> tuple[dict[str, GroupRef], dict[str, GroupView]]:
        """Ask the groups of a cluster, and note what only time shows."""
        try:
            refs = await self.inspector.groups(cluster)
        except PixyError:
            return {}, {}
        views = await self.inspector.views(refs)
        now = self._now()
        for name, view in views.items():
            for each in view.partitions:
                self._positions.same((cluster, name, each.topic, each.partition), each.position, now)
            self._failures.same((cluster, name), view.failure, now)
        for name, counted in self.counters[cluster].groups.items():
            self._acks.note((cluster, name), sum(each.acked for each in counted.topics.values()), now)
        return refs, views

    async def _note_kafka(self, cluster: str) -> None:
        """Note since when no broker answers, also while nobody asks Kafka."""
        why = self.kafka.known(cluster)
        if why is None:
            with contextlib.suppress(PixyError):
                why = self._silence(cluster, (await self.inspector.cluster(cluster)).down)
        self._failures.same((cluster, ""), bool(why), self._now())

    def _silence(self, cluster: str, down: str) -> str:
        """Return why librdkafka has no broker. It says that all are down, and not that one is up again."""
        statistics = self.counters[cluster].statistics
        return "" if statistics is not None and any(each.up for each in statistics.brokers) else down

    # -- a snapshot ---------------------------------------------------------------------------------

    async def _make(self) -> Snapshot:
        groups: list[Group] = []
        clusters: list[Cluster] = []
        owned: dict[Pair, set[int]] = {}
        asked = {
            name: asyncio.create_task(self.kafka.problem(name, KAFKA_LIMIT))
            for name in self.inspector.clusters()
        }
        for name in self.inspector.clusters():
            refs, views = await self._views(name)
            room = MOST_OWNERS
            for group, view in sorted(views.items()):
                wanted = sorted(view.partitions, key=lambda each: not each.pending)[:room]
                room -= len(wanted)
                offers = await self.inspector.offers(
                    refs[group], [(each.topic, each.partition) for each in wanted]
                )
                for topic in view.topics:
                    if not topic.missing:
                        mine = {each.partition for each in view.partitions if each.topic == topic.topic}
                        owned[name, group, topic.topic] = mine
                groups.append(self._group(name, view, offers))
            groups += self._left(name, views.keys())
            clusters.append(await self._cluster(name, await asked[name]))
        self.facts.want(owned)
        self.actors = await figures_of(self.system)
        found = Snapshot(
            self._wall(),
            tuple(clusters),
            tuple(groups),
            self._mailboxes(),
            tuple(
                Block(self._now() - at, seconds, path, starved) for at, seconds, path, starved in self._blocks
            ),
            tuple(Refused(*key, count) for key, count in self.meter.refused().items()),
        )
        self._snapshot, self._findings, self._made_at = found, find(found), self._now()
        return found

    async def _cluster(self, name: str, problem: str | None) -> Cluster:
        proxy, now = self._proxies[name], self._now()
        statistics = self.counters[name].statistics
        brokers = () if statistics is None else statistics.brokers
        shown = tuple(Broker(each.name, each.rtt, each.up, each.queued) for each in brokers)
        down, journal, groups, producers = "", None, (0, 1), (0, 1)
        with contextlib.suppress(PixyError):
            view = await self.inspector.cluster(name)
            down = self._silence(name, view.down) if problem is None else problem
            groups, producers = (view.groups, view.max_groups), (view.producers, view.max_producers)
            if view.journal is not None:
                self._lost.note(name, view.journal[2], now)
                journal = (*view.journal[:2], int(self._lost.gained(name)), view.journal[2])
        return Cluster(
            name,
            down,
            self._failures.same((name, ""), bool(down), now),
            shown,
            journal,
            groups,
            producers,
            proxy.consumer.ack_timeout,
            proxy.consumer.max_retries,
        )

    def _group(self, cluster: str, view: GroupView, offers: dict[tuple[str, int], OffersView]) -> Group:
        now, name = self._now(), view.group
        counted = self.counters[cluster].groups.get(name) or GroupCounters()
        failing = counted.failing_since
        return Group(
            cluster,
            name,
            self._topics(cluster, view),
            tuple(self._partition(cluster, name, own, offers) for own in view.partitions),
            view.failure,
            self._failures.same((cluster, name), view.failure, now),
            view.leaving,
            tuple(now - at for at in counted.rebalances),
            counted.commit_error,
            0.0 if failing is None else now - failing,
            {topic: (now - at, pending) for topic, (at, pending) in counted.closed_unsafely.items()},
            int(self._acks.gained((cluster, name))),
            self._paused(cluster, name),
        )

    def _paused(self, cluster: str, group: str) -> tuple[Paused, ...]:
        wall = self._wall()
        return tuple(
            Paused(*(each.partition or WHOLE), each.by, max(0.0, wall - each.since))
            for each in self.counters[cluster].pauses
            if each.group == group
        )

    def _left(self, cluster: str, present: Collection[str]) -> list[Group]:
        """Return the groups that are gone, and have left messages behind that were not acknowledged, or are paused."""
        now = self._now()
        found: list[Group] = []
        for name, counted in self.counters[cluster].groups.items():
            if name in present or not counted.closed_unsafely:
                continue
            expired = {
                topic: (now - at, pending)
                for topic, (at, pending) in counted.closed_unsafely.items()
                if now - at <= EXPIRED
            }
            if expired:
                found.append(
                    Group(cluster, name, leaving=True, expired=expired, paused=self._paused(cluster, name))
                )
        known = {*present, *(each.group for each in found)}
        paused = dict.fromkeys(each.group for each in self.counters[cluster].pauses)
        found += [
            Group(cluster, name, paused=self._paused(cluster, name)) for name in paused if name not in known
        ]
        return found

    def _topics(self, cluster: str, view: GroupView) -> tuple[Topic, ...]:
        now = self._now()
        found = []
        for each in view.topics:
            facts = self.facts.of((cluster, view.group, each.topic))
            found.append(
                Topic(
                    each.topic,
                    each.polls,
                    None if each.oldest_poll is None else now - each.oldest_poll,
                    now - each.last_request,
                    each.joined,
                    each.missing,
                    None if facts is None else facts.unowned,
                    0.0 if facts is None else facts.unowned_for,
                    None if facts is None else facts.leaderless,
                )
            )
        return tuple(found)

    def _partition(
        self, cluster: str, group: str, own: PartitionView, offers: dict[tuple[str, int], OffersView]
    ) -> Partition:
        now = self._now()
        out = offers.get((own.topic, own.partition))
        facts = self.facts.of((cluster, group, own.topic))
        done_above = 0 if out is None else out.done_above
        stands = self._positions.same((cluster, group, own.topic, own.partition), own.position, now)
        return Partition(
            own.topic,
            own.partition,
            now - own.since,
            own.position,
            own.pending,
            0 if out is None else out.buffered,
            done_above,
            out is not None and out.full,
            None if out is None or out.oldest is None else unacked(out.oldest, now),
            None if out is None or out.most_tried is None else unacked(out.most_tried, now),
            own.lives,
            own.draining,
            stands if done_above else None,
            None if facts is None else facts.lags.get(own.partition),
            None if facts is None else facts.rates.get(own.partition),
        )

    def _mailboxes(self) -> tuple[Mailbox, ...]:
        now = self._now()
        for path, rejected in self.actors.rejected.items():
            self._rejected.note(path, rejected, now)
        return tuple(
            Mailbox(
                each.path,
                each.mailbox.depth,
                each.mailbox.capacity,
                each.mailbox.oldest_age,
                int(self._rejected.gained(each.path)),
            )
            for each in self.actors.crowded[:_CROWDED]
        )


def unacked(offer: OfferView, now: float) -> Unacked:
    """Describe an un-acked message by ages instead of times.

    Args:
        offer: as its owner describes it.
        now: the loop's time.
    """
    return Unacked(
        offer.offset,
        now - offer.first,
        now - offer.offered,
        offer.attempts,
        offer.out,
        offer.deadline - now,
        offer.client,
    )


__all__ = ["FRESH", "TICK", "Watch", "unacked"]

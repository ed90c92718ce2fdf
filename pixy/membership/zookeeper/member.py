"""A member of a group in ZooKeeper, as tasks on the loop: it registers, shares the partitions out, claims its own.

In rounds: register, read the registrations of all members, compute the ranges, hand back what is too much,
claim what is missing. A change of a registration, of a claim or of the connection begins the next round; so
does time, for claims that another member still holds and for partitions that were added to a topic.

Without a connection the session may expire, and ZooKeeper says so only once there is a connection again. So
a member drops its partitions when it was disconnected for a third of the session timeout (kazoo notices a silent
server after two thirds of it), and takes up those that it still holds when it is connected again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping

from pixy.errors import PixyError
from pixy.membership.zookeeper.assignment import partitions_of
from pixy.membership.zookeeper.claims import Claims
from pixy.membership.zookeeper.interfaces import Outlook, Partitions
from pixy.membership.zookeeper.keeper import Keeper, KeeperError, State, delete_if_empty
from pixy.membership.zookeeper.layout import Layout
from pixy.membership.zookeeper.orphans import Orphans
from pixy.membership.zookeeper.registration import Registration
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_REFRESH = 10.0
"""Seconds between look-ups of how many partitions the topics have."""
_YIELD = 5.0
"""Seconds between questions to Kafka whether the group still has members there."""
_LONGEST_GRACE = 5.0
"""Seconds. ZooKeeper may grant a shorter session timeout than configured; this is a third of the default."""


class GroupMember:
    """One member of one group.

    Args:
        keeper: the connection.
        orphans: deletes what this member cannot delete itself.
        layout: of the group.
        member: the member's id.
        port: what to do with partitions.
        outlook: what to ask Kafka.
        session_timeout: seconds, of ZooKeeper.
        backoff: seconds between attempts to claim a partition, and after an error.
    """

    def __init__(
        self,
        keeper: Keeper,
        orphans: Orphans,
        layout: Layout,
        member: str,
        port: Partitions,
        outlook: Outlook,
        session_timeout: float,
        backoff: float,
    ) -> None:
        self._keeper = keeper
        self._orphans = orphans
        self._layout = layout
        self._member = member
        self._port = port
        self._outlook = outlook
        self._backoff = backoff
        self._grace = min(session_timeout / 3, _LONGEST_GRACE)
        self._registration = Registration(keeper, layout, member, self._registrations_changed)
        self._claims = Claims(keeper, orphans, layout, member, self._claim_lost, self._nudge)
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._topics: frozenset[str] = frozenset()
        self._established: dict[str, bool] = {}
        self._unanswered: dict[str, str] = {}
        """The topics of which Kafka does not tell what a round needs to know, with its reasons."""
        self._subscriptions: Mapping[str, frozenset[str]] = {}
        self._counts: dict[str, int] = {}
        self._wanted: set[TopicPartition] = set()
        self._consumed: set[TopicPartition] = set()
        self._leaving: set[TopicPartition] = set()
        self._reported: set[TopicPartition] = set()
        self._announce = False
        self._stale = True
        self._unverified = False
        self._read_at = self._yielded_at = -_REFRESH
        self._yielding = False
        self._giving_up: asyncio.TimerHandle | None = None
        self._handing_back: asyncio.Task[None] | None = None
        self._unlisten = keeper.listen(self._connection_changed)
        self._rounds = self._start(self._run())

    def subscribe(self, topics: frozenset[str]) -> None:
        """Replace the subscription; an empty one leaves the group."""
        self._topics = topics
        self._announce = True
        self._registrations_changed()

    def is_established(self, topic: str) -> bool:
        """Return whether the group had committed an offset of the topic before this member subscribed to it.

        ZooKeeper has no generations to tell a new group by. Members that come to a new group together find nothing
        committed either: each looks before it registers, and whoever shares with it commits after that.
        """
        return self._established.get(topic, False)

    def yield_to_kafka(self) -> None:
        """Drop all partitions: the group has members in Kafka, and Kafka refuses all other commits."""
        self._yielded_at = self._loop.time()
        self._note_kafka_members(True)
        self._lose_all()
        self._nudge()

    async def stop(self) -> None:
        """End the rounds, and keep the claims: the last commits come before :meth:`leave`."""
        self._unlisten()
        if self._giving_up is not None:
            self._giving_up.cancel()
        tasks = [task for task in (self._rounds, self._handing_back) if task is not None]
        tasks += self._claims.checks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self, timeout: float) -> None:
        """Release all claims, end the registration, and delete the group's znodes if it was the last.

        Args:
            timeout: seconds; what is left then is deleted later, as long as the session lasts.
        """
        registered = True
        try:
            async with asyncio.timeout(timeout):
                await self._claims.close()
                await self._registration.remove()
                registered = False
                await self._delete_group()
        except (KeeperError, TimeoutError) as error:
            logger.info("group %s: left without ZooKeeper's answer: %s", self._layout.group, error)
        finally:
            if registered:
                self._orphans.add([self._layout.member(self._member)])

    async def _delete_group(self) -> None:
        layout = self._layout
        if await self._keeper.children(layout.ids):
            return
        topics = await self._keeper.children(layout.owners)
        paths = [layout.topic(topic) for topic in sorted(topics)]
        await delete_if_empty(self._keeper, [*paths, layout.owners, layout.ids, layout.path])

    # -- rounds -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            pause = await self._try_round()
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def _try_round(self) -> float | None:
        """Make a round; return the seconds until the next one, None to wait for a change."""
        if self._keeper.session is None:
            return None
        try:
            return await self._round()
        except PixyError as error:
            self._stale = True
            logger.warning("group %s: %s; trying again", self._layout.group, error)
            return self._backoff

    async def _round(self) -> float:
        if self._unverified:
            await self._claims.verify()
            self._unverified = False
        if self._stale or self._loop.time() - self._read_at >= _REFRESH:
            await self._share_out()
        if await self._kafka_has_members():
            await self._claims.tidy(())
            return _YIELD
        self._hand_back(self._claims.held - self._wanted - self._leaving)
        try:
            await self._claims.claim(self._wanted - self._claims.held - self._claims.releasing)
        finally:
            self._acquire(self._claims.held & self._wanted)
        await self._claims.tidy(self._wanted)
        missing = self._wanted - self._claims.held
        self._report(missing)
        if self._announce and not missing and (self._subscriptions or not self._topics):
            self._announce = False
            self._port.joined()
        return self._backoff if missing or self._stale else _REFRESH

    async def _share_out(self) -> None:
        """Register, and compute which partitions are this member's.

        A topic of which Kafka does not tell what it must know, such as one that may not be read, holds up no other: a new one
        is not registered yet, an old one keeps its number of partitions.
        """
        self._stale = False
        problems: dict[str, PixyError] = {}
        topics = await self._established_of(self._topics, problems)
        if topics:
            self._subscriptions = await self._register(topics)
        elif self._subscriptions or not self._topics:
            await self._registration.remove()
            self._subscriptions = {}
        for topic in topics:
            try:
                count = await self._outlook.count_partitions(topic)
            except PixyError as error:
                problems[topic] = error
                continue
            if count is not None:
                self._counts[topic] = count
        self._note(problems)
        self._read_at = self._loop.time()
        self._wanted = partitions_of(self._member, self._subscriptions, self._counts)

    async def _established_of(self, topics: frozenset[str], problems: dict[str, PixyError]) -> frozenset[str]:
        """Look up of which new topics the group has offsets; return those of which that is known."""
        self._established = {each: known for each, known in self._established.items() if each in topics}
        for topic in topics.difference(self._established):
            try:
                self._established[topic] = await self._outlook.has_commits(self._layout.group, topic)
            except PixyError as error:
                problems[topic] = error
        return topics.intersection(self._established)

    def _note(self, problems: Mapping[str, PixyError]) -> None:
        """Log each problem once, and have the next round ask again."""
        self._stale = self._stale or bool(problems)
        found = {topic: str(error) for topic, error in problems.items()}
        for topic, problem in found.items():
            if self._unanswered.get(topic) != problem:
                logger.warning("group %s: topic %s: %s; trying again", self._layout.group, topic, problem)
        self._unanswered = found

    async def _register(self, topics: frozenset[str]) -> Mapping[str, frozenset[str]]:
        self._orphans.adopt(self._layout.member(self._member))
        for _attempt in range(2):
            await self._registration.put(topics)
            subscriptions = await self._registration.read()
            if subscriptions.get(self._member) == topics:
                return subscriptions
            self._registration.forget()  # somebody deleted or changed it, or an earlier session did end
        raise KeeperError("the own registration keeps changing")

    def _report(self, missing: set[TopicPartition]) -> None:
        if missing and missing != self._reported:
            shown = [f"{topic}/{number}" for topic, number in sorted(missing)[:3]]
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            owners = sorted({self._claims.refused.get(each, "?") for each in missing})
            listed = ", ".join(shown)
            logger.info(
                "group %s: waiting for %s%s, owned by %s", self._layout.group, listed, more, ", ".join(owners)
            )
        self._reported = missing

    async def _kafka_has_members(self) -> bool:
        """Look, at times, whether the group has members in Kafka; a member that consumes hears of it by a refused commit."""
        if self._claims.held or not self._wanted:
            return self._yielding
        if self._loop.time() - self._yielded_at >= _YIELD:
            found = await self._outlook.has_kafka_members(self._layout.group)
            self._yielded_at = self._loop.time()
            self._note_kafka_members(found)
        return self._yielding

    def _note_kafka_members(self, found: bool) -> None:
        if found and not self._yielding:
            logger.error(
                "group %s: it has members in Kafka's own group protocol, so Kafka refuses the commits of members "
                "in ZooKeeper: not consuming until those have left",
                self._layout.group,
            )
        self._yielding = found

    # -- partitions -------------------------------------------------------------------------------

    def _acquire(self, partitions: set[TopicPartition]) -> None:
        new = sorted(partitions - self._consumed)
        if new:
            self._announce = False
            self._consumed.update(new)
            self._port.acquire(new)

    def _hand_back(self, partitions: set[TopicPartition]) -> None:
        # One hand-over at a time; its end begins a round that finds the rest.
        if partitions and self._handing_back is None:
            self._handing_back = self._start(self._give(sorted(partitions)))

    async def _give(self, partitions: list[TopicPartition]) -> None:
        self._leaving.update(partitions)
        try:
            await self._port.hand_back(partitions)
            # Without those that were lost meanwhile: this member may have got them again.
            done, self._leaving = self._leaving, set()
            self._consumed -= done
            await self._claims.release(done)
        except KeeperError as error:
            logger.info("group %s: releasing %s: %s; trying again", self._layout.group, partitions, error)
        finally:
            self._handing_back = None
            self._nudge()

    def _claim_lost(self, partition: TopicPartition) -> None:
        logger.warning("group %s: the claim of %s/%d has vanished", self._layout.group, *partition)
        self._lose([partition])
        self._nudge()

    def _lose(self, partitions: list[TopicPartition]) -> None:
        lost = [each for each in partitions if each in self._consumed]
        self._consumed.difference_update(lost)
        self._leaving.difference_update(lost)
        if lost:
            self._port.lose(lost)

    def _lose_all(self) -> None:
        self._claims.drop()
        self._lose(sorted(self._consumed))

    # -- changes ----------------------------------------------------------------------------------

    def _nudge(self) -> None:
        self._wake.set()

    def _registrations_changed(self) -> None:
        self._stale = True
        self._wake.set()

    def _connection_changed(self, state: State) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if state is State.CONNECTED:
            self._unverified = True
            self._registrations_changed()
        elif state is State.SUSPENDED:
            self._giving_up = self._loop.call_later(self._grace, self._give_up)
        else:
            logger.warning("group %s: ZooKeeper's session has expired", self._layout.group)
            self._lose_all()
            self._claims.expired()
            self._registration.forget()

    def _give_up(self) -> None:
        logger.warning("group %s: no connection to ZooKeeper, its session may expire", self._layout.group)
        self._lose_all()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._port.failed(error)

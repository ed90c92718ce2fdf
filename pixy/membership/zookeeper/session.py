"""A session in a group of ZooKeeper: a :class:`GroupMember` claims partitions, one thread fetches them.

Offsets stay in Kafka, under the group's id and without a member's generation, as the original commits them. Kafka
takes such commits from anybody while the group has no members of its own, so nothing but the claims keeps
two members apart: an earlier owner that commits late moves the offset back, and messages are delivered again.

The member runs on the loop, the consumer in its thread. A lost partition is reported at once, also while the thread is
busy: what the thread still says about it is recognised by the number of its assignment and left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from pixy.config.model import Proxy
from pixy.errors import KafkaError, PixyError
from pixy.kafka import settings
from pixy.kafka.consumer import Commit
from pixy.kafka.errors import GROUP_ACTIVE_CODES, translate
from pixy.membership import Assigned, Event, Lost, Revoked, SessionFailed
from pixy.membership.kafka.fetching_session import DRAIN_SLACK, FetchingSession
from pixy.membership.zookeeper.interfaces import Outlook
from pixy.membership.zookeeper.keeper import Keeper
from pixy.membership.zookeeper.layout import Layout
from pixy.membership.zookeeper.member import GroupMember
from pixy.membership.zookeeper.orphans import Orphans
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_LATEST_REVOKED = 15.0
"""Seconds until a hand-over begins in the thread, which may be polling, looking a beginning up or committing one."""
_LEAST_TO_LEAVE = 1.0
"""Seconds for ZooKeeper, however long the last commits took."""


class ZooKeeperSession(FetchingSession):
    """See :class:`pixy.membership.Session`, and :class:`pixy.membership.zookeeper.interfaces.Partitions`.

    Args:
        proxy: the cluster's configuration.
        layout: of the group.
        post: called on the loop with each event, in order.
        keeper: the connection.
        orphans: deletes what this member cannot delete itself.
        outlook: what to ask Kafka.
    """

    def __init__(
        self,
        proxy: Proxy,
        layout: Layout,
        post: Callable[[Event], None],
        keeper: Keeper,
        orphans: Orphans,
        outlook: Outlook,
    ) -> None:
        super().__init__(proxy, layout.group, self._deliver, settings.claimed_consumer(proxy, layout.group))
        self._post_to_group = post
        self._over = False
        """True if the group has been told that this session has failed: no event follows."""
        self._since: dict[TopicPartition, int] = {}
        self._handing_back: tuple[Revoked, asyncio.Future[tuple[Commit, ...]]] | None = None
        """The revocation that waits for its release, and the future of the last positions."""
        self._left = False
        self._subscribed = True  # poll whenever there is something to fetch
        # First: without it there is no session that could stop the member, which would remove the registration of the next one.
        self._thread.start()
        self._member = GroupMember(
            keeper,
            orphans,
            layout,
            proxy.client_id,
            self,
            outlook,
            proxy.zoo_keeper.session_timeout,
            proxy.consumer.retry_backoff,
        )

    # -- commands, from the loop ------------------------------------------------------------------

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See :class:`pixy.membership.Session`."""
        noted = dict(topics)
        self._command(lambda: self._partitions.subscribed(noted))
        self._member.subscribe(frozenset(noted))

    def release(self, revoked: Revoked, commits: Iterable[Commit]) -> None:
        """See :class:`pixy.membership.Session`."""
        if self._handing_back is not None:
            awaited, drained = self._handing_back
            if awaited is revoked and not drained.done():
                drained.set_result(tuple(commits))

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """See :class:`pixy.membership.Session`."""
        deadline = self._loop.time() + timeout
        await self._member.stop()
        await super().close(commits, timeout)
        if not self._left:
            self._left = True
            await self._member.leave(max(_LEAST_TO_LEAVE, deadline - self._loop.time()))

    # -- the member's partitions, on the loop -----------------------------------------------------

    def joined(self) -> None:
        """See :class:`pixy.membership.zookeeper.interfaces.Partitions`."""
        self._forward(Assigned(()))

    def acquire(self, partitions: list[TopicPartition]) -> None:
        """See :class:`pixy.membership.zookeeper.interfaces.Partitions`."""
        # The thread numbers their assignment later, so with a higher number.
        self._since.update(dict.fromkeys(partitions, self.next_epoch()))
        known = {topic for topic, _ in partitions if self._member.is_established(topic)}
        new = [each for each in partitions if each[0] not in known]
        old = [each for each in partitions if each[0] in known]
        self._command(lambda: self._add(new, old))

    async def hand_back(self, partitions: list[TopicPartition]) -> None:
        """See :class:`pixy.membership.zookeeper.interfaces.Partitions`."""
        since = {each: self._since.get(each) for each in partitions}
        revoked, drained = Revoked(tuple(partitions)), self._loop.create_future()
        self._handing_back = revoked, drained
        # Through the thread: it may be about to report their assignment.
        told: asyncio.Future[None] = self._loop.create_future()
        self._command(lambda: self._begin_handing_back(revoked, told))
        commits: tuple[Commit, ...] = ()
        try:
            async with asyncio.timeout(_LATEST_REVOKED):
                await told  # the group's time to drain begins now
            async with asyncio.timeout(self._conf.drain_timeout + DRAIN_SLACK):
                commits = await drained
        except TimeoutError:
            logger.warning("%s: %s not released in time", self._name, partitions)
        finished: asyncio.Future[None] = self._loop.create_future()
        held = [each for each in partitions if self._since.get(each) == since[each]]
        wanted = tuple(each for each in commits if (each.topic, each.partition) in held)
        self._command(lambda: self._finish(held, wanted, finished))
        await finished
        for each in held:
            if self._since.get(each) == since[each]:
                del self._since[each]

    def lose(self, partitions: list[TopicPartition]) -> None:
        """See :class:`pixy.membership.zookeeper.interfaces.Partitions`."""
        for each in partitions:
            self._since.pop(each, None)
        self._forward(Lost(tuple(partitions)))
        self._command(lambda: self._partitions.drop(partitions))

    def failed(self, error: BaseException) -> None:
        """See :class:`pixy.membership.zookeeper.interfaces.Partitions`."""
        logger.error("%s: its membership failed", self._name, exc_info=error)
        self._forward(SessionFailed(error if isinstance(error, PixyError) else translate(error)))

    def _deliver(self, event: Event) -> None:
        """Pass an event of the thread on, without assignments that this member has lost meanwhile."""
        if isinstance(event, Assigned) and event.partitions:
            held = tuple(
                each
                for each in event.partitions
                if (since := self._since.get((each.topic, each.partition))) is not None and each.epoch > since
            )
            if not held:
                return
            event = Assigned(held)
        self._forward(event)

    def _forward(self, event: Event) -> None:
        if not self._over:
            self._over = isinstance(event, SessionFailed)
            self._post_to_group(event)

    # -- the thread -------------------------------------------------------------------------------

    def _add(self, new: list[TopicPartition], old: list[TopicPartition]) -> None:
        self._partitions.add(new, first=True)
        self._partitions.add(old, first=False)

    def _begin_handing_back(self, revoked: Revoked, told: asyncio.Future[None]) -> None:
        # What has not begun by now must not begin: nobody would end it, and two members would deliver its messages.
        self._commit_finally(self._partitions.stop_waiting(list(revoked.partitions)))
        self._post(revoked)
        self._loop.call_soon_threadsafe(_settle, told)

    def _finish(
        self, partitions: list[TopicPartition], commits: tuple[Commit, ...], finished: asyncio.Future[None]
    ) -> None:
        self._commit_finally(commits)
        self._partitions.drop(partitions)
        self._loop.call_soon_threadsafe(_settle, finished)

    def _committed(self, error: PixyError | None, partitions: dict[TopicPartition, PixyError]) -> None:
        super()._committed(error, partitions)
        errors = [error, *partitions.values()]
        if any(isinstance(each, KafkaError) and each.code in GROUP_ACTIVE_CODES for each in errors):
            self._loop.call_soon_threadsafe(self._member.yield_to_kafka)


def _settle(finished: asyncio.Future[None]) -> None:
    if not finished.done():
        finished.set_result(None)


__all__ = ["ZooKeeperSession"]

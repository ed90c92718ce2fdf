"""The partitions that a member claims: one ephemeral znode each, which only its session can hold.

The original accepts a claim that carries its own client id, whichever session made it: two processes with
one client id then own a partition both, and a daemon that restarts relies on a claim that is about to
expire. Here the session counts, and each claim is watched: a partition whose claim vanishes is lost at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeVar

from pixy.membership.zookeeper.keeper import (
    Keeper,
    KeeperError,
    NodeExists,
    NoNode,
    WatchEvent,
    create_with_parents,
    delete_own,
)
from pixy.membership.zookeeper.layout import Layout
from pixy.membership.zookeeper.orphans import Orphans
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

T = TypeVar("T")

_AT_ONCE = 64
"""Claims that are made, or given up, concurrently."""


class Claims:
    """One member's claims.

    Args:
        keeper: the connection.
        orphans: deletes what this member cannot delete itself.
        layout: of the group.
        member: the member's id.
        lost: called on the loop with a partition whose claim has vanished.
        freed: called on the loop when another member's claim has vanished.
    """

    def __init__(
        self,
        keeper: Keeper,
        orphans: Orphans,
        layout: Layout,
        member: str,
        lost: Callable[[TopicPartition], None],
        freed: Callable[[], None],
    ) -> None:
        self._keeper = keeper
        self._orphans = orphans
        self._layout = layout
        self._member = member
        self._on_lost = lost
        self._on_freed = freed
        self._watcher = keeper.watcher(self._changed)
        self._term = 0
        self._touched: dict[str, TopicPartition] = {}
        self._vanished: set[str] = set()
        self.held: set[TopicPartition] = set()
        """Partitions whose claim this member relies on."""
        self.releasing: set[TopicPartition] = set()
        """Partitions whose claims are being deleted: they cannot be claimed until that has ended."""
        self.checks: set[asyncio.Task[None]] = set()
        """Tasks that check claims which seem to have vanished."""
        self.refused: dict[TopicPartition, str] = {}
        """The owners of partitions that could not be claimed, at the last attempt."""

    async def claim(self, partitions: Iterable[TopicPartition]) -> None:
        """Try to claim partitions; those that succeed are in ``held``, even if others fail. Raises KeeperError."""
        await _for_each(self._claim, sorted(partitions))

    async def _claim(self, partition: TopicPartition) -> None:
        path = self._layout.claim(partition)
        session, term = self._keeper.session, self._term
        self._touched[path] = partition
        self._orphans.adopt(path)
        self._vanished.discard(path)
        try:
            await create_with_parents(self._keeper, path, self._member.encode(), ephemeral=True)
        except NodeExists:
            pass  # maybe this session's, from an attempt whose answer was lost
        try:
            node = await self._keeper.get(path, self._watcher)
        except NoNode:
            return
        if node.session != session:
            self._touched.pop(path, None)
            self.refused[partition] = node.data.decode(errors="replace")
        elif term == self._term and path not in self._vanished:
            self.refused.pop(partition, None)
            self.held.add(partition)

    async def verify(self) -> None:
        """Read all claims again after the connection was lost, and with it their watches. Raises KeeperError."""
        await _for_each(self._verify, sorted(self.held))

    async def _verify(self, partition: TopicPartition) -> None:
        path, term = self._layout.claim(partition), self._term
        try:
            lost = (await self._keeper.get(path, self._watcher)).session != self._keeper.session
        except NoNode:
            lost = True
        if lost and partition in self.held and term == self._term:
            self._touched.pop(path, None)
            self.held.discard(partition)
            self._on_lost(partition)

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        """Give claims up. Raises KeeperError; :meth:`tidy` then tries again."""
        self.held.difference_update(partitions)
        self.releasing.update(partitions)
        try:
            await self._delete([self._layout.claim(partition) for partition in partitions])
        finally:
            self.releasing.difference_update(partitions)

    async def tidy(self, wanted: Collection[TopicPartition]) -> None:
        """Delete claims that are neither held nor wanted any more. Raises KeeperError."""
        keep = self.held.union(self.releasing, wanted)
        await self._delete([path for path, partition in self._touched.items() if partition not in keep])

    async def _delete(self, paths: list[str]) -> None:
        await _for_each(self._delete_one, sorted(paths))

    async def _delete_one(self, path: str) -> None:
        await delete_own(self._keeper, path)
        self._touched.pop(path, None)

    def drop(self) -> list[TopicPartition]:
        """Rely on no claim any more, without deleting any. Return the partitions that were held."""
        self._term += 1
        held, self.held = sorted(self.held), set()
        return held

    def expired(self) -> None:
        """Forget the znodes: they have ended with their session."""
        self._touched.clear()

    async def close(self) -> None:
        """Delete all claims; leave those to the orphans for which there is no connection."""
        self.drop()
        try:
            await self._delete(list(self._touched))
        except KeeperError as error:
            logger.info("group %s: claims stay for now: %s", self._layout.group, error)
        finally:
            self._orphans.add(self._touched)

    def _changed(self, event: WatchEvent) -> None:
        if not event.deleted:
            return
        self._vanished.add(event.path)
        partition = self._touched.get(event.path)
        if partition is None or partition not in self.held:
            self._on_freed()
            return
        # Look first: the event may be that of an earlier claim, which this member gave up itself.
        check = asyncio.get_running_loop().create_task(self._check(partition))
        self.checks.add(check)
        check.add_done_callback(self.checks.discard)

    async def _check(self, partition: TopicPartition) -> None:
        try:
            await self._verify(partition)
        except KeeperError as error:  # whoever has no connection verifies all claims later
            logger.info("group %s: claim of %s/%d: %s", self._layout.group, *partition, error)


async def _for_each(act: Callable[[T], Awaitable[None]], items: list[T]) -> None:
    """Act on all items, some at a time; then raise the first error."""
    for at in range(0, len(items), _AT_ONCE):
        # An error must not leave the other attempts running.
        results = await asyncio.gather(*map(act, items[at : at + _AT_ONCE]), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

"""A member's registration in its group, and those of the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from pixy.membership.zookeeper.keeper import (
    Keeper,
    NodeExists,
    NoNode,
    create_with_parents,
    put_ephemeral,
)
from pixy.membership.zookeeper.layout import Layout, decode_member, encode_member

logger = logging.getLogger("pixy.membership")

Subscriptions = Mapping[str, frozenset[str]]
"""The topics of each member of a group."""


class Registration:
    """Registers a member under ``ids`` and watches all registrations.

    Args:
        keeper: the connection.
        layout: of the group.
        member: the member's id.
        changed: called on the loop when a registration changes after :meth:`read`.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        keeper: Keeper,
        layout: Layout,
        member: str,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keeper = keeper
        self._layout = layout
        self._member = member
        self._clock = clock
        self._watcher = keeper.watcher(lambda _event: changed())
        self._done: tuple[int | None, frozenset[str]] | None = None
        self._warned = False
        self._unreadable: set[str] = set()

    def forget(self) -> None:
        """Register again at the next :meth:`put`."""
        self._done = None

    async def put(self, topics: frozenset[str]) -> None:
        """Register with these topics, unless this session has done so. Raises KeeperError."""
        wanted = (self._keeper.session, topics)
        if self._done == wanted:
            return
        path = self._layout.member(self._member)
        await put_ephemeral(self._keeper, path, encode_member(topics, self._clock()))
        self._done = wanted

    async def remove(self) -> None:
        """End the registration, whichever session made it. Raises KeeperError."""
        self._done = None
        try:
            await self._keeper.delete(self._layout.member(self._member))
        except NoNode:
            return

    async def read(self) -> Subscriptions:
        """Read and watch all registrations. Raises KeeperError.

        A registration that is not valid counts as one without topics: in the original it stops the whole group.
        """
        names = await self._names()
        found = await asyncio.gather(*map(self._read, names))
        return {name: topics for name, topics in zip(names, found, strict=True) if topics is not None}

    async def _names(self) -> list[str]:
        while True:
            try:
                return await self._keeper.children(self._layout.ids, self._watcher)
            except NoNode:
                # Make it, as the original does: only a znode that exists can be watched.
                with contextlib.suppress(NodeExists):
                    await create_with_parents(self._keeper, self._layout.ids, b"", ephemeral=False)

    async def _read(self, name: str) -> frozenset[str] | None:
        try:
            node = await self._keeper.get(self._layout.member(name), self._watcher)
        except NoNode:
            return None
        if name == self._member:
            self._check_own(node.session)
        try:
            return decode_member(node.data)
        except ValueError as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                logger.warning("group %s: member %s is ignored: %s", self._layout.group, name, error)
            return frozenset()

    def _check_own(self, session: int) -> None:
        strange = session != self._keeper.session
        if strange and not self._warned:
            logger.warning(
                "group %s: another session holds %s, this daemon's client_id: an earlier run of it, until "
                "zoo_keeper.session_timeout has passed, or another process with the same client_id",
                self._layout.group,
                self._member,
            )
        self._warned = strange


__all__ = ["Registration", "Subscriptions"]

"""Ephemeral znodes that a closed member did not delete: it had no connection, or ZooKeeper did not answer in time.

All groups of a daemon share a session, which would keep them: other members would wait for these claims.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from pixy.membership.zookeeper.keeper import Keeper, KeeperError, NoNode, State

logger = logging.getLogger("pixy.membership")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds between attempts over a connection that lasts."""


class Orphans:
    """Deletes znodes as soon as there is a connection. Forgets them when the session ends, as they do.

    Args:
        keeper: the connection.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._paths: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._pause = _FIRST_PAUSE
        keeper.listen(self._changed)

    def add(self, paths: Iterable[str]) -> None:
        """Delete these znodes: now, or once there is a connection."""
        self._paths.update(paths)
        self._begin()

    def adopt(self, path: str) -> None:
        """Keep a znode: a member uses it again. A deletion that was sent before takes effect before what follows."""
        self._paths.discard(path)

    def _changed(self, state: State) -> None:
        if state is State.EXPIRED:
            self._paths.clear()
        elif state is State.CONNECTED:
            self._pause = _FIRST_PAUSE
            self._begin()

    def _begin(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._paths and self._keeper.session is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._delete())

    async def _delete(self) -> None:
        failed: dict[str, KeeperError] = {}
        try:
            while waiting := sorted(self._paths.difference(failed)):
                for path in waiting:
                    try:
                        await self._delete_one(path)
                    except KeeperError as error:
                        failed[path] = error
                    else:
                        self._paths.discard(path)
        finally:
            self._task = None
        if self._paths:
            logger.info("%s stays for now: %s", *next(iter(failed.items())))
            # Without a connection the next one begins anew, and this timer finds nothing to do.
            self._again = asyncio.get_running_loop().call_later(self._pause, self._begin)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        else:
            self._pause = _FIRST_PAUSE

    async def _delete_one(self, path: str) -> None:
        try:
            own = (await self._keeper.get(path)).session == self._keeper.session
            if own and path in self._paths:  # not adopted meanwhile
                await self._keeper.delete(path)
        except NoNode:
            return

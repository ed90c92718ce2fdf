"""Ephemeral znodes that a closed member could not delete, because there was no connection.

All groups of a daemon share a session, which would keep them: other members would wait for these claims.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from pixy.membership.zookeeper.keeper import Keeper, KeeperError, State, delete_own

logger = logging.getLogger("pixy.membership")


class Orphans:
    """Deletes znodes once there is a connection again. Forgets them when the session ends, as they do.

    Args:
        keeper: the connection.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._paths: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        keeper.listen(self._changed)

    def add(self, paths: Iterable[str]) -> None:
        """Delete these znodes later."""
        self._paths.update(paths)

    def adopt(self, path: str) -> None:
        """Keep a znode: a member uses it again."""
        self._paths.discard(path)

    def _changed(self, state: State) -> None:
        if state is State.EXPIRED:
            self._paths.clear()
        elif state is State.CONNECTED and self._paths:
            self._task = asyncio.get_running_loop().create_task(self._delete())

    async def _delete(self) -> None:
        for path in sorted(self._paths):
            if path not in self._paths:
                continue  # adopted meanwhile
            try:
                await delete_own(self._keeper, path)
            except KeeperError as error:
                logger.info("%s stays until the next connection: %s", path, error)
                return
            self._paths.discard(path)

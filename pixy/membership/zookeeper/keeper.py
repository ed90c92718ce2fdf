"""A connection to ZooKeeper as the members of groups see it, and the operations that they build on it.

:class:`Keeper` is implemented with kazoo in :mod:`pixy.membership.zookeeper.connection`, and in memory, for
virtual time, in ``tests/unit/membership/zookeeper/model.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pixy.errors import PixyError


class KeeperError(PixyError):
    """ZooKeeper could not be asked, or refused."""


class NoNode(KeeperError):
    """The znode does not exist."""

    def __init__(self, text: str = "zk: node does not exist") -> None:
        super().__init__(text)


class NodeExists(KeeperError):
    """The znode exists already."""

    def __init__(self, text: str = "zk: node already exists") -> None:
        super().__init__(text)


class NotEmpty(KeeperError):
    """The znode has children."""

    def __init__(self, text: str = "zk: node has children") -> None:
        super().__init__(text)


class Disconnected(KeeperError):
    """There is no connection. The operation may have been carried out all the same."""

    def __init__(self, text: str = "zk: could not connect to a server") -> None:
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Znode:
    """A znode's data, and the session that an ephemeral one belongs to (0: it is persistent)."""

    data: bytes
    session: int


class State(enum.Enum):
    """A change of the connection."""

    CONNECTED = enum.auto()
    SUSPENDED = enum.auto()
    """The connection is lost; the session may outlive it."""
    EXPIRED = enum.auto()
    """The session has ended, and its ephemeral znodes with it; after a failure of the client only once the server notices."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A watched znode or its children changed; every watch ends with its first event.

    Args:
        path: of the znode; empty if the connection was lost and with it the watch.
        deleted: the znode is gone.
    """

    path: str
    deleted: bool


class Watcher(Protocol):
    """A registered function, from :meth:`Keeper.watcher`."""


class Keeper(Protocol):
    """A connection to ZooKeeper. Use it on the loop. Operations raise KeeperError."""

    @property
    def session(self) -> int | None:
        """The session's id while there is a connection."""

    def watcher(self, act: Callable[[WatchEvent], None]) -> Watcher:
        """Prepare a function to be called on the loop. A znode calls one watcher once, however often it is set."""

    def listen(self, act: Callable[[State], None]) -> Callable[[], None]:
        """Call a function on the loop when the connection changes. Return a function that ends this."""

    async def create(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        """Create a znode whose parent exists. Raises NodeExists and NoNode, too.

        Args:
            path: absolute, with the chroot.
            data: its content.
            ephemeral: it ends with the session.
        """

    async def get(self, path: str, watcher: Watcher | None = None) -> Znode:
        """Read a znode. Raises NoNode, too.

        Args:
            path: absolute, with the chroot.
            watcher: called once: the znode has changed or is gone, or the connection was lost; None: nobody.
        """

    async def children(self, path: str, watcher: Watcher | None = None) -> list[str]:
        """Return the names of a znode's children. Raises NoNode, too.

        Args:
            path: absolute, with the chroot.
            watcher: called once: a child has come or gone, the znode is gone, or the connection was lost; None: nobody.
        """

    async def set(self, path: str, data: bytes) -> None:
        """Replace a znode's data. Raises NoNode, too."""

    async def delete(self, path: str) -> None:
        """Delete a znode. Raises NoNode and NotEmpty, too."""


async def create_with_parents(keeper: Keeper, path: str, data: bytes, *, ephemeral: bool) -> None:
    """Create a znode and what is missing above it, while others may delete parents that are empty.

    Args:
        keeper: the connection.
        path: of the znode.
        data: its content.
        ephemeral: whether it ends with the session.

    Raises:
        NodeExists: it exists already.
        KeeperError: another failure.
    """
    while True:
        try:
            return await keeper.create(path, data, ephemeral=ephemeral)
        except NoNode:
            parent = path.rpartition("/")[0]
            if not parent:
                raise
        try:
            await create_with_parents(keeper, parent, b"", ephemeral=False)
        except NodeExists:
            continue  # somebody else made it


async def put_ephemeral(keeper: Keeper, path: str, data: bytes) -> None:
    """Set a znode's data, or create it as ephemeral. Raises KeeperError.

    Args:
        keeper: the connection.
        path: of the znode.
        data: its content.
    """
    while True:
        try:
            return await keeper.set(path, data)
        except NoNode:
            pass
        try:
            return await create_with_parents(keeper, path, data, ephemeral=True)
        except NodeExists:
            continue


async def delete_own(keeper: Keeper, path: str) -> None:
    """Delete an ephemeral znode if this session made it. Raises KeeperError.

    Args:
        keeper: the connection.
        path: of the znode.
    """
    try:
        if (await keeper.get(path)).session == keeper.session:
            await keeper.delete(path)
    except NoNode:
        return


async def delete_if_empty(keeper: Keeper, paths: list[str]) -> None:
    """Delete persistent znodes in turn, up to one that has children again. Raises KeeperError.

    Args:
        keeper: the connection.
        paths: of the znodes, children before their parents.
    """
    for path in paths:
        try:
            await keeper.delete(path)
        except NoNode:
            continue
        except NotEmpty:
            return

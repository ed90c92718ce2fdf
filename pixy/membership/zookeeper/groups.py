"""The groups of one cluster in ZooKeeper. They share a connection, which the first of them opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pixy.config.model import Proxy
from pixy.membership import Event, Session
from pixy.membership.zookeeper.connection import Connection
from pixy.membership.zookeeper.interfaces import Outlook
from pixy.membership.zookeeper.keeper import Disconnected, State
from pixy.membership.zookeeper.layout import Layout, check_name, is_name, normalize_chroot
from pixy.membership.zookeeper.orphans import Orphans
from pixy.membership.zookeeper.owners import Owners, read_all_owners, read_members, read_owners
from pixy.membership.zookeeper.session import ZooKeeperSession

_CONNECT_TIMEOUT = 5.0
"""Seconds that a look at the owners waits for a connection."""


class ZooKeeperGroups:
    """Belongs to the cluster's actor and runs on its loop.

    Args:
        proxy: the cluster's configuration.
        outlook: what members ask Kafka.
    """

    def __init__(self, proxy: Proxy, outlook: Outlook) -> None:
        self._proxy = proxy
        self._outlook = outlook
        self._chroot = normalize_chroot(proxy.zoo_keeper.chroot)
        self._open: tuple[Connection, Orphans] | None = None

    def session(self, group: str, post: Callable[[Event], None]) -> Session:
        """Open the session of a group. Raises InvalidParameter if ZooKeeper does not allow its id.

        Args:
            group: its id.
            post: called on the loop with each event, in order.
        """
        connection, orphans = self._connection()
        layout = Layout(self._chroot, check_name(group))
        return ZooKeeperSession(self._proxy, layout, post, connection, orphans, self._outlook)

    async def owners(self, topic: str, group: str = "") -> dict[str, Owners]:
        """Read who owns the partitions of a topic, or who is a member of a group.

        Args:
            topic: its name; empty for the members of the group, whatever they own, each without partitions.
            group: one group, or empty for all that have owners of the topic.

        Raises:
            UnknownGroup: there is no such group, or it does not consume the topic.
            KeeperError: ZooKeeper could not be asked.
        """
        if not topic and not is_name(group):
            return {}  # so that a group of Kafka's own, whose name no znode can have, can be deleted
        connection, _ = self._connection()
        await _connected(connection)
        if not topic:
            members = await read_members(connection, Layout(self._chroot, group))
            return {group: {each: [] for each in members}} if members else {}
        if not group:
            return await read_all_owners(connection, self._chroot, topic)
        found = await read_owners(connection, Layout(self._chroot, check_name(group)), topic)
        return {group: found} if found else {}

    async def close(self) -> None:
        """End the session, and with it what is left of its members."""
        found, self._open = self._open, None
        if found is not None:
            await found[0].close()

    def _connection(self) -> tuple[Connection, Orphans]:
        if self._open is None:
            connection = Connection(self._proxy.zoo_keeper)
            self._open = (connection, Orphans(connection))
        return self._open


async def _connected(connection: Connection) -> None:
    """Wait for a connection. Raises Disconnected."""
    if connection.session is not None:
        return
    ready = asyncio.Event()

    def changed(state: State) -> None:
        if state is State.CONNECTED:
            ready.set()

    end = connection.listen(changed)
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            await ready.wait()
    except TimeoutError:
        raise Disconnected from None
    finally:
        end()

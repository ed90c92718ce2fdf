"""Writes down when the groups in ZooKeeper change: Kafka, which tells of its own groups afterwards, does not know of these."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from tests.chaos.kit.record import Recorder

_EVERY = 0.25
"""Seconds between two looks; the checker grants a second."""


class ZookeeperGroups:
    """Watches the members and claims of groups, over a connection that no fault touches.

    Args:
        address: of ZooKeeper.
        groups: their names.
        records: get a ``groups`` event for each change.
    """

    def __init__(self, address: str, groups: Iterable[str], records: Recorder) -> None:
        self._client = KazooClient(address)
        self._seen: dict[str, object] = dict.fromkeys(groups, (set(), {}))
        self._records = records

    async def run(self, going: Callable[[], bool]) -> None:
        """Watch as long as ``going`` says so."""
        try:
            await asyncio.to_thread(self._client.start)
            while going():
                for group, seen in self._seen.items():
                    found = await asyncio.to_thread(self._look, group)
                    if found is not None and found != seen:
                        self._seen[group] = found
                        self._records.write("groups", t=time.time(), group=group)
                await asyncio.sleep(_EVERY)
        finally:
            await asyncio.to_thread(self._client.stop)
            self._client.close()

    def _look(self, group: str) -> object:
        """Return the members and the owner of each claimed partition; None if ZooKeeper does not answer."""
        path = f"/consumers/{group}"
        try:
            members = set(self._children(f"{path}/ids"))
            claims = {
                claim: self._data(claim)
                for topic in self._children(f"{path}/owners")
                for number in self._children(f"{path}/owners/{topic}")
                for claim in (f"{path}/owners/{topic}/{number}",)
            }
        except (KazooException, self._client.handler.timeout_exception):
            return None
        return members, claims

    def _children(self, path: str) -> list[str]:
        try:
            found: list[str] = self._client.get_children(path)
        except NoNodeError:
            return []
        return found

    def _data(self, path: str) -> bytes:
        try:
            found: bytes = self._client.get(path)[0]
        except NoNodeError:
            return b""
        return found


__all__ = ["ZookeeperGroups"]

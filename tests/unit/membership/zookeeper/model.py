"""ZooKeeper in memory, in virtual time: sessions, ephemeral znodes, watches, connections that break.

A request takes a while; requests of one connection keep their order. A request that was under way when the
connection broke fails, and was carried out or not. Watches end with the connection, as kazoo's do.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pixy.membership.zookeeper.keeper import (
    Disconnected,
    NodeExists,
    NoNode,
    NotEmpty,
    State,
    WatchEvent,
    Znode,
)


@dataclass(frozen=True, eq=False)
class Watcher:
    act: Callable[[WatchEvent], None]


class ZooKeeper:
    """The server: the tree and the sessions."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"": Znode(b"", 0)}
        self.sessions: set[int] = set()
        self._numbers = itertools.count(100)
        self._watches: dict[tuple[str, str], list[tuple[ModelKeeper, Watcher]]] = {}

    def open_session(self) -> int:
        session = next(self._numbers)
        self.sessions.add(session)
        return session

    def expire(self, session: int) -> None:
        self.sessions.discard(session)
        for path in [path for path, node in self.nodes.items() if node.session == session]:
            self.delete(path)

    def children(self, path: str) -> list[str]:
        self.get(path)
        prefix = f"{path}/"
        return [
            each[len(prefix) :]
            for each in self.nodes
            if each.startswith(prefix) and "/" not in each[len(prefix) :]
        ]

    def get(self, path: str) -> Znode:
        if path not in self.nodes:
            raise NoNode
        return self.nodes[path]

    def create(self, path: str, data: bytes, session: int) -> None:
        parent = path.rpartition("/")[0]
        if path in self.nodes:
            raise NodeExists
        if parent not in self.nodes:
            raise NoNode
        self.nodes[path] = Znode(data, session)
        self._fire("data", path, deleted=False)
        self._fire("children", parent, deleted=False)

    def set(self, path: str, data: bytes) -> None:
        self.nodes[path] = Znode(data, self.get(path).session)
        self._fire("data", path, deleted=False)

    def delete(self, path: str) -> None:
        self.get(path)
        if self.children(path):
            raise NotEmpty
        del self.nodes[path]
        self._fire("data", path, deleted=True)
        self._fire("children", path, deleted=True)
        self._fire("children", path.rpartition("/")[0], deleted=False)

    def watch(self, kind: str, path: str, keeper: ModelKeeper, watcher: Watcher | None) -> None:
        if watcher is not None:
            found = self._watches.setdefault((kind, path), [])
            if (keeper, watcher) not in found:
                found.append((keeper, watcher))

    def forget(self, keeper: ModelKeeper) -> list[Watcher]:
        """Remove a connection's watches; return them."""
        removed = []
        for watches in self._watches.values():
            removed += [watcher for owner, watcher in watches if owner is keeper]
            watches[:] = [each for each in watches if each[0] is not keeper]
        return removed

    def _fire(self, kind: str, path: str, *, deleted: bool) -> None:
        for keeper, watcher in self._watches.pop((kind, path), []):
            keeper.notify(watcher, WatchEvent(path, deleted))


class ModelKeeper:
    """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""

    def __init__(self, server: ZooKeeper, rng: random.Random) -> None:
        self.server = server
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[object, Callable[[State], None]] = {}
        self._held = server.open_session()
        self._connection: object | None = object()
        self._last = 0.0

    @property
    def session(self) -> int | None:
        return self._held if self._connection is not None else None

    def watcher(self, act: Callable[[WatchEvent], None]) -> Watcher:
        return Watcher(act)

    def listen(self, act: Callable[[State], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = act

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    def notify(self, watcher: Watcher, event: WatchEvent) -> None:
        self._loop.call_later(self._rng.random() * 0.01, watcher.act, event)

    async def create(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        await self._ask(lambda: self.server.create(path, data, self._held if ephemeral else 0))

    async def get(self, path: str, watcher: Any = None) -> Znode:
        def act() -> Znode:
            node = self.server.get(path)
            self.server.watch("data", path, self, watcher)
            return node

        return await self._ask(act)

    async def children(self, path: str, watcher: Any = None) -> list[str]:
        def act() -> list[str]:
            names = self.server.children(path)
            self.server.watch("children", path, self, watcher)
            return names

        return await self._ask(act)

    async def set(self, path: str, data: bytes) -> None:
        await self._ask(lambda: self.server.set(path, data))

    async def delete(self, path: str) -> None:
        await self._ask(lambda: self.server.delete(path))

    async def _ask(self, act: Callable[[], Any]) -> Any:
        connection = self._connection
        if connection is None:
            raise Disconnected
        answer = self._loop.create_future()
        self._last = max(self._last, self._loop.time() + self._rng.random() * 0.005)

        def carry_out() -> None:
            # The server may still carry out what it received before the connection broke.
            if self._connection is connection or (
                self._held in self.server.sessions and self._rng.random() < 0.5
            ):
                try:
                    result = act()
                except Exception as error:
                    self._settle(connection, answer, None, error)
                else:
                    self._settle(connection, answer, result, None)
            else:
                self._settle(connection, answer, None, None)

        self._loop.call_at(self._last, carry_out)
        return await answer

    def _settle(self, connection: object, answer: asyncio.Future[Any], result: Any, error: Any) -> None:
        if answer.done():
            return
        if self._connection is not connection:
            answer.set_exception(Disconnected())
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    # -- what the test makes happen ---------------------------------------------------------------

    def drop(self) -> None:
        """Break the connection."""
        self._connection = None
        for watcher in self.server.forget(self):
            self.notify(watcher, WatchEvent("", deleted=False))
        self._tell(State.SUSPENDED)

    def expire(self) -> None:
        """Let the session end at the server; the client hears of it when it is connected again."""
        self.server.expire(self._held)

    def reconnect(self) -> None:
        """Connect again, with a new session if the old one has expired."""
        if self._held not in self.server.sessions:
            self._tell(State.EXPIRED)
            self._held = self.server.open_session()
        self._connection = object()
        self._tell(State.CONNECTED)

    def kill(self) -> None:
        """End the process that has this connection: nothing reaches it any more."""
        self._connection = None
        self._listeners.clear()
        self.server.forget(self)

    def _tell(self, state: State) -> None:
        for act in tuple(self._listeners.values()):
            act(state)

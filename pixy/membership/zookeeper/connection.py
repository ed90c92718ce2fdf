"""ZooKeeper through kazoo: the one module that imports it, and only where a group needs it.

kazoo (2.11) runs three threads; its asynchronous calls return at once and end in one of these threads, from
where this module passes the result to the loop. A request that kazoo gets while it is not connected waits
for a connection without limit; such a request is refused here instead.

The thread that holds the connection ends for good with an error that kazoo does not expect: one of the system's while it
looks up the servers' names (too many open files), or an answer to another request. kazoo tells nobody. So each thread tells
its end here, and a new client takes the old one's place. It has a new session; the old one expires at the server.

A server hangs up on a client that has seen later changes than its own (zxid): it may be a follower that lags. One that has lost its
data, or has an older copy, does so for ever. So a client that has not been taken back for a session forgets what it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from pixy.config.model import ZooKeeper
from pixy.membership.zookeeper.keeper import (
    Disconnected,
    KeeperError,
    NodeExists,
    NoNode,
    NotEmpty,
    State,
    Watcher,
    WatchEvent,
    Znode,
)

logger = logging.getLogger("pixy.zookeeper")

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds between attempts to connect."""
_RESTART_PAUSE = 2.0
"""Seconds before a new client takes the place of one that has ended."""
_ERRORS: dict[type[KazooException], type[KeeperError]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    NotEmptyError: NotEmpty,
    ConnectionLoss: Disconnected,
    ConnectionClosedError: Disconnected,
    SessionExpiredError: Disconnected,
}
_STATES = {
    KazooState.CONNECTED: State.CONNECTED,
    KazooState.SUSPENDED: State.SUSPENDED,
    KazooState.LOST: State.EXPIRED,
}


class _Watcher:
    """Passes an event of one of kazoo's threads to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[WatchEvent], None]) -> None:
        self._loop = loop
        self._act = act

    def __call__(self, event: Any) -> None:
        seen = WatchEvent(event.path or "", event.type == EventType.DELETED)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._act, seen)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, each of which tells when it ends.

    Args:
        ended: called in a thread that ends, with the error that it ends with, if there is one.
    """

    def __init__(self, ended: Callable[[Exception | None], None]) -> None:
        super().__init__()
        self._ended = ended

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See :class:`kazoo.interfaces.IHandler`."""

        def run() -> None:
            failed: Exception | None = None
            try:
                func(*args, **kwargs)
            except Exception as error:
                failed = error
            self._ended(failed)

        return super().spawn(run)


class Connection:
    """See :class:`pixy.membership.zookeeper.keeper.Keeper`. Connects in the background, for as long as it takes.

    Args:
        conf: addresses and session timeout. The caller prefixes paths with the chroot, which may not exist yet.
    """

    def __init__(self, conf: ZooKeeper) -> None:
        self._conf = conf
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[object, Callable[[State], None]] = {}
        self._session: int | None = None
        self._closed = False
        self._restarting: asyncio.Task[None] | None = None
        self._over: asyncio.TimerHandle | None = None
        """Forgets what was seen, when the connection has been lost for a session."""
        self._client = self._new_client()
        self._client.start_async()

    def _new_client(self) -> Any:
        client = KazooClient(
            hosts=",".join(self._conf.seed_peers),
            timeout=self._conf.session_timeout,
            connection_retry=KazooRetry(max_tries=-1, delay=_FIRST_PAUSE, max_delay=_LONGEST_PAUSE),
            handler=_Handler(lambda error: self._post(lambda: self._ended(client, error))),
            logger=logger,
        )
        client.add_listener(lambda state: self._changed(client, state))
        return client

    @property
    def session(self) -> int | None:
        """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""
        return self._session

    def watcher(self, act: Callable[[WatchEvent], None]) -> Watcher:
        """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""
        return _Watcher(self._loop, act)

    def listen(self, act: Callable[[State], None]) -> Callable[[], None]:
        """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""
        key = object()
        self._listeners[key] = act

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    async def create(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""
        # kazoo's own default ACL is the same, world:anyone; the original sets it, too.
        await self._ask(self._client.create_async, path, data, OPEN_ACL_UNSAFE, ephemeral)

    async def get(self, path: str, watcher: Watcher | None = None) -> Znode:
        """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""
        data, stat = await self._ask(self._client.get_async, path, watcher)
        return Znode(
            data or b"", stat.ephemeralOwner
        )  # the original makes parents without data, not with empty

    async def children(self, path: str, watcher: Watcher | None = None) -> list[str]:
        """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""
        return list(await self._ask(self._client.get_children_async, path, watcher))

    async def set(self, path: str, data: bytes) -> None:
        """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""
        await self._ask(self._client.set_async, path, data)

    async def delete(self, path: str) -> None:
        """See :class:`pixy.membership.zookeeper.keeper.Keeper`."""
        await self._ask(self._client.delete_async, path)

    async def close(self) -> None:
        """End the session, and with it its ephemeral znodes."""
        self._closed = True
        self._listeners.clear()
        self._wait_for_it(None)
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait([self._restarting])
        await asyncio.to_thread(_end, self._client)

    def _ended(self, client: Any, error: Exception | None) -> None:
        """Replace a client of which a thread has ended, unless it is to end."""
        if client is not self._client or self._closed or self._restarting is not None:
            return
        why = "" if error is None else f": {str(error) or type(error).__name__}"
        logger.error("ZooKeeper's client has ended%s; connecting anew in %.0f s", why, _RESTART_PAUSE)
        self._restarting = self._loop.create_task(self._restart())

    async def _restart(self) -> None:
        while True:
            await asyncio.sleep(_RESTART_PAUSE)
            await asyncio.to_thread(_end, self._client)
            self._client = self._new_client()
            try:
                self._client.start_async()
            except (OSError, RuntimeError) as error:  # no file or no thread is left
                logger.error("ZooKeeper's client does not start: %s", error)
            else:
                # A thread that has ended already tells so after this.
                self._restarting = None
                return

    async def _ask(self, operation: Callable[..., Any], *args: Any) -> Any:
        if self._session is None:
            raise Disconnected
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle(result: Any) -> None:
            if future.done():  # cancelled
                return
            if result.exception is None:
                future.set_result(result.value)
            else:
                future.set_exception(_translate(result.exception))

        def done(result: Any) -> None:  # in one of kazoo's threads
            self._post(lambda: settle(result))

        operation(*args).rawlink(done)
        return await future

    def _changed(self, client: Any, state: Any) -> None:  # in one of kazoo's threads
        session = client.client_id
        self._post(lambda: self._note(client, _STATES[state], session[0] if session else None))

    def _note(self, client: Any, state: State, session: int | None) -> None:
        if client is not self._client:
            return
        self._session = session if state is State.CONNECTED else None
        self._wait_for_it(client if state is State.SUSPENDED else None)
        for act in tuple(self._listeners.values()):
            act(state)

    def _wait_for_it(self, client: Any) -> None:
        """Begin to wait for a lost connection; None ends the wait."""
        if self._over is not None:
            self._over.cancel()
        self._over = client and self._loop.call_later(self._conf.session_timeout, self._forget_seen, client)

    def _forget_seen(self, client: Any) -> None:
        logger.warning(
            "ZooKeeper has not taken the session back for %.0f s: from now on a server that has lost its data, or has an older "
            "copy, may serve it, too",
            self._conf.session_timeout,
        )
        client.last_zxid = 0  # an int, which kazoo's thread reads when it connects

    def _post(self, act: Callable[[], None]) -> None:
        """Call a function on the loop. Any thread may call this."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(act)


def _end(client: Any) -> None:
    """End a client and its session. Blocking."""
    try:
        client.stop()
        client.close()
    except (KazooException, OSError) as error:
        logger.warning("closing the session: %s", error)
    except Exception as error:  # of a client that did not start or does not stop: nothing is left to do
        logger.debug("closing the session: %s", error)


def _translate(error: BaseException) -> KeeperError:
    known = _ERRORS.get(type(error))
    return known() if known is not None else KeeperError(f"zk: {error or type(error).__name__}")


__all__ = ["Connection"]

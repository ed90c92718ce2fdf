"""One reader of the monitor's stream, and the frames that wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from actors._errors import ActorError

if TYPE_CHECKING:
    from actors._system import ActorSystem

BUFFER_FRAMES = 512
"""Most frames that wait for one watcher; with more it is too slow."""

BUFFER_BYTES = 16 * 1024 * 1024
"""Most bytes that wait for one watcher; with more it is too slow."""

MAX_OPENED = 16
"""Most actors that one watcher may have opened."""


class SlowWatcher(ActorError):
    """A watcher did not read fast enough and was cut off. Watch again for a new snapshot."""


class Source(Protocol):
    """The part of :class:`actors.tracing.monitor.Monitor` that a watcher calls."""

    system: ActorSystem
    disconnected: int

    def join(self, watcher: Watcher) -> None:
        """Add a watcher and send it a snapshot."""

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher."""

    def catch_up(self, watcher: Watcher) -> None:
        """Send a snapshot to a watcher that was paused, soon."""

    def adjust(self) -> None:
        """Start or stop the timer and the subscriptions, depending on who still watches."""

    def details(self, path: str, now: int) -> bytes:
        """Pack a ``details`` frame.

        Args:
            path: the actor's.
            now: the system's clock, in ns.
        """


class Watcher:
    """A stream of packed frames: ``async for frame in watcher``; :func:`decode` unpacks them.

    :meth:`actors.tracing.monitor.Monitor.watch` creates one and describes the arguments. Iteration ends when
    the watcher or the monitor is closed, and raises :class:`SlowWatcher` when the watcher was cut off.
    """

    def __init__(
        self, source: Source, pattern: str, page: int, max_rows: int, *, asks: bool, flow: bool
    ) -> None:
        self.filter = (pattern, page, max_rows)
        self.opened: dict[str, None] = {}
        self.asks, self.flow = asks, flow
        self.paused = False
        self.current = False
        """Whether it has had its snapshot and gets the changes."""
        self._source = source
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = self._slow = False

    async def __aenter__(self) -> Watcher:
        self._source.join(self)
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> bytes:
        while not self._frames:
            if self._slow:
                raise SlowWatcher(f"more than {BUFFER_FRAMES} frames or {BUFFER_BYTES} bytes waited")
            if self._ended:
                raise StopAsyncIteration
            self._waiter = self._source.system.loop.create_future()
            await self._waiter
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        return frame

    def open(self, path: str) -> None:
        """Send details of an actor, now and with each tick.

        Raises:
            ValueError: ``MAX_OPENED`` actors are open already.
        """
        if path not in self.opened and len(self.opened) >= MAX_OPENED:
            raise ValueError(f"{MAX_OPENED} actors are open already")
        self.opened[path] = None
        if not self.paused:
            self.put(self._source.details(path, self._source.system.clock()))

    def close(self, path: str) -> None:
        """Stop sending details of an actor; do nothing if it is not open."""
        self.opened.pop(path, None)

    def pause(self) -> None:
        """Send nothing until :meth:`resume`."""
        self.paused, self.current = True, False
        self._source.adjust()

    def resume(self) -> None:
        """End the pause with a new snapshot."""
        if self.paused and not self._ended:
            self.paused = False
            self._source.catch_up(self)

    def leave(self) -> None:
        """End the stream; frames that wait can still be read."""
        if not self._ended:
            self._ended = True
            self._source.leave(self)
            self._wake()

    def put(self, frame: bytes) -> None:
        """Add a frame to the buffer; cut the watcher off if the buffer is full."""
        if self._ended:
            return
        self._frames.append(frame)
        self._bytes += len(frame)
        if len(self._frames) > BUFFER_FRAMES or self._bytes > BUFFER_BYTES:
            self._frames.clear()
            self._bytes = 0
            self._slow = True
            self._source.disconnected += 1
            self.leave()
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


__all__ = ["SlowWatcher", "Source", "Watcher"]

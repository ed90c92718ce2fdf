"""One reader of the monitor's stream, with what waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from actors._errors import ActorError

if TYPE_CHECKING:
    from actors.tracing.monitor import Monitor

BUFFER_FRAMES = 512
"""Frames that wait for one watcher; with more it is too slow."""

BUFFER_BYTES = 16 * 1024 * 1024
"""Bytes that wait for one watcher; with more it is too slow."""

MAX_OPENED = 16
"""Actors that one watcher may have opened."""


class SlowWatcher(ActorError):
    """A watcher did not read fast enough and was cut off. Watch again for a new snapshot."""


class Watcher:
    """One stream of packed frames: ``async for frame in watcher``; see :func:`decode`.

    Iteration ends when the watcher (or the monitor) is closed; it raises :class:`SlowWatcher` when
    the watcher was cut off.
    """

    def __init__(
        self, monitor: Monitor, pattern: str, page: int, max_rows: int, *, asks: bool, flow: bool
    ) -> None:
        self.filter = (pattern, page, max_rows)
        self.opened: dict[str, None] = {}
        self.asks, self.flow = asks, flow
        self.paused = False
        self._monitor = monitor
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = self._slow = False

    async def __aenter__(self) -> Watcher:
        self._monitor.join(self)
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
            self._waiter = self._monitor.system.loop.create_future()
            await self._waiter
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        return frame

    def open(self, path: str) -> None:
        """Get details of an actor: now, and with each tick.

        Raises:
            ValueError: ``MAX_OPENED`` are open.
        """
        if path not in self.opened and len(self.opened) >= MAX_OPENED:
            raise ValueError(f"{MAX_OPENED} actors are open already")
        self.opened[path] = None
        if not self.paused:
            self.put(self._monitor.details(path, self._monitor.system.clock()))

    def close(self, path: str) -> None:
        """No more details of an actor; nothing if it was not open."""
        self.opened.pop(path, None)

    def pause(self) -> None:
        """Nothing more until :meth:`resume`."""
        self.paused = True
        self._monitor.adjust()

    def resume(self) -> None:
        """Go on, with a new snapshot."""
        if self.paused and not self._ended:
            self.paused = False
            self._monitor.catch_up(self)

    def leave(self) -> None:
        """End the stream; what waits can still be read."""
        if not self._ended:
            self._ended = True
            self._monitor.leave(self)
            self._wake()

    def put(self, frame: bytes) -> None:
        """One more frame; one too many cuts the watcher off."""
        if self._ended:
            return
        self._frames.append(frame)
        self._bytes += len(frame)
        if len(self._frames) > BUFFER_FRAMES or self._bytes > BUFFER_BYTES:
            self._frames.clear()
            self._bytes = 0
            self._slow = True
            self._monitor.disconnected += 1
            self.leave()
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


__all__ = ["SlowWatcher", "Watcher"]

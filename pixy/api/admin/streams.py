"""The console's open streams: how many a caller may have, and the end of those whose caller may no longer look.

A request is checked when it comes; a stream stays open for days. So its caller is recognized again, by what he has shown when
it began: before frames are sent, and every :data:`LOOK` seconds for pages to which nothing is sent. It costs some microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from aiohttp import web

from pixy.api.edge.callers import address_share
from pixy.auth.patterns import EVERYTHING
from pixy.auth.principal import Caller
from pixy.auth.rules import Access
from pixy.engine.guard import Guard

PAGES: Final = 16
"""Streams of one caller: the principal, or the address without ``auth``. The console serves 64 pages in all."""
LOOK: Final = 1.0
"""Seconds between two looks at the streams to which nothing is sent."""


class TooManyPages(Exception):
    """A caller has :data:`PAGES` streams."""


class _Stream:
    """One of them."""

    def __init__(self, request: web.Request, caller: Caller | None) -> None:
        self.request = request
        self.name = address_share(request) if caller is None else caller.principal.name
        self.caller = caller


class Streams:
    """All of them.

    Args:
        guard: knows callers and rights; None: everybody may look.
        clusters: the names of all: whoever looks at the daemon looks at all of them.
    """

    def __init__(self, guard: Guard | None, clusters: tuple[str, ...]) -> None:
        self._guard = guard
        self._clusters = clusters
        self._open: dict[int, _Stream] = {}
        """By the identity of the request, which lasts as long."""
        self._pages: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def begin(self, request: web.Request) -> Iterator[None]:
        """Hold a stream for a ``with`` block; its caller has been admitted. Raises TooManyPages."""
        guard = self._guard
        stream = _Stream(request, None if guard is None else guard.caller())
        if self._pages[stream.name] >= PAGES:
            raise TooManyPages(f"{PAGES} pages of this caller watch already")
        self._pages[stream.name] += 1
        self._open[id(request)] = stream
        if self._timer is None and guard is not None:
            self._timer = asyncio.get_running_loop().call_later(LOOK, self._look)
        try:
            yield
        finally:
            del self._open[id(request)]
            self._pages[stream.name] -= 1
            if not self._pages[stream.name]:
                del self._pages[stream.name]

    def allowed(self, request: web.Request) -> bool:
        """Return whether the caller of a stream would still be admitted."""
        guard, stream = self._guard, self._open.get(id(request))
        if guard is None or stream is None or (caller := stream.caller) is None:
            return True  # of a stream that has come through another worker, that one knows the caller
        again = guard.authenticator.again(caller)
        if again is None:
            return False
        caller = stream.caller = again
        accesses = (Access("console", name, EVERYTHING, EVERYTHING) for name in self._clusters)
        return all(guard.allows(caller, each) for each in accesses)

    def _look(self) -> None:
        """End the streams whose callers may no longer look."""
        self._timer = None
        for stream in tuple(self._open.values()):
            transport = stream.request.transport
            if transport is not None and not self.allowed(stream.request):
                transport.abort()
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(LOOK, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


__all__ = ["LOOK", "PAGES", "Streams", "TooManyPages"]

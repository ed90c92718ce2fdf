"""Render long answers in slices, so that neither one of them nor many at the same time keep the event loop from requests."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from aiohttp import web

from pixy.api.edge.callers import address_share
from pixy.api.edge.pace import Pace

T = TypeVar("T")

RENDERINGS: Final = 4
"""Answers of ``/debug`` that are rendered at the same time; one more is refused with 503. An operator looks at one."""
SLICE: Final = 0.004
"""Seconds of rendering before requests have their turn."""


class TooManyRenderings(Exception):
    """:data:`RENDERINGS` answers are being rendered."""


class Slices:
    """The turns of one answer.

    Args:
        steps: gives turns to what takes long, at all listeners.
        caller: whose turns they are.
    """

    def __init__(self, steps: Pace, caller: str) -> None:
        self._steps = steps
        self._caller = caller
        self._until = 0.0

    async def turn(self) -> None:
        """Let requests have their turn, if this answer has been rendered for :data:`SLICE` since its last turn."""
        if time.monotonic() < self._until:
            return
        await self._steps.wait(self._steps.queue(self._caller), self._caller)
        self._until = time.monotonic() + SLICE

    async def each(self, items: Iterable[T], call: Callable[[T], Any]) -> list[Any]:
        """Return what a function returns for each item."""
        found = []
        for item in items:
            await self.turn()
            found.append(call(item))
        return found

    async def document(self, about: dict[str, Any], name: str, rows: Iterable[Any]) -> web.Response:
        """Return a JSON object as an answer.

        Args:
            about: its short values.
            name: the key of its rows.
            rows: encoded in slices.
        """
        texts = await self.each(rows, json.dumps)
        begin = json.dumps(about)[:-1]
        text = f"{begin}{', ' if about else ''}{json.dumps(name)}: [{', '.join(texts)}]}}"
        return web.Response(text=text, content_type="application/json")


class Renderings:
    """The long answers that are being rendered.

    Args:
        steps: gives turns to what takes long, at all listeners.
    """

    def __init__(self, steps: Pace) -> None:
        self._steps = steps
        self.open = 0

    @contextlib.contextmanager
    def begin(self, request: web.Request) -> Iterator[Slices]:
        """Render an answer for a ``with`` block. Raises TooManyRenderings."""
        if self.open >= RENDERINGS:
            raise TooManyRenderings(f"{RENDERINGS} answers of /debug are being made already")
        self.open += 1
        try:
            yield Slices(self._steps, address_share(request))
        finally:
            self.open -= 1


__all__ = ["RENDERINGS", "SLICE", "Renderings", "Slices", "TooManyRenderings"]

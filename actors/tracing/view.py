"""One filter's view of the actors, shared by all watchers with that filter."""

from __future__ import annotations

import asyncio
import fnmatch
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actors.tracing import protocol
from actors.tracing.census import SLICE, Census
from actors.tracing.codec import encode

if TYPE_CHECKING:
    from actors._system import ActorSystem
    from actors.tracing.watcher import Watcher


class View:
    """The matching actors as of the last look, and the watchers that see them.

    Args:
        system: the system to look at.
        pattern: shell pattern for the paths of the actors.
        page: most rows in one frame of a snapshot.
        max_rows: most actors; those found first stay.
    """

    def __init__(self, system: ActorSystem, pattern: str, page: int, max_rows: int) -> None:
        self.watchers: list[Watcher] = []
        self.matches = re.compile(fnmatch.translate(pattern)).match
        self.page = page
        self.census = Census(system, self.matches, max_rows)
        self.turn = asyncio.Lock()
        """Held while the view looks at its actors or sends a snapshot, both of which let the loop turn."""
        self._system = system

    def active(self) -> list[Watcher]:
        """Return the watchers that are not paused."""
        return [each for each in self.watchers if not each.paused]

    def current(self) -> list[Watcher]:
        """Return the active watchers that have had their snapshot."""
        return [each for each in self.active() if each.current]

    def send(self, packed: bytes) -> None:
        """Give a packed frame to all watchers that have had their snapshot."""
        for watcher in self.current():
            watcher.put(packed)

    def deltas(self, now: int) -> Iterator[bytes | None]:
        """Look at all actors and pack the changes: a frame for each ``SLICE`` of them, None for a step without a frame.

        Args:
            now: the current time in nanoseconds of the system's clock.
        """
        census = self.census
        new: list[tuple[Any, ...]] = []
        dirty: list[tuple[Any, ...]] = []
        for seen in census.round(now):
            if len(dirty) + len(seen.dirty) > SLICE:
                yield pack(
                    "delta", now, window=0.0, new=new, dirty=dirty, gone=[], hidden=census.hidden, more=True
                )
                new, dirty = [], []
            new += [protocol.identity(sample.cell, sample.id) for sample in seen.new]
            dirty += [sample.row for sample in seen.dirty]
            yield None
        gone, hidden = census.gone, census.hidden
        yield pack(
            "delta", now, window=census.window, new=new, dirty=dirty, gone=gone, hidden=hidden, more=False
        )

    def snapshot(self) -> Iterator[bytes]:
        """Pack the frames of a snapshot as of the last look: at least one, even without actors."""
        every, at = list(self.census.samples.values()), self.census.at
        pages = max(1, -(-len(every) // self.page))
        wall = time.time_ns() - (self._system.clock() - at)
        for number in range(pages):
            part = every[number * self.page : (number + 1) * self.page]
            yield pack(
                "snapshot",
                at,
                page=number + 1,
                pages=pages,
                wall=wall,
                hidden=self.census.hidden,
                new=[protocol.identity(sample.cell, sample.id) for sample in part],
                dirty=[sample.row for sample in part],
            )


def pack(kind: str, at: int, **data: Any) -> bytes:
    """Build and pack a frame.

    Args:
        kind: the frame's kind, see :mod:`actors.tracing.protocol`.
        at: the moment that the data describes, in nanoseconds of the system's clock.
        data: the frame's other keys.
    """
    return encode({"v": protocol.VERSION, "kind": kind, "at": at, **data})


__all__ = ["View", "pack"]

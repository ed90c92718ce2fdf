"""One filter's view of the actors, shared by all watchers with that filter."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actors.tracing import protocol
from actors.tracing.codec import encode
from actors.tracing.protocol import Sample

if TYPE_CHECKING:
    from actors._core.cell import Cell
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
        self.max_rows = max_rows
        self.at = self.hidden = 0
        self._system = system
        self._samples: dict[Cell, Sample] = {}
        self._last_id = 0

    def active(self) -> list[Watcher]:
        """Return the watchers that are not paused."""
        return [each for each in self.watchers if not each.paused]

    def send(self, frames: Iterator[bytes]) -> None:
        """Give each packed frame to all active watchers."""
        for packed in frames:
            for watcher in self.active():
                watcher.put(packed)

    def look(self, now: int) -> dict[str, Any]:
        """Look at all actors and return the data of a ``delta`` frame.

        Args:
            now: the current time in nanoseconds of the system's clock.
        """
        window = (now - self.at) / 1e9 if self.at else 0.0
        samples, self._samples = self._samples, {}
        new: list[tuple[Any, ...]] = []
        dirty: list[tuple[Any, ...]] = []
        unseen: list[Cell] = []
        for cell in self._system.walk():
            sample = samples.pop(cell, None)
            if sample is None:
                if self.matches(cell.path):
                    unseen.append(cell)
                continue
            self._samples[cell] = sample
            if sample.read(cell, window):
                dirty.append(sample.row)
        room = self.max_rows - len(self._samples)
        for cell in unseen[:room]:
            self._last_id += 1
            sample = self._samples[cell] = Sample(self._last_id)
            sample.read(cell, 0.0)
            new.append(protocol.identity(cell, sample.id))
            dirty.append(sample.row)
        self.at, self.hidden = now, max(0, len(unseen) - room)
        gone = [sample.id for sample in samples.values()]
        return {"window": window, "new": new, "dirty": dirty, "gone": gone, "hidden": self.hidden}

    def snapshot(self) -> Iterator[bytes]:
        """Pack the frames of a snapshot as of the last look: at least one, even without actors."""
        every = list(self._samples.items())
        pages = max(1, -(-len(every) // self.page))
        wall = time.time_ns() - (self._system.clock() - self.at)
        for number in range(pages):
            part = every[number * self.page : (number + 1) * self.page]
            yield pack(
                "snapshot",
                self.at,
                page=number + 1,
                pages=pages,
                wall=wall,
                hidden=self.hidden,
                new=[protocol.identity(cell, sample.id) for cell, sample in part],
                dirty=[sample.row for _, sample in part],
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

"""What watchers with one filter share."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actors.tracing import protocol
from actors.tracing.export import encode
from actors.tracing.protocol import Sample

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._system import ActorSystem
    from actors.tracing.watcher import Watcher


class Group:
    """The samples of its actors, and the packed frames."""

    def __init__(self, system: ActorSystem, pattern: str, page: int, max_rows: int) -> None:
        self.watchers: list[Watcher] = []
        self.matches = re.compile(fnmatch.translate(pattern)).match
        self.page = page
        self.max_rows = max_rows
        self.at = self.hidden = 0
        self._system = system
        self._samples: dict[Cell, Sample] = {}
        self._ids = 0

    def active(self) -> list[Watcher]:
        """Those that are not paused."""
        return [each for each in self.watchers if not each.paused]

    def send(self, frames: Iterator[bytes]) -> None:
        """Give all active watchers what each frame is packed to, once."""
        for frame in frames:
            for watcher in self.active():
                watcher.put(frame)

    def look(self, now: int) -> dict[str, Any]:
        """Look at all actors; the data of a ``delta`` frame."""
        window = (now - self.at) / 1e9 if self.at else 0.0
        samples, self._samples = self._samples, {}
        new: list[tuple[Any, ...]] = []
        dirty: list[tuple[Any, ...]] = []
        unseen: list[Cell] = []
        for cell in self._system._walk():
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
            self._ids += 1
            sample = self._samples[cell] = Sample(self._ids)
            sample.read(cell, 0.0)
            new.append(protocol.identity(cell, sample.id))
            dirty.append(sample.row)
        self.at, self.hidden = now, max(0, len(unseen) - room)
        gone = [sample.id for sample in samples.values()]
        return {"window": window, "new": new, "dirty": dirty, "gone": gone, "hidden": self.hidden}

    def snapshot(self) -> Iterator[bytes]:
        """The frames of a snapshot as of the last look; one at least."""
        every = list(self._samples.items())
        pages = max(1, -(-len(every) // self.page))
        wall = time.time_ns() - (self._system.clock() - self.at)
        for number in range(pages):
            part = every[number * self.page : (number + 1) * self.page]
            yield frame(
                "snapshot",
                self.at,
                page=number + 1,
                pages=pages,
                wall=wall,
                hidden=self.hidden,
                new=[protocol.identity(cell, sample.id) for cell, sample in part],
                dirty=[sample.row for _, sample in part],
            )


def frame(kind: str, at: int, **data: Any) -> bytes:
    """A packed frame; ``at`` is the moment of its data, in nanoseconds of the system's clock."""
    return encode({"v": protocol.VERSION, "kind": kind, "at": at, **data})


__all__ = ["Group", "frame"]

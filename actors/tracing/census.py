"""The actors of a system as of the last look, which is made in slices.

A look at a busy actor takes some 12 microseconds, at 10,000 of them 124 ms: the loop would stand still as long. So a
round is a generator that looks at ``SLICE`` actors at a time (2.5 ms); the loop turns in between. Actors may start and
stop meanwhile; all rates are computed with the actor's own time between two looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from actors._core.inspection import walking
from actors.tracing.protocol import Sample

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._system import ActorSystem

T = TypeVar("T")

SLICE = 200
"""Most actors to look at before the loop turns."""

GLANCE = 2_000
"""Most items to go through before the loop turns if no more than a comparison or an addition is done with each."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A part of a round: actors that are new, and all that are new or changed."""

    new: list[Sample]
    dirty: list[Sample]


class Census:
    """The matching actors as of the last round.

    Args:
        system: the system to look at.
        matches: whether the census covers the actor at a path.
        most: most actors; those found first stay.
    """

    def __init__(self, system: ActorSystem, matches: Callable[[str], object], most: int) -> None:
        self.system = system
        self.matches = matches
        self.most = most
        self.at = 0
        """When the last round began, in nanoseconds of the system's clock."""
        self.window = 0.0
        """Seconds between the last two rounds; 0 before the second."""
        self.hidden = 0
        """How many matching actors the last round has left out because of ``most``."""
        self.samples: dict[Cell, Sample] = {}
        self.gone: list[int] = []
        """The ids of the actors that the last round no longer found."""
        self._last_id = 0

    def round(self, now: int) -> Generator[Seen, None, None]:
        """Look at all actors, ``SLICE`` of them a step; ``samples`` and the rest change at the end.

        Args:
            now: the current time in nanoseconds of the system's clock.
        """
        window = (now - self.at) / 1e9 if self.at else 0.0
        before = self.samples
        samples: dict[Cell, Sample] = {}
        unseen: list[Cell] = []
        for cells in slices(walking(self.system.top), SLICE):
            dirty = []
            for cell in cells:
                sample = before.get(cell)
                if sample is not None:
                    samples[cell] = sample
                    if sample.read(window):
                        dirty.append(sample)
                elif self.matches(cell.path):
                    unseen.append(cell)
            yield Seen([], dirty)
        room = max(0, self.most - len(samples))
        for cells in slices(iter(unseen[:room]), SLICE):
            new = []
            for cell in cells:
                self._last_id += 1
                sample = samples[cell] = Sample(self._last_id, cell)
                sample.read(0.0)
                new.append(sample)
            yield Seen(new, new)
        self.gone = [sample.id for cell, sample in before.items() if cell not in samples]
        self.at, self.window, self.samples = now, window, samples
        self.hidden = max(0, len(unseen) - room)


def slices(items: Iterator[T], most: int) -> Iterator[Sequence[T]]:
    """Cut what an iterator yields into lists of at most ``most`` items."""
    while part := list(islice(items, most)):
        yield part


async def turning(steps: Generator[Any, None, T]) -> T:
    """Go through all steps of a generator, and let the loop turn after each; return what the generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        await asyncio.sleep(0)


__all__ = ["GLANCE", "SLICE", "Census", "Seen", "slices", "turning"]

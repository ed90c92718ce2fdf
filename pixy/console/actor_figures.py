"""Adds up the statistics of all actors by class, in slices: ten thousand of them in one go would hold the loop for a tenth of a second."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from actors import ActorStatistics, ActorSystem

SLICE: Final = 100
"""Actors that are looked at in one turn of the loop: a millisecond or two."""
MOST: Final = 20_000
"""Actors that are looked at."""
_CROWDED: Final = 100
"""Actors with the fullest mailboxes that are kept."""


@dataclass(slots=True)
class ClassFigures:
    """The actors of one class."""

    actors: int = 0
    waiting: int = 0
    deepest: int = 0
    oldest: float = 0.0
    processed: int = 0
    failed: int = 0
    restarts: int = 0
    rejected: int = 0


@dataclass(slots=True)
class ActorFigures:
    """All actors at about one moment.

    Attributes:
        classes: by class name.
        crowded: actors whose mailbox holds something, the fullest first.
        rejected: by path, how many messages the mailbox has refused, of those that have refused any.
    """

    classes: dict[str, ClassFigures] = field(default_factory=dict)
    crowded: list[ActorStatistics] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)

    def add(self, each: ActorStatistics) -> None:
        """Add an actor."""
        sums = self.classes.setdefault(each.actor_class, ClassFigures())
        box = each.mailbox
        refused = box.rejected + box.dropped
        sums.actors += 1
        sums.waiting += box.depth
        sums.deepest = max(sums.deepest, box.depth)
        sums.oldest = max(sums.oldest, box.oldest_age)
        sums.processed += each.processed
        sums.failed += each.failed
        sums.restarts += each.restarts
        sums.rejected += refused
        if refused:
            self.rejected[each.path] = refused
        if box.depth or refused:
            self.crowded.append(each)

    def sort(self) -> None:
        """Bring the fullest mailboxes to the front, and drop the others."""
        self.crowded.sort(key=lambda each: (-fullness(each), -each.mailbox.oldest_age))
        del self.crowded[_CROWDED:]


def fullness(each: ActorStatistics) -> float:
    """Return how full a mailbox is, from 0 to 1."""
    return each.mailbox.depth / each.mailbox.capacity if each.mailbox.capacity > 0 else 0.0


async def statistics_of(system: ActorSystem, pattern: str = "**") -> Sequence[ActorStatistics]:
    """Return the statistics of the actors whose path matches a shell pattern, taken in slices."""
    refs = system.find(pattern)[:MOST]
    found: list[ActorStatistics] = []
    for at in range(0, len(refs), SLICE):
        found += [ref.statistics() for ref in refs[at : at + SLICE]]
        await asyncio.sleep(0)
    return found


async def figures_of(system: ActorSystem) -> ActorFigures:
    """Add up the statistics of all actors."""
    figures = ActorFigures()
    for each in await statistics_of(system):
        figures.add(each)
    figures.sort()
    return figures


__all__ = ["ActorFigures", "ClassFigures", "figures_of", "fullness", "statistics_of"]

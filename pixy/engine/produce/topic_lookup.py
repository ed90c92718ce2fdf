"""Looks up the topic of a producer: three times in a row, because a new topic is not known to every broker at once.

:class:`pixy.engine.topic_lookups.TopicLookups` makes each attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pixy.errors import PixyError

LOOKUPS = 3
LOOKUP_PAUSE = 0.25
"""Seconds between look-ups."""

Writable = Callable[[str], Awaitable[tuple[int, ...] | None]]
"""The partitions of a topic that have a leader, sorted; None if there is no such topic."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The partitions of a topic that have a leader; None if there is no such topic, or, with an error, no answer."""

    partitions: tuple[int, ...] | None
    error: PixyError | None = None


async def look_up(writable: Writable, topic: str, attempts: int = LOOKUPS) -> Resolved:
    """Look a topic up.

    Args:
        writable: asks a broker; a PixyError that it raises is part of the result.
        topic: which one.
        attempts: how often, until it is found.
    """
    found = Resolved(None)
    for attempt in range(attempts):
        if attempt:
            await asyncio.sleep(LOOKUP_PAUSE)
        try:
            found = Resolved(await writable(topic))
        except PixyError as error:
            found = Resolved(None, error)
        if found.partitions:
            break
    return found

"""Counters, histograms and headers of an actor's messages, as far as the hot loop leaves them to others.

The usual message is counted inside the loop itself (see ``cell``); a coroutine's, and one that lasted
longer than the histograms reach, are counted here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from actors._core.stats import BUCKETS, SHIFT
from actors._events import SlowHandler

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope

RECENT = 20
"""Headers of the last messages, kept for crash reports."""


def account(cell: Cell, envelope: Envelope, began: int, error: BaseException | None) -> None:
    """Count a message whose handler was a coroutine, and tell the instruments.

    Args:
        cell: the actor that handled the message.
        envelope: the message.
        began: when the handler began, in ns.
        error: the handler's exception, if any.
    """
    kind, sent, sender = type(envelope[0]), envelope[2], envelope[3]
    cell.began = cell.ended = ended = cell.clock()
    count_long(cell.waits, began - sent)
    count_long(cell.runs, ended - began)
    recent = cell.recent if cell.recent is not None else begin_recent(cell)
    recent.append((kind, sender, sent))
    if cell.hooks is not None:
        cell.hooks.ended(cell, envelope, began, ended, error)
    cell.envelope = cell.reply = cell.trace = None


def begin_recent(cell: Cell) -> deque[tuple[type, Cell | None, int]]:
    """Make the list of recent headers, at the first message."""
    recent = cell.recent = deque(maxlen=RECENT)
    return recent


def count_long(counts: list[int], duration: int) -> None:
    """Count a duration of any length: the last bucket takes what is above the others.

    Args:
        counts: an actor's counts by bucket; it gets the buckets that it lacks.
        duration: in ns.
    """
    bucket = min((max(duration, 0) >> SHIFT).bit_length(), BUCKETS - 1)
    if bucket >= len(counts):
        counts.extend([0] * (bucket + 1 - len(counts)))
    counts[bucket] += 1


def report_slow(cell: Cell, kind: type, run: int) -> None:
    """Publish that a handler of a message of type ``kind`` kept the loop for ``run`` ns.

    Args:
        cell: the actor's.
        kind: the type of the message.
        run: how long its handler ran, in ns.
    """
    events = cell.system.events
    if events.wants(SlowHandler):
        events.publish(SlowHandler(cell.path, kind.__name__, run / 1e9))

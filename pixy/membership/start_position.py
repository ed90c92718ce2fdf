"""Where to begin in a partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_HEAD, _OLDEST = -1, -2


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Fetch from ``fetch``; offsets below ``position`` count as done. ``new``: commit it at once."""

    fetch: int
    position: int
    new: bool


def resolve_start(committed: int | None, oldest: int, end: int, *, from_oldest: bool) -> StartPosition:
    """Resolve a committed offset against the partition's bounds.

    Args:
        committed: the group's offset; None or -1 means none, -2 the oldest.
        oldest: the first offset that can be read.
        end: the offset that the next message will get.
        from_oldest: where a group without an offset begins.

    A commit below the oldest (expired) goes on at the oldest. One above the end starts at the end
    but skips until the committed offset is reached, as the original does.
    """
    if committed is None or committed == _HEAD:
        start = oldest if from_oldest else end
        return StartPosition(start, start, new=True)
    if committed == _OLDEST:
        return StartPosition(oldest, oldest, new=True)
    if committed < oldest:
        return StartPosition(oldest, oldest, new=False)
    if committed > end:
        return StartPosition(end, committed, new=False)
    return StartPosition(committed, committed, new=False)

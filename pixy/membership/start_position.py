"""The offset at which a newly assigned partition begins. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_NEWEST, _OLDEST = -1, -2


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The result of :func:`resolve_start`.

    Args:
        fetch: the first offset to fetch.
        position: offsets below it count as consumed.
        new: nothing was committed: commit ``position`` at once.
    """

    fetch: int
    position: int
    new: bool


def resolve_start(committed: int | None, oldest: int, end: int, *, from_oldest: bool) -> StartPosition:
    """Resolve a committed offset against the partition's bounds.

    A committed offset below the oldest one has expired: consumption goes on at the oldest. Above the
    end, fetching starts at the end and skips messages up to the committed offset, as the original does.

    Args:
        committed: the group's offset; None and -1 mean that there is none, -2 means the oldest.
        oldest: the first offset that can be read.
        end: the offset of the next message to be written.
        from_oldest: whether a group without an offset begins at the oldest message, else at the end.
    """
    if committed is None or committed == _NEWEST:
        start = oldest if from_oldest else end
        return StartPosition(start, start, new=True)
    if committed == _OLDEST:
        return StartPosition(oldest, oldest, new=True)
    if committed < oldest:
        return StartPosition(oldest, oldest, new=False)
    if committed > end:
        return StartPosition(end, committed, new=False)
    return StartPosition(committed, committed, new=False)

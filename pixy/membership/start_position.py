"""The offset at which a newly assigned partition begins. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_NEWEST, _OLDEST = -1, -2


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The result of :func:`resolve_start`.

    Args:
        position: the first offset to fetch; offsets below it count as consumed.
        new: the position is not committed yet: commit it at once.
        base: the committed offset that the position follows from, which the commit's metadata counts from;
            None if the metadata says nothing about this log.
    """

    position: int
    new: bool
    base: int | None = None


def resolve_start(
    committed: int | None,
    oldest: int,
    end: int,
    *,
    from_oldest: bool,
    stable: int | None = None,
    epoch_end: int | None = None,
) -> StartPosition:
    """Resolve a committed offset against the partition's bounds.

    A committed offset below the oldest one has expired: consumption goes on at the oldest, and the sparse acks
    that were committed with it still hold. One above the end belongs to another log, which was deleted or
    truncated since: this one is consumed from its oldest message. (The Go original skipped it up to the
    committed offset.)

    Args:
        committed: the group's offset; None and -1 mean that there is none, -2 means the oldest.
        oldest: the first offset that can be read.
        end: the offset of the next message to be written, whether or not transactions are open.
        from_oldest: whether a partition without an offset begins at its oldest message, else at its end. It does
            in a group that has offsets of other partitions of the topic: the partition was added since.
        stable: where "the end" is for the group: the first offset of an open transaction, or where the log ended
            when the group first asked; None for ``end``.
        epoch_end: where the leader epoch that was committed with the offset ends in this log; None if that is not known. Below
            ``committed`` other messages have the offsets from there on, since an unclean election: they were not consumed.
    """
    if committed is None or committed == _NEWEST:
        newest = end if stable is None else stable
        return StartPosition(oldest if from_oldest else newest, new=True)
    if committed == _OLDEST or committed > end:
        return StartPosition(oldest, new=True)
    if committed < oldest:
        return StartPosition(oldest, new=True, base=committed)
    if epoch_end is not None and epoch_end < committed:
        return StartPosition(max(oldest, epoch_end), new=True)
    return StartPosition(committed, new=False, base=committed)

"""Whether files have changed, and whether somebody is still writing them.

Files that are read together settle together, and apart from all others: one that is rewritten all the time would otherwise keep
a key in use that was removed from another.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

TRIES: Final = 5
"""Looks at, or attempts at reading, files that somebody is writing."""

Fingerprint = tuple[tuple[int, int, int] | None, ...]


def fingerprint(paths: Iterable[str]) -> Fingerprint:
    """Return the time, size and inode of each file, to see whether it has changed; None for a missing one. Blocks."""

    def of(path: str) -> tuple[int, int, int] | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    return tuple(map(of, paths))


class WatchedFiles:
    """Files that are read together.

    Args:
        what: they are, for the log.
        paths: of the files; an empty one is none.
    """

    def __init__(self, what: str, *paths: str) -> None:
        self.what = what
        self._paths = tuple(filter(None, paths))
        # At once: a change between now and the first look must not be taken for the state that was read.
        self._read = self._looked = self.now()
        self._restless = 0
        self.at_rest = True
        """Whether they looked the same twice at the latest look."""

    def now(self) -> Fingerprint:
        """Return how the files look. Blocks."""
        return fingerprint(self._paths)

    def look(self) -> bool:
        """Look at the files. Blocks.

        Returns:
            Whether they have changed since they were read, and may be read now: they rest, or have not rested for so many looks
            that nobody is about to finish them.
        """
        before, self._looked = self._looked, self.now()
        self.at_rest = self._looked == before
        self._restless = 0 if self.at_rest else self._restless + 1
        return self._looked != self._read and (self.at_rest or self._restless >= TRIES)

    def were_read(self, as_they_looked: Fingerprint) -> None:
        """Note what counts as read."""
        self._read = self._looked = as_they_looked
        self._restless = 0

    def were_tried(self) -> None:
        """Note that they could not be read because they changed meanwhile: some more looks, then they are tried again."""
        self._restless = 0


__all__ = ["TRIES", "Fingerprint", "WatchedFiles", "fingerprint"]

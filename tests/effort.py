"""How hard the searching tests search: in full with ``make test``, a fifth of it with ``make check``.

``make check`` is for the minute before a commit, and leaves out what is marked ``slow``; ``make unit``, CI and ``make test`` run
all in full. The few tests of which the full form takes minutes have a short form in ``make test``; ``make test-long`` runs them.
"""

from __future__ import annotations

import os

QUICK = bool(os.environ.get("PIXY_QUICK_TESTS"))
LONG = bool(os.environ.get("PIXY_LONG_TESTS"))


def examples(count: int) -> int:
    """The number of examples to try, of ``count`` in full."""
    return max(5, count // 5) if QUICK else count


def seeds(count: int) -> range:
    """The seeds to simulate, of ``count`` in full: a quarter of them, one at least, in the quick mode."""
    return range(max(1, count // 4) if QUICK else count)


__all__ = ["LONG", "QUICK", "examples", "seeds"]

"""How hard the searching tests search: in full with ``make test``, a fifth of it with ``make check``.

``make check`` is for the minute before a commit, and leaves out what is marked ``slow``; ``make unit``, CI and ``make test`` run
all in full. The few tests of which the full form takes minutes have a short form in ``make test``; ``make test-long`` runs them.

To collect all tests takes five seconds of processor, and more than ten in a fresh clone, where Python compiles them. So ``make check``
deals the files out to processes that collect only their own; each process of pytest-xdist would collect them all. The shares
cost about the same, so that no process computes alone in the end.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

QUICK = bool(os.environ.get("PIXY_QUICK_TESTS"))
LONG = bool(os.environ.get("PIXY_LONG_TESTS"))
SHARE = os.environ.get("PIXY_TEST_SHARE", "1/1")
"""Which share of the files this process tests, and of how many: ``2/3``."""


def examples(count: int) -> int:
    """The number of examples to try, of ``count`` in full."""
    return max(5, count // 5) if QUICK else count


def seeds(count: int) -> range:
    """The seeds to simulate, of ``count`` in full: a quarter of them, one at least, in the quick mode."""
    return range(max(1, count // 4) if QUICK else count)


DEAR = {
    "actors/process/test_process_actor.py": 5.2,
    "cli/test_demo.py": 4.4,
    "engine/consume/test_simulation.py": 2.3,
    "engine/instances/test_simulation.py": 4.2,
    "membership/zookeeper/test_member.py": 2.6,
    "pipeline/lake/test_lake.py": 3.0,
    "wire/test_message_properties.py": 3.1,
    "wire/test_oracle.py": 8.1,
}
"""Processor seconds of the unit tests' dearest files in the quick mode (`PIXY_QUICK_TESTS=1 PIXY_TEST_TIMES=FILE pytest tests/unit`)."""
BYTES_A_SECOND = 40_000
"""The other files cost as much as they are long."""
UNIT = Path(__file__).resolve().parent / "unit"


def is_in_share(path: Path, share: str = SHARE) -> bool:
    """Return whether a test file is in a share; the same in each process. A file that is no unit test is in the first.

    Args:
        path: to the file.
        share: as :data:`SHARE`.
    """
    which, of = map(int, share.split("/"))
    return of == 1 or _shares(of).get(path.resolve(), 1) == which


@functools.cache
def _shares(of: int) -> dict[Path, int]:
    costs = {
        path: DEAR.get(path.relative_to(UNIT).as_posix()) or path.stat().st_size / BYTES_A_SECOND
        for path in UNIT.rglob("test_*.py")
    }
    sums, found = [0.0] * of, {}
    for path in sorted(costs, key=lambda each: (-costs[each], each)):
        lightest = sums.index(min(sums))
        sums[lightest] += costs[path]
        found[path] = lightest + 1
    return found


__all__ = ["DEAR", "LONG", "QUICK", "SHARE", "UNIT", "examples", "is_in_share", "seeds"]

"""``python -m tests.bench [daemon] [actors] [pipeline]``: the named parts, or all; fails if a row misses."""

from __future__ import annotations

import sys
from collections.abc import Callable


def _daemon() -> bool:
    from tests.bench import daemon

    return daemon.run()


def _actors() -> bool:
    from tests.bench.actors import suite

    return suite.run()


def _pipeline() -> bool:
    from tests.bench.pipeline import suite

    return suite.run()


PARTS: dict[str, Callable[[], bool]] = {"daemon": _daemon, "actors": _actors, "pipeline": _pipeline}
"""Imported when run: each part needs its own packages only."""


def main(wanted: list[str]) -> int:
    """Run the parts in their order, all of them even if one misses."""
    unknown = set(wanted) - set(PARTS)
    if unknown:
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
        return 2
    met = [run() for name, run in PARTS.items() if not wanted or name in wanted]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

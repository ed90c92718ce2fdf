"""``python -m tests.bench [PART...]``: the named parts, or all; fails if a row misses its target."""

from __future__ import annotations

import importlib
import sys

PARTS = {
    "daemon": "tests.bench.daemon",
    "actors": "tests.bench.actors.suite",
    "wire": "tests.bench.wire.suite",
    "restv1": "tests.bench.restv1.suite",
    "pipeline": "tests.bench.pipeline.suite",
}
"""Module by part, each with ``run() -> bool``. Imported when run: it needs its own packages only."""


def main(wanted: list[str]) -> int:
    """Run the parts in their order, all of them even if one misses."""
    unknown = set(wanted) - set(PARTS)
    if unknown:
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
        return 2
    met = [
        importlib.import_module(module).run()
        for name, module in PARTS.items()
        if not wanted or name in wanted
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

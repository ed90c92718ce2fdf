"""Run benchmarks: ``python -m tests.bench [PART...]``, by default all. Fails if a row misses its target."""

from __future__ import annotations

import importlib
import sys

PARTS = {
    "daemon": "tests.bench.daemon",
    "actors": "tests.bench.actors.suite",
    "wire": "tests.bench.wire.suite",
    "restv1": "tests.bench.restv1.suite",
    "groups": "tests.bench.idle_groups",
    "edge": "tests.bench.edge.suite",
    "front": "tests.bench.front",
    "workers": "tests.bench.workers",
    "pipeline": "tests.bench.pipeline.suite",
}
"""Each part's module, with a function ``run() -> bool``.

A module is imported when it runs, so a part needs only its own packages.
"""


def main(wanted: list[str]) -> int:
    """Run the parts in the order of ``PARTS``, all of them even if one misses a target.

    Returns:
        The exit code: 0, 1 if a row missed its target, 2 for an unknown part.
    """
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

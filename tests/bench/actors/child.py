"""Run one scenario on one peer in this process; prints its figures as JSON.

``python -m tests.bench.actors.child PEER SCENARIO COUNT [one-core]``
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from tests.bench.actors.handlers import Result


def main(peer: str, scenario: str, count: int) -> Result:
    """Import only this peer's module and run its scenario."""
    module = importlib.import_module(f"tests.bench.actors.on_{peer}")
    result: Result = getattr(module, scenario)(count)
    return result


if __name__ == "__main__":
    if "one-core" in sys.argv[4:]:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))

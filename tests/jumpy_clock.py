"""Lets the clock of each actor system jump by 5 ms with each reading, as if the process waited that long for a processor each time.

``PYTHONPATH=. python -m pytest -p tests.jumpy_clock tests/unit/actors`` finds tests that count on real time standing still: those of
exact turns of the loop, and of the order of actors. Systems with a clock of their own (``virtual_system``) keep it.
"""

from __future__ import annotations

import itertools
import time

from actors import ActorSystem

JUMP = 5_000_000
"""Nanoseconds: five times what the actors may keep the loop."""

_readings = itertools.count(1)


def _clock() -> int:
    return time.perf_counter_ns() + next(_readings) * JUMP


_defaults = ActorSystem.__init__.__kwdefaults__
assert _defaults is not None
assert _defaults["clock"] is time.perf_counter_ns
_defaults["clock"] = _clock

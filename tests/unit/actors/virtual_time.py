"""Run coroutine tests in virtual time, so that sleeps and durations do not depend on the machine."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from actors import ActorSystem
from actors.testing import SimLoop

START_NS = 1_000_000_000_000
"""The systems' clocks start here: the monitor's frames use 0 for "never"."""


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a plain test of a coroutine test: a sleep ends at once when nothing else is left to do."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=SimLoop) as runner:
            runner.run(test(**fixtures))

    return run


def virtual_system(**options: Any) -> ActorSystem:
    """Create a system whose clock is the running loop's virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop), "call this in a test with @virtual_time"
    return ActorSystem(clock=lambda: START_NS + loop.clock(), **options)

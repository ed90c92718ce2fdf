"""The event loop in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from actors.testing.loop import SimLoop


def test_timers_fire_after_years_of_virtual_time() -> None:
    async def main() -> float:
        await asyncio.sleep(30 * 365 * 86400)
        for _ in range(100):
            await asyncio.sleep(0.001)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(main()) == pytest.approx(30 * 365 * 86400 + 0.1, abs=0.01)

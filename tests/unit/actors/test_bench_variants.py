"""The benchmark's variants of the hot path are made from its source, so each change of it may leave them without a line."""

from __future__ import annotations

import asyncio

from actors import ActorSystem
from tests.bench.actors.on_stripped import ACCOUNTING, HOOKS, costs, without


def test_a_variant_without_counters_counts_nothing() -> None:
    async def main() -> list[int]:
        async with ActorSystem() as system:
            refs = [system.spawn(without(parts)) for parts in ((*HOOKS[1:2], *ACCOUNTING), HOOKS)]
            for ref in refs:
                assert await ref.ask("x", block=False) == "x"
            return [sum(ref._cell.waits) for ref in refs]

    assert asyncio.run(main()) == [0, 1]


def test_each_part_has_a_share() -> None:
    found = costs(2)
    assert found["per_second"] > 0 and {"counters", "hooks"} < found.keys()

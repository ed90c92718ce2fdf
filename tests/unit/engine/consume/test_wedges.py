"""What could wedge a group's actors for ever: tasks that foreign code cancels, last hooks that fail or never end.

On the model of Kafka and in virtual time, as in test_simulation: whatever happens, every message comes to a client, is
acknowledged and committed, and the group leaves.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import ActorDeadError, Interrupted
from actors.testing import Crash, Injected, Sim, simulate
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.consume.group_messages import AckMessage, Consume, Leave
from pixy.engine.consume.offset_committer import OffsetCommitter
from pixy.engine.consume.partition_owner import PartitionOwner
from tests.effort import seeds
from tests.search.actors import RUNTIMES_TASKS
from tests.unit.engine.consume.group_model import MESSAGES, PARTITIONS, Scenario

SEEDS, FEW_SEEDS = range(max(6, len(seeds(12)))), seeds(4)
"""The fifth seed is the first that cancels each kind of task, in all modes."""
EVERYTHING = {(partition, offset) for partition in range(PARTITIONS) for offset in range(MESSAGES)}


def cancel_tasks(sim: Sim, struck: list[str]) -> None:
    """Cancel one task of an actor in every tenth turn of the loop that finds one."""
    rng = sim.rng_for("cancel")

    def strike() -> None:
        tasks = [
            task
            for task in asyncio.all_tasks(sim.loop)
            if getattr(task.get_coro(), "__qualname__", "") in RUNTIMES_TASKS
        ]
        tasks.sort(key=lambda task: int(task.get_name().rpartition("-")[2]))  # a set has no order to repeat
        if tasks and rng.random() < 0.1:
            task = rng.choice(tasks)
            struck.append(getattr(task.get_coro(), "__qualname__", ""))
            task.cancel()

    sim.loop.virtual.on_turn = strike


def told(message: Any) -> bool:
    """Whether nobody waits for the answer: a failure is the actor's then, not the asker's."""
    return not isinstance(message, (AckMessage, Consume, Leave))


class Forgiving(Scenario):
    """Its clients ask again when an actor was interrupted, or crashed."""

    async def consume(self, group: Any, impatient: bool) -> Any:
        try:
            return await super().consume(group, impatient)
        except (Injected, Interrupted):
            return None

    async def leave(self, group: Any) -> None:
        try:
            await super().leave(group)
        except (ActorDeadError, Interrupted):  # as the cluster does: its stop ends the group
            await group.stop(block=False)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["actors", "pct", "harsh"])
def test_a_group_goes_on_when_tasks_of_its_actors_are_cancelled(mode: str) -> None:
    struck: list[str] = []
    crash = Crash(path="/g*", message=told, probability=0.002)  # so that there are restarts to cancel

    async def scenario(sim: Sim) -> None:
        made = Forgiving(sim)
        cancel_tasks(sim, struck)
        await made.run()
        assert set(made.offered) == EVERYTHING

    for seed in SEEDS:
        simulate(scenario, seed=seed, mode=mode, faults=(crash,), may_escalate=True)
    assert {"_outcome", "pipe.<locals>.piping"} <= {*struck}


@pytest.mark.parametrize("kind", [GroupConsumer, PartitionOwner, OffsetCommitter])
@pytest.mark.parametrize("how", ["fails", "never ends"])
@pytest.mark.parametrize("hook", ["on_stop", "on_failure"])
def test_a_group_goes_on_when_last_hooks_fail_or_never_end(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any], how: str, hook: str
) -> None:
    called: list[str] = []
    original = getattr(kind, hook)

    async def broken(self: Any, *args: Any) -> None:
        called.append(self.path)
        ended = original(self, *args)
        if ended is not None:
            await ended
        if how == "never ends":
            await asyncio.Event().wait()
        raise OSError(how)

    monkeypatch.setattr(kind, hook, broken)
    paths: dict[Any, str] = {GroupConsumer: "/g", PartitionOwner: "/g/t.*", OffsetCommitter: "/g/committer"}
    crash = Crash(path=paths[kind], message=told, nth=10)

    async def scenario(sim: Sim) -> None:
        made = Forgiving(sim)
        await made.run()
        assert set(made.offered) == EVERYTHING

    for seed in FEW_SEEDS:
        simulate(scenario, seed=seed, faults=(crash,), may_escalate=True, hook_timeout=5.0, stop_grace=1.0)
    assert called

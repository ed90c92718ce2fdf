"""Run a scenario with one seed or with many.

async def scenario(system): ...

simulate(scenario, seed=17, mode="pct")
explore(scenario, seeds=range(200))       # raises the first failure, which names its seed
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from actors.testing.simulation import MODES, Sim, SimulationFailed


@dataclass(frozen=True, slots=True)
class Outcome:
    """A successful run: the value that the scenario returned, and the messages in the order of handling."""

    value: Any
    seed: int | str
    mode: str
    trace: tuple[tuple[str, str], ...]
    """(path, name of the message's type) of each handled message."""
    seconds: float
    """Virtual seconds that the run took."""
    steps: int
    """Turns of the loop."""


Scenario = Callable[..., Awaitable[Any]]


def _start(scenario: Scenario, sim: Sim) -> Awaitable[Any]:
    names = inspect.signature(scenario).parameters
    if "sim" in names:
        return scenario(sim)
    return scenario(sim.system)


def is_failure(error: BaseException) -> bool:
    """Return whether this exception is a failure of the scenario, not a skipped test or Ctrl-C."""
    # pytest.fail(), and pytest.raises() if nothing is raised, raise a BaseException of pytest's own.
    return isinstance(error, Exception) or type(error).__name__ == "Failed"


def simulate(scenario: Scenario, *, seed: int | str = 0, mode: str = "actors", **options: Any) -> Outcome:
    """Run ``async def scenario(system)`` (or ``scenario(sim)``) in a simulation of its own.

    Args:
        scenario: called with the system, or with the :class:`Sim` if its parameter is named ``sim``.
        seed: seed of all random decisions.
        mode: one of :data:`MODES`.
        options: further options of :class:`Sim`.

    Raises:
        SimulationFailed: the scenario or an invariant failed; the text names seed and mode.
    """
    # A fresh context, because the caller's holds context variables of its own actor or test.
    return contextvars.Context().run(_simulate, scenario, seed, mode, options)


def _simulate(scenario: Scenario, seed: int | str, mode: str, options: dict[str, Any]) -> Outcome:
    sim = Sim(seed, mode, **options)
    try:
        value = sim.run(_start(scenario, sim))
        sim.finish()
    except BaseException as error:
        if not is_failure(error):
            raise
        what = getattr(scenario, "__name__", repr(scenario))
        raise SimulationFailed(sim, what, error) from error
    finally:
        sim.close()
    return Outcome(value, seed, mode, tuple(sim.trace), sim.loop.time(), sim.loop.virtual.steps)


def search(
    scenario: Scenario,
    *,
    seeds: Iterable[int | str] = range(100),
    mode: str | None = None,
    **options: Any,
) -> SimulationFailed | None:
    """Run a scenario with one seed after the other until one fails.

    Args:
        scenario: as for :func:`simulate`.
        seeds: the seeds to try.
        mode: one of :data:`MODES`; None alternates ``actors``, ``pct`` and ``harsh``.
        options: further options of :class:`Sim`.

    Returns:
        The first failure, or None if all runs pass.
    """
    for count, seed in enumerate(seeds):
        try:
            simulate(scenario, seed=seed, mode=mode or MODES[count % 3], **options)
        except SimulationFailed as failure:
            return failure
    return None


def explore(
    scenario: Scenario,
    *,
    seeds: Iterable[int | str] = range(100),
    mode: str | None = None,
    **options: Any,
) -> None:
    """Run a scenario with many seeds, as :func:`search` does, and raise the first failure.

    Args:
        scenario: as for :func:`simulate`.
        seeds: the seeds to try.
        mode: one of :data:`MODES`; None alternates ``actors``, ``pct`` and ``harsh``.
        options: further options of :class:`Sim`.

    Raises:
        SimulationFailed: a run failed.
    """
    failure = search(scenario, seeds=seeds, mode=mode, **options)
    if failure is not None:
        raise failure

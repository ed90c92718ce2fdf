"""Whole runs of a scenario, with one seed or many.

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
    """A run that went well: what the scenario returned, and what was handled in which order."""

    value: Any
    seed: int | str
    mode: str
    trace: tuple[tuple[str, str], ...]
    seconds: float
    """Virtual."""
    steps: int
    """Turns of the loop."""


Scenario = Callable[..., Awaitable[Any]]


def _start(scenario: Scenario, sim: Sim) -> Awaitable[Any]:
    names = inspect.signature(scenario).parameters
    if "sim" in names:
        return scenario(sim)
    return scenario(sim.system)


def failed(error: BaseException) -> bool:
    """Whether this is a failure of a test (and not a skip, or Ctrl-C)."""
    # pytest.fail() and pytest.raises() without an error make a BaseException of pytest's own.
    return isinstance(error, Exception) or type(error).__name__ == "Failed"


def simulate(scenario: Scenario, *, seed: int | str = 0, mode: str = "actors", **options: Any) -> Outcome:
    """Run ``async def scenario(system)`` (or ``scenario(sim)``) in a simulation of its own.

    Args:
        scenario: gets the system; if its parameter is called ``sim``, the whole :class:`Sim`.
        seed: decides all that chance decides.
        mode: one of :data:`MODES`.
        options: as for :class:`Sim`.

    Raises:
        SimulationFailed: the scenario or an invariant failed; the text has seed and mode.
    """
    # Not in the caller's context: what an actor's or a test's code has set there is not ours.
    return contextvars.Context().run(_simulate, scenario, seed, mode, options)


def _simulate(scenario: Scenario, seed: int | str, mode: str, options: dict[str, Any]) -> Outcome:
    sim = Sim(seed, mode, **options)
    try:
        value = sim.run(_start(scenario, sim))
        sim.finish()
    except BaseException as error:
        if not failed(error):
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
    """Run a scenario with one seed after the other; the first failure, or None.

    Args:
        scenario: see :func:`simulate`.
        seeds: which.
        mode: None takes ``actors``, ``pct`` and ``harsh`` in turn.
        options: as for :class:`Sim`.
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
    """Like :func:`search`, but raise the failure."""
    failure = search(scenario, seeds=seeds, mode=mode, **options)
    if failure is not None:
        raise failure

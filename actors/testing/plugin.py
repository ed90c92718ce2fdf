"""The pytest plugin (entry point ``actors``).

    @pytest.mark.simulate(seeds=50, mode="pct")
    async def test_transfers(system): ...           # or (sim); other fixtures as usual

    def test_by_hand(sim): sim.run(...)             # one simulation, seed 0 or --actors-seed

``--actors-seed S`` runs only seed S; ``--actors-seeds N`` runs the first N seeds, whatever the marker says.
The text of a failure ends with the command that runs its seed again. The plugin imports the simulator only
when a test uses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from actors.testing.simulation import Sim

SEEDS = 20
"""Number of seeds that a marked test runs by default."""

_PROVIDED = ("system", "sim")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command line options."""
    group = parser.getgroup("actors", "simulated actor systems")
    group.addoption("--actors-seed", metavar="SEED", help="run simulations with this seed only")
    group.addoption("--actors-seeds", type=int, metavar="N", help="run simulations with N seeds")


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker."""
    config.addinivalue_line(
        "markers",
        f"simulate(seeds={SEEDS}, mode=None, **options): run an 'async def' test, which takes 'system' "
        "or 'sim', in simulations with that many seeds (or those seeds); see actors.testing.Sim",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hide the ``system`` and ``sim`` fixtures of a marked test, which each seed creates itself."""
    marker = metafunc.definition.get_closest_marker("simulate")
    if marker is None:
        return
    if not inspect.iscoroutinefunction(metafunc.function):
        raise pytest.UsageError(f"{metafunc.function.__qualname__}: only 'async def' tests can be simulated")
    for name in _PROVIDED:
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, [None], ids=[pytest.HIDDEN_PARAM])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Replace a marked coroutine by a plain function, so that plugins for coroutines leave it alone."""
    marker = pyfuncitem.get_closest_marker("simulate")
    if marker is None:
        return (yield)
    test = pyfuncitem.obj
    options = dict(marker.kwargs)
    count = marker.args[0] if marker.args else options.pop("seeds", SEEDS)

    def simulated(**fixtures: Any) -> None:
        _explore(pyfuncitem, test, fixtures, _seeds(pyfuncitem.config, count), options)

    pyfuncitem.obj = simulated
    try:
        return (yield)
    finally:
        pyfuncitem.obj = test


def _seeds(config: pytest.Config, wanted: int | Iterable[int | str]) -> Iterable[int | str]:
    one = config.getoption("--actors-seed")
    if one is not None:
        return [_seed(one)]
    many = config.getoption("--actors-seeds")
    if many is not None:
        return range(many)
    return range(wanted) if isinstance(wanted, int) else wanted


def _seed(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdecimal() else text


def _explore(
    item: pytest.Function,
    test: Any,
    fixtures: dict[str, Any],
    seeds: Iterable[int | str],
    options: dict[str, Any],
) -> None:
    from actors.testing.runs import simulate
    from actors.testing.simulation import MODES, SimulationFailed

    async def scenario(sim: Sim) -> None:
        made = {"sim": sim, "system": sim.system}
        await test(**{name: made.get(name, value) for name, value in fixtures.items()})

    scenario.__name__ = item.name
    mode = options.pop("mode", None)
    for seed in seeds:
        try:
            # The mode depends on the seed, so a replay needs only --actors-seed.
            simulate(scenario, seed=seed, mode=mode or MODES[_number(seed) % 3], **options)
        except SimulationFailed as failure:
            failure.add_note(f"replay: pytest '{item.nodeid}' --actors-seed {seed}")
            item.add_report_section("call", "actors", f"failing seed: {seed} (mode {failure.mode})")
            raise


def _number(seed: int | str) -> int:
    return seed if isinstance(seed, int) else sum(seed.encode())


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Generator[Sim, None, None]:
    """Give a plain test a simulation: ``sim.run(...)``. It is stopped and checked after the test."""
    from actors.testing.simulation import Sim

    made = Sim(_seed(request.config.getoption("--actors-seed") or "0"))
    try:
        yield made
        made.finish()
    finally:
        made.close()

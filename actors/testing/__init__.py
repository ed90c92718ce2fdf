"""Test actor systems: virtual time, schedules and faults drawn from one seed, invariants, probes.

``import actors`` does not import this package, and each name below is imported when it is first used. So the
pytest plugin costs almost nothing in projects that do not use it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors._core.instruments import Injected
    from actors.testing.effects import EffectsKit, effects_of
    from actors.testing.faults import Crash, Delay, Drop, Fault, Reorder
    from actors.testing.hypothesis import SystemMachine
    from actors.testing.invariants import Invariants
    from actors.testing.loop import CannotSimulate, Deadlock, Livelock, SimLoop
    from actors.testing.probe import Probe, Received
    from actors.testing.runs import Outcome, explore, search, simulate
    from actors.testing.schedule import PCTDispatcher, SeededDispatcher
    from actors.testing.simulation import (
        MODES,
        Sim,
        SimSystem,
        SimulationFailed,
        Violation,
    )

_NAMES_BY_MODULE = {
    "_core.instruments": ("Injected",),
    "testing.effects": ("EffectsKit", "effects_of"),
    "testing.faults": ("Crash", "Delay", "Drop", "Fault", "Reorder"),
    "testing.hypothesis": ("SystemMachine",),
    "testing.invariants": ("Invariants",),
    "testing.loop": ("CannotSimulate", "Deadlock", "Livelock", "SimLoop"),
    "testing.probe": ("Probe", "Received"),
    "testing.schedule": ("PCTDispatcher", "SeededDispatcher"),
    "testing.runs": ("Outcome", "explore", "search", "simulate"),
    "testing.simulation": ("MODES", "Sim", "SimSystem", "SimulationFailed", "Violation"),
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"actors.{_MODULE_BY_NAME[name]}"), name)


__all__ = [
    "MODES",
    "CannotSimulate",
    "Crash",
    "Deadlock",
    "Delay",
    "Drop",
    "EffectsKit",
    "Fault",
    "Injected",
    "Invariants",
    "Livelock",
    "Outcome",
    "PCTDispatcher",
    "Probe",
    "Received",
    "Reorder",
    "SeededDispatcher",
    "Sim",
    "SimLoop",
    "SimSystem",
    "SimulationFailed",
    "SystemMachine",
    "Violation",
    "effects_of",
    "explore",
    "search",
    "simulate",
]

"""The state that an actor chooses to show, as bounded plain data: whatever it returns, a frame stays small."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set as AbstractSet
from itertools import islice
from typing import TYPE_CHECKING, Any

from actors._core.interruption import failed_itself

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._core.cell import Cell

MAX_VALUES = 500
"""Most values in all that an actor shows."""

MAX_ITEMS = 100
"""Most items of one mapping or list."""

MAX_DEPTH = 5
"""Most levels of mappings and lists."""

MAX_TEXT = 500
"""Most characters of a text."""

CUT = "…"


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_VALUES


def state_of(cell: Cell) -> dict[str, Any]:
    """Ask an actor for its state: ``shown``, None if it shows none, and ``error`` if it could not.

    It calls :meth:`actors.Actor.console_state` on the thread of the loop.
    """
    actor: Actor | None = cell.actor
    if actor is None:
        return {"shown": None, "error": None}
    try:
        shown = actor.console_state()
        return {"shown": None if shown is None else plain(shown), "error": None}
    except BaseException as error:  # whatever an actor does here, the console goes on
        if not failed_itself(error):
            raise
        return {"shown": None, "error": f"console_state() raised {type(error).__name__}"}


def plain(value: Any) -> Any:
    """Reduce a value to what JSON has, within the bounds; of other objects only the type is named."""
    return _plain(value, MAX_DEPTH, _Budget())


def _plain(value: Any, depth: int, budget: _Budget) -> Any:
    budget.left -= 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**53) < value < 2**53 else _number(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(repr(bytes(value[: MAX_TEXT // 4]))) + (CUT if len(value) > MAX_TEXT // 4 else "")
    if depth <= 0 or budget.left <= 0:
        return CUT
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        value = {name: getattr(value, name, None) for name in names}
    if isinstance(value, Mapping):
        return _mapping(value, depth, budget)
    if isinstance(value, list | tuple | AbstractSet):
        items = []
        for item in islice(value, MAX_ITEMS):
            if budget.left <= 0:
                break
            items.append(_plain(item, depth - 1, budget))
        return items if len(items) == len(value) else [*items, f"{CUT} {len(value) - len(items)} more"]
    return f"<{type(value).__name__}>"


def _mapping(value: Mapping[Any, Any], depth: int, budget: _Budget) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, each in islice(value.items(), MAX_ITEMS):
        if budget.left <= 0:
            break
        name = key if isinstance(key, str) else str(_plain(key, 1, _Budget()))
        found[_text(name)] = _plain(each, depth - 1, budget)
    if len(found) < len(value):
        found[CUT] = f"{len(value) - len(found)} more"
    return found


def _text(value: str) -> str:
    return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}{CUT}"


def _number(value: int) -> str:
    return str(value) if value.bit_length() <= 256 else f"<int of {value.bit_length()} bits>"


__all__ = ["plain", "state_of"]

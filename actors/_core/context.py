"""Context variables: the actor whose code runs.

Each actor has a ``contextvars.Context`` of its own, in which the loop runs its callbacks and tasks. The
loop enters a context for every callback anyway, so finding the sender of a message takes one
``ContextVar.get``, and no set and reset around each handler (180 ns per message).
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors._core.cell import Cell

current: contextvars.ContextVar[Cell | None] = contextvars.ContextVar("actors_cell", default=None)
"""The cell whose actor's code runs; None outside of actors."""

building: contextvars.ContextVar[Cell | None] = contextvars.ContextVar("actors_building", default=None)
"""The cell whose actor is being constructed."""

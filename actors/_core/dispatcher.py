"""The seam between cells and the loop, where tests decide which actor goes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from actors._core.cell import Cell


class Dispatcher(Protocol):
    """Decides which actor that has messages goes next (see :mod:`actors.testing`).

    A system without one leaves that to the loop's own order of callbacks.
    """

    def schedule(self, cell: Cell) -> None:
        """Take note of a cell that has messages: call its ``step()`` once, soon; again if it is True."""

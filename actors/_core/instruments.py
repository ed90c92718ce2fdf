"""Instruments: code that watches every message of a system.

What nobody watches costs one test for None. A method that an instrument does not override is never
called. An instrument that raises is removed and reported (trio's instruments do the same), unless
it raises :class:`Injected`: that is a fault made on purpose, and becomes the handler's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._future import Future

logger = logging.getLogger("actors")


class Injected(Exception):
    """A fault that an instrument injects into the handling of a message."""


class Instrument:
    """Base class: override what is of interest. Methods are called synchronously and must be quick.

    They are called on the thread where it happens: for senders in other threads, and for actors
    with a thread of their own, that is not the loop's.
    """

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """A message is about to enter a mailbox; False takes it over (see ``Mailbox.deliver``)."""
        return True

    def begin(self, cell: Cell, envelope: Envelope) -> None:
        """A message left the mailbox and is about to be handled."""

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """A message was handled; times in nanoseconds of the system's clock."""

    def asked(self, cell: Cell, reply: Future[Any]) -> None:
        """An ask was made; ``reply`` is the asker's future."""


class Hooks:
    """The methods of all instruments of one system, sorted by point."""

    __slots__ = ("_begin", "_end", "_system_changed", "admit", "asked", "instruments")

    def __init__(self, changed: Callable[[], None]) -> None:
        self.instruments: list[Instrument] = []
        self._system_changed = changed
        self._sort()

    def _sort(self) -> None:
        self.admit = self._overridden("admit")
        self._begin = self._overridden("begin")
        self._end = self._overridden("end")
        self.asked = self._overridden("asked")

    def _overridden(self, name: str) -> tuple[tuple[Instrument, Any], ...]:
        base = getattr(Instrument, name)
        return tuple(
            (each, getattr(each, name)) for each in self.instruments if getattr(type(each), name) is not base
        )

    def add(self, instrument: Instrument) -> None:
        """Install an instrument."""
        self.instruments.append(instrument)
        self._sort()

    def remove(self, instrument: Instrument) -> None:
        """Remove an instrument; nothing if it is not there."""
        if instrument in self.instruments:
            self.instruments.remove(instrument)
            self._sort()
            self._system_changed()

    def admits(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """Ask all; the first that takes the message over ends it."""
        for instrument, admit in self.admit:
            try:
                if not admit(cell, envelope, lane):
                    return False
            except Exception:
                self._failed(instrument)
        return True

    def began(self, cell: Cell, envelope: Envelope) -> Injected | None:
        """Tell all; the fault if one injects one."""
        injected = None
        for instrument, begin in self._begin:
            try:
                begin(cell, envelope)
            except Injected as fault:
                injected = fault
            except Exception:
                self._failed(instrument)
        return injected

    def ended(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Tell all."""
        for instrument, end in self._end:
            try:
                end(cell, envelope, began, ended, error)
            except Exception:
                self._failed(instrument)

    def on_asked(self, cell: Cell, reply: Future[Any]) -> None:
        """Tell all."""
        for instrument, asked in self.asked:
            try:
                asked(cell, reply)
            except Exception:
                self._failed(instrument)

    def _failed(self, instrument: Instrument) -> None:
        logger.exception("the instrument %r failed and is removed", instrument)
        self.remove(instrument)

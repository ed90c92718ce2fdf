"""Instruments: code that watches every message of a system.

Without instruments, a message costs one test for None. Methods that an instrument does not override are
never called. An instrument that raises is removed and reported, as in trio; an :class:`Injected` is no
failure of the instrument, but a fault made on purpose: the handler fails with it.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, Any

from actors._core.interruption import failed_itself
from actors._core.log_safely import log_safely

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._future import Future

logger = logging.getLogger("actors")


class Held(enum.Enum):
    """The class of :data:`HELD`."""

    HELD = "held"


HELD = Held.HELD
"""What :meth:`Instrument.admit` returns for a message that the instrument keeps, and delivers or answers itself."""


class Injected(Exception):
    """A fault that an instrument injects into the handling of a message."""


class Instrument:
    """Base class: override the methods of interest. They must be quick: the message waits for them.

    They run on the thread of the sender (``admit``, ``asked``) or of the actor (``begin``, ``end``), which
    need not be the loop's.
    """

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool | Held:
        """Called before a message enters a mailbox.

        Args:
            cell: the recipient.
            envelope: the message with its reply and sender.
            lane: ``normal`` or ``priority``.

        Returns:
            False to drop the message: that is counted and published, and its asker gets ``MailboxFull``.
            :data:`HELD` to take it over: ``cell.mailbox.deliver(envelope, lane)`` delivers it later.
        """
        return True

    def begin(self, cell: Cell, envelope: Envelope) -> None:
        """Called when a message has left the mailbox, before its handler. May raise :class:`Injected`.

        Args:
            cell: the actor that will handle it.
            envelope: the message with its reply and sender.
        """

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Called when a message has been handled.

        Args:
            cell: the actor that handled it.
            envelope: the message with its reply and sender.
            began: when its handler began, in nanoseconds of the system's clock.
            ended: when the handler ended, likewise.
            error: the handler's exception, if any.
        """

    def asked(self, cell: Cell, reply: Future[Any]) -> None:
        """Called for an ask to an actor; ``reply`` is the asker's future.

        Args:
            cell: the recipient.
            reply: the asker's future.
        """


class Hooks:
    """The methods of a system's instruments, by the point where they are called.

    Args:
        changed: called when an instrument has removed itself.
    """

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
        """Add an instrument."""
        self.instruments.append(instrument)
        self._sort()

    def remove(self, instrument: Instrument) -> None:
        """Remove an instrument if it is there."""
        if instrument in self.instruments:
            self.instruments.remove(instrument)
            self._sort()
            self._system_changed()

    def admits(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """Call ``admit`` of the instruments until one keeps the message out, which is dropped then unless it is held."""
        for instrument, admit in self.admit:
            try:
                admitted = admit(cell, envelope, lane)
            except BaseException as error:
                self._failed(instrument, error)
                continue
            if admitted is HELD:
                return False
            if not admitted:
                cell.mailbox.drop(envelope, "instrument", "an instrument has kept the message out")
                return False
        return True

    def began(self, cell: Cell, envelope: Envelope) -> Injected | None:
        """Call ``begin`` of all instruments; return the fault that one injects, if any."""
        injected = None
        for instrument, begin in self._begin:
            try:
                begin(cell, envelope)
            except Injected as fault:
                injected = fault
            except BaseException as error:
                self._failed(instrument, error)
        return injected

    def ended(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Call ``end`` of all instruments; see :meth:`Instrument.end`."""
        for instrument, end in self._end:
            try:
                end(cell, envelope, began, ended, error)
            except BaseException as failure:
                self._failed(instrument, failure)

    def on_asked(self, cell: Cell, reply: Future[Any]) -> None:
        """Call ``asked`` of all instruments."""
        for instrument, asked in self.asked:
            try:
                asked(cell, reply)
            except BaseException as error:
                self._failed(instrument, error)

    def _failed(self, instrument: Instrument, error: BaseException) -> None:
        if not failed_itself(error):
            return
        log_safely(logger.exception, "the instrument %r failed and is removed", instrument)
        self.remove(instrument)

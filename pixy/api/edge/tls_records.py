"""Read TLS records in turns.

asyncio and uvloop decrypt all that has come on a connection before its protocol sees any of it, one record after the other: a
quarter of a megabyte of records with a byte in each takes some 50 ms, and as many connections as send it come in one turn of
the loop. So the object that decrypts says now and then that there is nothing more, and has the transport read on in its turn.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from pixy.api.edge.pace import Pace

RECORDS: Final = 16
"""Connections that read on in one turn of the loop, each :data:`_AT_ONCE` records: some 2 ms."""
_AT_ONCE: Final = 32
"""Records that are read before it is looked whether it is the turn of others."""
_SOON: Final = 2
"""Turns in which a connection that has waited reads on: the transport does it in the next one."""
_MOST: Final = 16 * 1024
"""Bytes of a record. The transports ask for sixteen times as many, and memory for those would be looked for each time."""


class RecordTurns:
    """Gives the records of one connection their turns.

    Args:
        transport: the connection's.
        pace: gives turns to all connections.
        caller: whose turn it is.
    """

    __slots__ = ("_caller", "_left", "_pace", "_transport", "_turn", "_until")

    def __init__(self, transport: asyncio.Transport, pace: Pace, caller: str) -> None:
        self._transport = transport
        self._pace = pace
        self._caller = caller
        self._left = 0
        """Records that may be read."""
        self._until = 0
        """The number of the last turn in which they may; what is left then is not saved up."""
        self._turn: asyncio.Future[None] | None = None

    def may_read(self) -> bool:
        """Return whether a record may be read now. If not, the transport reads on later."""
        if self._turn is not None:
            return False
        if self._left and self._pace.number <= self._until:
            self._left -= 1
            return True
        turn = self._pace.enter(self._caller)
        if turn is not None:
            self._wait(turn)
            return False
        self._left, self._until = _AT_ONCE - 1, self._pace.number
        return True

    def _wait(self, turn: asyncio.Future[None]) -> None:
        self._turn = turn
        turn.add_done_callback(self._came)

    def _came(self, turn: asyncio.Future[None]) -> None:
        if turn is not self._turn or turn.cancelled():
            return
        again = self._pace.again(self._caller)
        if again is not None:
            self._wait(again)
            return
        self._turn = None
        self._left, self._until = _AT_ONCE, self._pace.number + _SOON
        # A transport that is paused reads on once it is resumed.
        if self._transport.is_reading() and not self._transport.is_closing():
            self._transport.pause_reading()
            self._transport.resume_reading()

    def end(self) -> None:
        """End the wait for a turn: the connection has ended."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.cancel()


class PacedTls(ssl.SSLObject):
    """Decrypts a connection, in turns once it has some: ``sslobject_class`` of a context.

    Attributes:
        turns: of its records; None: it is not known yet whose they are.
    """

    turns: RecordTurns | None = None

    def read(self, len: int = _MOST, buffer: Any = None) -> Any:  # noqa: A002  # ssl's name
        """Read a record; see :class:`ssl.SSLObject`. Raises SSLWantReadError also if it is the turn of others."""
        if self.turns is not None and not self.turns.may_read():
            raise ssl.SSLWantReadError
        return super().read(min(len, _MOST), buffer)


__all__ = ["RECORDS", "PacedTls", "RecordTurns"]

"""Show a stream of bytes to a reader, which reads some bytes, skips others and may replace some.

The reader is a generator. ``yield n`` waits for the next n bytes and returns them; ``yield -n`` skips n bytes
without copying them, however many chunks they span. Between two yields the reader may call :meth:`StreamTap.hold`
and then :meth:`StreamTap.release` or :meth:`StreamTap.replace`, which decide what :meth:`StreamTap.feed` returns
to be forwarded, and :meth:`StreamTap.patch`. It may have what passes copied, by :meth:`StreamTap.record` and :meth:`StreamTap.recorded`.

At a boundary of frames (the reader sets :attr:`StreamTap.boundary` before it waits for the next) a gate may take whole frames
that the reader need not see.

If the reader ends or raises an exception, all further bytes are forwarded unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

Reader = Generator[int, bytes, None]
Buffer = bytes | memoryview
Gate = Callable[[memoryview, int, int], int]
"""(chunk, position, size) to the position of the first byte that is left to the reader."""

_NOTHING = memoryview(b"")
_ALL = 1 << 30


class StreamTap:
    """One direction of a connection.

    Args:
        make: makes the reader of this stream.
        on_error: is called with an exception that the reader or the gate raises.
        gate: takes frames at a boundary; None for none.
    """

    __slots__ = (
        "_chunk",
        "_from",
        "_gate",
        "_held",
        "_holding",
        "_mark",
        "_on_error",
        "_out",
        "_parts",
        "_pos",
        "_reader",
        "_recording",
        "_room",
        "_want",
        "boundary",
    )

    def __init__(
        self,
        make: Callable[[StreamTap], Reader],
        on_error: Callable[[Exception], Any],
        gate: Gate | None = None,
    ) -> None:
        self._on_error = on_error
        self._gate = gate
        self.boundary = False
        """Set by the reader: the bytes that it waits for begin a frame."""
        self._chunk = _NOTHING
        self._pos = self._mark = 0  # offsets in the chunk: read up to _pos, forwarded or held up to _mark
        self._want = 0
        self._parts: list[
            bytes
        ] = []  # the bytes that the reader waits for, as far as earlier chunks had them
        self._held: list[bytes] = []  # withheld from earlier chunks
        self._holding = False
        self._out: list[Buffer] = []
        self._recording: list[bytes] | None = None
        self._room = 0  # bytes that may still be recorded
        self._from = 0  # offset in the chunk of the first byte that is not recorded yet
        self._reader: Reader | None = make(self)
        self._resume(None)

    @property
    def reading(self) -> bool:
        """True if the reader is still running."""
        return self._reader is not None

    @property
    def unread(self) -> int:
        """Number of the next bytes that the reader skips, so that they need not be shown; all if no reader runs."""
        if self._reader is None:
            return _ALL
        if self._holding or (self._recording is not None and self._room):
            return 0
        return max(-self._want, 0)

    def passed(self, count: int) -> None:
        """Note that the next ``count`` bytes, at most :attr:`unread`, were forwarded without being shown."""
        if self._reader is None:
            return
        self._want += count
        if not self._want:
            self._chunk, self._out, self._pos, self._mark, self._from = _NOTHING, [], 0, 0, 0
            self._resume(b"")

    def feed(self, chunk: memoryview) -> list[Buffer]:
        """Show the next bytes to the reader and return the bytes to forward now, in order.

        Returned views are parts of ``chunk`` and valid as long as it is.
        """
        if self._reader is None:
            return [chunk]
        self._chunk, self._out, self._pos, self._mark, self._from = chunk, [], 0, 0, 0
        size = len(chunk)
        while self._pos < size and self._reader is not None:
            if self.boundary and self._gate is not None and not self._parts:
                self._pass(self._gate, chunk, size)
                if self._pos == size:
                    break
            if self._want < 0:
                self._skip(size)
            else:
                self._take(size)
        if self._recording is not None:
            self._record_to(self._pos)
        rest = chunk[self._mark :]
        if self._holding:
            self._held.append(bytes(rest))
        elif len(rest):
            self._out.append(rest)
        self._chunk = _NOTHING
        return self._out

    def finish(self) -> list[bytes]:
        """End the stream and return the bytes that are still withheld."""
        held, self._held, self._holding, self._parts = self._held, [], False, []
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        return held

    def hold(self) -> None:
        """Withhold the bytes from here on."""
        if self._pos > self._mark:
            self._out.append(self._chunk[self._mark : self._pos])
        self._mark = self._pos
        self._holding = True

    def release(self) -> None:
        """Forward the withheld bytes unchanged."""
        self._out.extend(self._held)
        self._held, self._holding = [], False

    def replace(self, data: bytes) -> None:
        """Forward ``data`` instead of the withheld bytes."""
        self._held, self._holding = [], False
        self._out.append(data)
        self._mark = self._pos

    def patch(self, byte: int) -> None:
        """Change the last byte read, which the reader must have read alone (``yield 1``)."""
        self._chunk[self._pos - 1] = byte

    def record(self, limit: int) -> None:
        """Copy the bytes from here on until :meth:`recorded`.

        Args:
            limit: the number of bytes after which nothing more is copied; zero ends an earlier recording.
        """
        self._recording, self._room, self._from = ([], limit, self._pos) if limit else (None, 0, 0)

    def record_up_to(self, limit: int) -> None:
        """Change how many bytes are copied in all, those before included; zero ends the recording."""
        self._record_to(self._pos)
        if not limit:
            self.record(0)
        elif self._recording is not None:
            self._room = max(0, limit - sum(map(len, self._recording)))

    def recorded(self) -> bytes:
        """End the recording and return the copy."""
        self._record_to(self._pos)
        found, self._recording = b"".join(self._recording or ()), None
        return found

    def _record_to(self, end: int) -> None:
        if self._recording is not None and self._room and end > self._from:
            self._recording.append(bytes(self._chunk[self._from : min(end, self._from + self._room)]))
            self._room -= len(self._recording[-1])
        self._from = end

    def _pass(self, gate: Gate, chunk: memoryview, size: int) -> None:
        """Forward the frames that the gate takes."""
        try:
            self._pos = gate(chunk, self._pos, size)
        except Exception as error:  # a defect of the gate: the reader reads what it left
            self._gate = None
            self._on_error(error)
        if self._holding and self._pos > self._mark:
            self._held.clear()  # nothing is withheld before a boundary
            self._out.append(chunk[self._mark : self._pos])
            self._mark = self._pos

    def _skip(self, size: int) -> None:
        step = min(-self._want, size - self._pos)
        self._pos += step
        self._want += step
        if not self._want:
            self._resume(b"")

    def _take(self, size: int) -> None:
        data = bytes(self._chunk[self._pos : self._pos + self._want])
        self._pos += len(data)
        if len(data) < self._want:
            self._parts.append(data)
            self._want -= len(data)
            return
        if self._parts:
            data, self._parts = b"".join([*self._parts, data]), []
        self._resume(data)

    def _resume(self, data: bytes | None) -> None:
        reader = self._reader
        assert reader is not None
        self.boundary = False
        try:
            # A read of no bytes is answered at once.
            while (want := reader.send(data)) == 0:  # type: ignore[arg-type]
                data = b""
            self._want = want
            return
        except StopIteration:
            pass
        except Exception as error:  # forwarding goes on whatever the reader does
            self._on_error(error)
        self._reader, self._parts = None, []
        if self._holding:
            self.release()

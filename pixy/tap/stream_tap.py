"""Show a stream of bytes to a reader, which reads some bytes, skips others and may replace some.

The reader is a generator. ``yield n`` waits for the next n bytes and returns them; ``yield -n`` skips n bytes
without copying them, however many chunks they span. Between two yields the reader may call :meth:`StreamTap.hold`
and then :meth:`StreamTap.release` or :meth:`StreamTap.replace`, which decide what :meth:`StreamTap.feed` returns
to be forwarded, and :meth:`StreamTap.patch`.

If the reader ends or raises an exception, all further bytes are forwarded unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

Reader = Generator[int, bytes, None]
Buffer = bytes | memoryview

_NOTHING = memoryview(b"")


class StreamTap:
    """One direction of a connection.

    Args:
        make: makes the reader of this stream.
        on_error: is called with an exception that the reader raises.
    """

    __slots__ = (
        "_chunk",
        "_held",
        "_holding",
        "_mark",
        "_on_error",
        "_out",
        "_parts",
        "_pos",
        "_reader",
        "_want",
    )

    def __init__(self, make: Callable[[StreamTap], Reader], on_error: Callable[[Exception], Any]) -> None:
        self._on_error = on_error
        self._chunk = _NOTHING
        self._pos = self._mark = 0  # offsets in the chunk: read up to _pos, forwarded or held up to _mark
        self._want = 0
        self._parts: list[
            bytes
        ] = []  # the bytes that the reader waits for, as far as earlier chunks had them
        self._held: list[bytes] = []  # withheld from earlier chunks
        self._holding = False
        self._out: list[Buffer] = []
        self._reader: Reader | None = make(self)
        self._resume(None)

    @property
    def reading(self) -> bool:
        """Whether the reader is still running."""
        return self._reader is not None

    def feed(self, chunk: memoryview) -> list[Buffer]:
        """Show the next bytes to the reader and return the bytes to forward now, in order.

        Returned views are parts of ``chunk`` and valid as long as it is.
        """
        if self._reader is None:
            return [chunk]
        self._chunk, self._out, self._pos, self._mark = chunk, [], 0, 0
        size = len(chunk)
        while self._pos < size and self._reader is not None:
            if self._want < 0:
                self._skip(size)
            else:
                self._take(size)
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

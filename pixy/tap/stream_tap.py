"""A stream of bytes that runs past a reader: the reader looks at parts, skips others, replaces some.

The reader is a generator. ``yield n`` waits for the next n bytes and gets them; ``yield -n`` passes over n bytes
without looking at them, however many chunks they come in. Between two yields the reader may call
:meth:`Tape.hold`, and then :meth:`Tape.release` or :meth:`Tape.replace`, which decide what :meth:`Tape.feed`
gives back to be forwarded, and :meth:`Tape.patch`.

Whatever the reader does, an exception included, the bytes go on; it is not asked again then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

Reader = Generator[int, bytes, None]
Buffer = bytes | memoryview

_NOTHING = memoryview(b"")


class Tape:
    """One direction of a connection."""

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

    def __init__(self, make: Callable[[Tape], Reader], on_error: Callable[[Exception], Any]) -> None:
        self._on_error = on_error
        self._chunk = _NOTHING
        self._pos = self._mark = 0  # in the chunk: up to where it was read, and decided on
        self._want = 0
        self._parts: list[bytes] = []  # of what the reader waits for, from earlier chunks
        self._held: list[bytes] = []  # withheld from earlier chunks
        self._holding = False
        self._out: list[Buffer] = []
        self._reader: Reader | None = make(self)
        self._resume(None)

    @property
    def reading(self) -> bool:
        """Whether the reader still looks."""
        return self._reader is not None

    def feed(self, chunk: memoryview) -> list[Buffer]:
        """Have the reader see the next bytes; what is to be forwarded now, in order.

        Views in the answer are parts of ``chunk``: they are valid as long as it is.
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
        """The stream has ended: what is still withheld."""
        held, self._held, self._holding, self._parts = self._held, [], False, []
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        return held

    def hold(self) -> None:
        """Withhold what comes from here on."""
        if self._pos > self._mark:
            self._out.append(self._chunk[self._mark : self._pos])
        self._mark = self._pos
        self._holding = True

    def release(self) -> None:
        """Forward what was withheld as it was."""
        self._out.extend(self._held)
        self._held, self._holding = [], False

    def replace(self, data: bytes) -> None:
        """Forward ``data`` in the place of all that was withheld."""
        self._held, self._holding = [], False
        self._out.append(data)
        self._mark = self._pos

    def patch(self, byte: int) -> None:
        """Change the byte that came last, which was waited for alone."""
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
            # What needs no byte is answered at once.
            while (want := reader.send(data)) == 0:  # type: ignore[arg-type]
                data = b""
            self._want = want
            return
        except StopIteration:
            pass
        except Exception as error:  # whatever it is, the bytes go on
            self._on_error(error)
        self._reader, self._parts = None, []
        if self._holding:
            self.release()

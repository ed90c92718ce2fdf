"""Frames between a process actor's parent and its worker: a header, a pickle, and its buffers.

The header names the call that a frame belongs to. It is not pickled, so a message that cannot be unpickled fails
that one call. Buffers that an object hands to pickle's protocol 5 (``pickle.PickleBuffer``, arrays) are written as
they are and read into the memory that the new object then uses: they are not copied into the pickle.
"""

from __future__ import annotations

import asyncio
import enum
import pickle
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

from actors._core.error_text import words_of
from actors._core.interruption import failed_itself, of_program
from actors._errors import ActorError

HEADER = struct.Struct("<BQIQ")
"""Kind of frame, number of the call, number of buffers, length of what follows in bytes."""

LENGTH = struct.Struct("<Q")

SCRATCH = 64 * 1024
"""Bytes of the buffer that small frames are read into."""

MAX_BUFFERS = 100_000
"""Buffers of one message."""

Part: TypeAlias = "bytes | memoryview"


class Kind(enum.IntEnum):
    """The kinds of frames."""

    START = 1
    """To the worker: what to run."""
    CALL = 2
    """To the worker: handle a message; answered by DONE, FAILED or TAKEN."""
    HOOK = 3
    """To the worker: run a hook of the actor; answered by DONE or FAILED."""
    DONE = 4
    """To the parent: the value of a call."""
    FAILED = 5
    """To the parent: the error of a call."""
    TAKEN = 6
    """To the parent: the handler has returned and will answer later, by DONE or FAILED."""
    DIED = 7
    """To the parent: the actor failed outside of a call; with the number of the one that it was handling, or 0."""
    LEAVE = 8
    """To the parent: the actor has asked for its own stop."""
    LOG = 9
    """To the parent: a log record."""
    GIVEN_UP = 10
    """To the worker: nobody waits for the reply to a call that was TAKEN."""


class NotPicklable(ActorError):
    """A message, a reply or an argument cannot be pickled or unpickled, or is larger than ``max_message``."""


class Frame(NamedTuple):
    """A frame as it was read; ``body`` is for :func:`decode`."""

    kind: int
    call: int
    buffers: int
    body: memoryview


def encode(kind: Kind, call: int, value: Any, what: str, limit: int) -> list[Part]:
    """Pickle a value into the parts of a frame.

    Args:
        kind: what the frame says.
        call: the number of the call that it belongs to.
        value: what to pickle.
        what: names the value in errors.
        limit: the most bytes that the frame may have.

    Raises:
        NotPicklable: pickle refuses, or the frame would be larger.
    """
    found: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=found.append)
        views = [each.raw() for each in found]
    except MemoryError:
        raise
    except BaseException as error:  # also SystemExit, of an object's own code
        if of_program(error):
            raise
        raise NotPicklable(f"{what} cannot be pickled: {words_of(error)}") from error
    length = len(body) + sum(LENGTH.size + view.nbytes for view in views)
    if length > limit:
        raise NotPicklable(f"{what} has {length} bytes when pickled, more than max_message ({limit})")
    if len(views) > MAX_BUFFERS:
        raise NotPicklable(f"{what} has {len(views)} buffers, more than {MAX_BUFFERS}")
    head = HEADER.pack(kind, call, len(views), length)
    lengths = b"".join(LENGTH.pack(view.nbytes) for view in views)
    return [head + lengths + body, *views] if len(body) < SCRATCH else [head + lengths, body, *views]


def decode(frame: Frame, what: str) -> Any:
    """Unpickle the value of a frame; its buffers become memoryviews of the frame's own memory.

    Args:
        frame: the frame.
        what: names the value in errors.

    Raises:
        NotPicklable: the value cannot be unpickled here.
    """
    body = frame.body
    ends = frame.buffers * LENGTH.size
    lengths = [LENGTH.unpack_from(body, at)[0] for at in range(0, ends, LENGTH.size)]
    # The pickle stands between the lengths and the buffers.
    at = len(body) - sum(lengths)
    pickled = body[ends:at]
    views = []
    for length in lengths:
        views.append(body[at : at + length])
        at += length
    try:
        return pickle.loads(pickled, buffers=views)  # noqa: S301 - the two processes are one program
    except MemoryError:
        raise
    except BaseException as error:  # also SystemExit, which must not end the reader of the stream
        failed_itself(
            error
        )  # Ctrl-C, which comes at the end of a large value, leaves the loop in its next turn
        raise NotPicklable(f"{what} cannot be unpickled: {words_of(error)}") from error


class FrameReader(asyncio.BufferedProtocol):
    """Reads frames from a stream; a frame's body is read into memory of its own, without another copy.

    Args:
        on_frame: gets each frame.
        on_end: called once, when the stream has ended or is broken.
        limit: the most bytes of a frame; the end of the stream if one has more.
    """

    def __init__(self, on_frame: Callable[[Frame], None], on_end: Callable[[], None], limit: int) -> None:
        self._on_frame, self._on_end, self._limit = on_frame, on_end, limit
        self._scratch = memoryview(bytearray(SCRATCH))
        self._at = self._filled = 0
        """Between these two stands what was read into the scratch buffer and not handled."""
        self._large: tuple[tuple[int, int, int], memoryview] | None = None
        """The header and the memory of a frame that is larger than what has been read."""
        self._read = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none, by its class

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        self._on_end()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into."""
        if self._large is not None:
            return self._large[1][self._read :]
        if self._at:
            self._make_room()
        return self._scratch[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self._large is None:
            self._filled += nbytes
        else:
            self._read += nbytes
        self._parse()

    def _parse(self) -> None:
        """Handle the frames that are complete."""
        try:
            if self._large is not None:
                self._take_large()
            self._take_small()
        except (KeyboardInterrupt, SystemExit):
            # The frame that Ctrl-C has hit is not read twice. Those behind it do not wait for the next one: it may be
            # that no other comes before they are answered.
            asyncio.get_running_loop().call_soon(self._parse)
            raise

    def _take_large(self) -> None:
        assert self._large is not None
        header, body = self._large
        if self._read == len(body):
            frame = Frame(*header, body)
            self._large = None
            self._on_frame(frame)

    def _take_small(self) -> None:
        """Handle the frames in the scratch buffer; begin with a large one."""
        while self._large is None and self._filled - self._at >= HEADER.size:
            kind, call, buffers, length = HEADER.unpack_from(self._scratch, self._at)
            if length > self._limit or buffers > MAX_BUFFERS:
                assert self.transport is not None
                self._at = self._filled
                self.transport.abort()
                return
            begin = self._at + HEADER.size
            here = min(length, self._filled - begin)
            if here < length and HEADER.size + length <= SCRATCH:
                return  # a small one: the rest of it fits behind what is here
            body = memoryview(bytearray(length))
            body[:here] = self._scratch[begin : begin + here]
            frame = Frame(kind, call, buffers, body)
            self._at = begin + here
            if here == length:
                self._on_frame(frame)
            else:
                self._large, self._read = ((kind, call, buffers), body), here

    def _make_room(self) -> None:
        """Move what is not handled to the beginning of the scratch buffer."""
        rest = bytes(self._scratch[self._at : self._filled])
        left = self._filled - self._at
        self._scratch[:left] = rest
        self._at, self._filled = 0, left

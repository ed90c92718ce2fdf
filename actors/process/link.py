"""The worker's end of the connection to its parent: frames, replies, log records."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import select
import threading
import traceback
from collections import deque
from typing import Any

from actors._core.instruments import Instrument
from actors._future import Future
from actors.process.frames import Kind, NotPicklable, encode
from actors.process.worker import OUT_OF_MEMORY

PARENT_IS_GONE = 98
"""Exit code of a worker whose parent has ended."""


class Link:
    """The worker's end of the connection. Any thread may send; a full socket blocks the sender.

    Args:
        fd: the socket's file descriptor.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.limit = 1 << 62
        self._lock = threading.RLock()
        self._frames: deque[list[memoryview]] = deque()
        """Frames to send, in order."""
        self._sending = False

    def send(self, kind: Kind, call: int, value: Any, what: str) -> None:
        """Send a frame.

        Raises:
            NotPicklable: the value cannot be sent.
        """
        parts = [memoryview(part) for part in encode(kind, call, value, what, self.limit)]
        with self._lock:
            self._frames.append(parts)
            if self._sending:
                return  # a finalizer or signal handler that logs inside of a send: a frame must not begin in another
            self._sending = True
            try:
                while self._frames:
                    for part in self._frames.popleft():
                        self._write(part)
            finally:
                self._sending = False

    def _write(self, part: memoryview) -> None:
        part = part.cast("B")
        while part:
            try:
                part = part[os.write(self.fd, part) :]
            except BlockingIOError:
                room = select.poll()
                room.register(self.fd, select.POLLOUT)
                room.poll()
            except OSError:
                os._exit(PARENT_IS_GONE)

    def fail(self, kind: Kind, call: int, error: BaseException) -> None:
        """Send an error; one that cannot be pickled as the text of its traceback."""
        if isinstance(error, MemoryError):
            self.out_of_memory()
        text = "".join(traceback.format_exception(error))
        error.__traceback__ = None
        with contextlib.suppress(Exception):
            error.add_note(f"In the worker process {os.getpid()}:\n{text.rstrip()}")
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
            self.send(kind, call, error, "the error")
        except BaseException:  # whatever the error's own code raises
            self.send(
                kind, call, f"{type(error).__qualname__}, which cannot be pickled:\n{text}", "the error"
            )

    def out_of_memory(self) -> None:
        """End the process if it has a memory limit: what could not be allocated may be missed anywhere."""
        if memory_limited():
            os.write(2, b"out of memory\n")
            os._exit(OUT_OF_MEMORY)


def memory_limited() -> bool:
    """Return whether the address space of this process is limited."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


class Reply(Future[Any]):
    """The reply to a call: sent to the parent when it is settled.

    Args:
        link: the connection.
        call: the number of the call.
        asked: whether the parent wants the value.
    """

    def __init__(self, link: Link, call: int, asked: bool) -> None:
        super().__init__()
        self._link, self.call, self._asked = link, call, asked

    def set(self, value: Any = None) -> None:
        """See :meth:`Future.set`."""
        if not self.try_set(value):
            raise queue.Full

    def set_exception(self, exc_info: Any = None) -> None:
        """See :meth:`Future.set_exception`."""
        plain: Future[Any] = Future()
        plain.set_exception(exc_info)
        if not self.try_fail(plain.exception() or RuntimeError("no error")):
            raise queue.Full

    def try_set(self, value: Any) -> bool:
        """See :meth:`Future.try_set`."""
        if not super().try_set(value):
            return False
        try:
            self._link.send(Kind.DONE, self.call, value if self._asked else None, "the reply")
        except NotPicklable as error:
            self._link.fail(Kind.FAILED, self.call, error)
        except MemoryError:
            self._link.out_of_memory()
            raise
        return True

    def try_fail(self, error: BaseException) -> bool:
        """See :meth:`Future.try_fail`."""
        if not super().try_fail(error):
            return False
        self._link.fail(Kind.FAILED, self.call, error)
        return True


class Taken(Instrument):
    """Tells the parent of handlers that have returned and will answer later."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def end(self, cell: Any, envelope: Any, began: int, ended: int, error: Any) -> None:
        reply = envelope[1]
        if error is None and isinstance(reply, Reply) and not reply.done():
            self._link.send(Kind.TAKEN, reply.call, None, "")


class LogHandler(logging.Handler):
    """Sends log records to the parent, with their texts made here."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: value for name, value in vars(record).items() if name not in ("args", "msg")}
        if record.exc_info:
            fields["exc_text"] = record.exc_text or logging.Formatter().formatException(record.exc_info)
        fields |= {"msg": record.getMessage(), "args": None, "exc_info": None}
        try:
            self._link.send(Kind.LOG, 0, fields, "the record")
        except NotPicklable:  # an ``extra`` of the user's
            plain = {name: value for name, value in fields.items() if isinstance(value, (str, int, float))}
            self._link.send(Kind.LOG, 0, plain, "the record")

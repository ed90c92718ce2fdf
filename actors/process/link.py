"""The worker's end of the connection to its parent: frames, replies, log records."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import threading
import traceback
from collections import deque
from typing import Any

from actors._core.error_fields import is_a
from actors._core.instruments import Instrument
from actors._future import Future
from actors.process.frames import Kind, NotPicklable, encode
from actors.process.worker import OUT_OF_MEMORY

PARENT_IS_GONE = 98
"""Exit code of a worker whose parent has ended."""

FORKED = b"a process that the actor has forked went on as its worker, and has ended: end it with os._exit()\n"

SHARE = 5
"""Bytes of ``max_message`` for each character of an error's text: four of UTF-8, the rest for what is around it."""

CUT = "\n[...]\n"
"""Stands for what was cut out of a text."""


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

        Args:
            kind: what the frame says.
            call: the number of the call that it belongs to; 0 for none.
            value: what to pickle.
            what: names the value in errors.

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
                if self.fd < 0:
                    os.write(2, FORKED)
                os._exit(PARENT_IS_GONE)

    def let_go(self) -> None:
        """In a child that the actor's code has forked: the connection is its parent's. To send a frame ends the child."""
        self.fd, self._sending = -1, False
        self._lock = threading.RLock()  # another thread may have held it
        self._frames.clear()

    def fail(self, kind: Kind, call: int, error: BaseException) -> None:
        """Send an error; one that cannot be pickled, or is too large, as the text of its traceback.

        Args:
            kind: ``FAILED`` or ``DIED``.
            call: the number of the call that it belongs to; 0 for none.
            error: the error.
        """
        name, text = type(error).__qualname__, ""
        try:
            if is_a(error, MemoryError):
                self.out_of_memory()
            text = cut("".join(traceback.format_exception(error)).rstrip(), self.limit // SHARE)
            error.__traceback__ = None
            with contextlib.suppress(Exception):
                error.add_note(f"In the worker process {os.getpid()}:\n{text}")
            pickle.loads(pickle.dumps(error))  # noqa: S301
            self.send(kind, call, error, "the error")
        except MemoryError:
            self.out_of_memory()
            self._fail_in_words(kind, call, name)
        except NotPicklable:
            self._fail_in_words(kind, call, f"{name}, which is larger than max_message:\n{text}")
        except BaseException:  # whatever the error's own code raises
            self._fail_in_words(kind, call, f"{name}, which cannot be pickled:\n{text}")

    def _fail_in_words(self, kind: Kind, call: int, words: str) -> None:
        try:
            self.send(kind, call, words, "the error")
        except (NotPicklable, MemoryError):
            self.send(kind, call, None, "the error")

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
    """The reply to a call: sent to the parent when it is settled, by whatever method.

    Args:
        link: the connection.
        call: the number of the call.
        wanted: whether the parent wants the value; for a tell only the end of its handler counts.
    """

    def __init__(self, link: Link, call: int, wanted: bool) -> None:
        super().__init__()
        self._link, self.call, self.wanted = link, call, wanted
        self._silent = False

    def _settle(self, state: int, value: Any) -> bool:
        if not super()._settle(state, value):
            return False
        if self._silent:
            return True
        if not self.value_set():
            self._link.fail(Kind.FAILED, self.call, value)
            return True
        try:
            self._link.send(Kind.DONE, self.call, value if self.wanted else None, "the reply")
        except (NotPicklable, MemoryError) as error:
            self._link.fail(Kind.FAILED, self.call, error)
        return True

    def give_up(self) -> None:
        """Cancel the reply without a word to the parent, where the asker has given up."""
        self._silent = True
        self.cancel()


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
        """Send a record; one that cannot be sent is reported as by other handlers, and raises nothing."""
        try:
            self._send(record)
        except Exception as error:  # also the record's own, such as arguments that do not fit
            if is_a(error, MemoryError):
                self._link.out_of_memory()
            self.handleError(record)

    def _send(self, record: logging.LogRecord) -> None:
        fields = {
            name: value
            for name, value in vars(record).items()
            if name not in ("args", "msg", "exc_info") and _travels(value)
        }
        if record.exc_info:
            fields["exc_text"] = record.exc_text or logging.Formatter().formatException(record.exc_info)
        fields |= {"msg": record.getMessage(), "args": None, "exc_info": None}
        try:
            self._link.send(Kind.LOG, 0, fields, "the record")
        except NotPicklable:  # larger than max_message
            most = self._link.limit // SHARE // len(fields)
            short = {
                name: cut(value, most) if isinstance(value, str) else value for name, value in fields.items()
            }
            self._link.send(Kind.LOG, 0, short, "the record")


def _travels(value: Any) -> bool:
    """Tell whether the parent can read it: an ``extra`` of the program's may be anything."""
    if value is None or type(value) in (str, int, float, bool):
        return True
    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301
    except BaseException:  # whatever the value's own code raises
        return False
    return True


def cut(text: str, most: int) -> str:
    """Cut the middle out of a text that has more than ``most`` characters.

    Args:
        text: the text.
        most: characters of the result, at most.
    """
    if len(text) <= most:
        return text
    half = max(0, most - len(CUT)) // 2
    return text[:half] + CUT + text[len(text) - half :]

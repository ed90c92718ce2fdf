"""A worker process, as its parent's event loop sees it: start, calls, output, end.

What the worker writes to its standard output and error goes, line by line, to the logger ``actors.worker``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from typing import IO, Any

from actors._core.error_fields import is_a
from actors._core.log_safely import log_safely
from actors._errors import ActorError
from actors._future import Future
from actors.process.frames import Frame, FrameReader, Kind, NotPicklable, Part, decode, encode
from actors.process.launch import launch
from actors.process.output import Lines, log_line, log_record

logger = logging.getLogger("actors.worker")

OUT_OF_MEMORY = 97
"""Exit code of a worker that has reached its memory limit."""

LAST_LINES = 20
"""Lines of standard error that a crash report quotes."""

LAST_WORDS = 1.0
"""Seconds that a dead worker's output and last frames may take to arrive."""


class WorkerDied(ActorError):
    """The process of an actor ended by itself: a signal, an exit, its memory limit, or it did not start.

    Args:
        text: what has happened.
        pid: the process's; None: it never ran.
        exit_code: as in :mod:`subprocess` (negative: the signal's number); None: it never ran.
    """

    def __init__(self, text: str, pid: int | None, exit_code: int | None) -> None:
        super().__init__(text)
        self.pid, self.exit_code = pid, exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.pid, self.exit_code), self.__dict__


class WorkerProcess:
    """One worker process. All methods are called on the loop's thread.

    Args:
        loop: the parent's event loop.
        path: the actor's path, for logs and errors.
        limit: the most bytes of a frame.
        on_taken: called when the handler of the current call has returned without an answer; returns the future
            that gets the answer, or for a tell a function that is called when there is one.
        on_failed: called with the error when a told message that the actor had put aside has failed.
        on_died: called with the error when the actor failed outside of a call, and with the call that it was handling or 0.
        on_leave: called when the actor has asked for its own stop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: str,
        limit: int,
        *,
        on_taken: Callable[[], Future[Any] | Callable[[], None]],
        on_failed: Callable[[BaseException], None],
        on_died: Callable[[BaseException, int], None],
        on_leave: Callable[[], None],
    ) -> None:
        self.pid: int | None = None
        self.exited: asyncio.Future[int | None] = loop.create_future()
        """Done with the exit code when the process has ended; None if it could not be launched."""
        self.ready: asyncio.Future[None] = loop.create_future()
        self._loop, self.path, self._limit = loop, path, limit
        self._on_taken, self._on_failed, self._on_died, self._on_leave = (
            on_taken,
            on_failed,
            on_died,
            on_leave,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._launch_error: Exception | None = None
        self._killed = False
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, asyncio.Future[Any] | Future[Any] | Callable[[], None]] = {}
        """The calls without an answer. Once TAKEN has come, with what ``on_taken`` has returned."""
        self.last_call = 0
        """The number of the last call."""
        self.unsent = False
        """Whether the process cannot have read the last call: the connection was closed before its end."""
        self._open = 0
        """Streams from the worker that have not ended: frames, output, errors."""
        self._all_closed = asyncio.Event()
        self._pipes: list[asyncio.ReadTransport] = []
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)

    # -- start ------------------------------------------------------------------------------------

    async def start(self, spec: list[Part]) -> None:
        """Launch the process and wait until its actor has started.

        Args:
            spec: the START frame.

        Raises:
            WorkerDied: the process ended, or could not be launched.
            Exception: what the actor's constructor or ``on_start`` raised.
        """
        try:
            ours = launch(self._loop, self.path, self._launched, self._ended)
        except (RuntimeError, OSError) as error:  # the system has no more threads or file descriptors
            self._all_closed.set()
            self._ended(None, error)
            raise await self.death() from None
        self._open += 1
        transport, _ = await self._loop.create_unix_connection(
            lambda: FrameReader(self._read, self._closed, self._limit), sock=ours
        )
        self._transport = transport
        self._write(spec)
        ends: list[asyncio.Future[Any]] = [self.ready, self.exited]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self.ready.done():
            raise await self.death()
        await self.ready

    def _launched(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.pid = process, process.pid
        if self._killed:
            self.kill()
        for pipe, level in ((process.stdout, logging.INFO), (process.stderr, logging.WARNING)):
            assert pipe is not None
            self._open += 1
            self._loop.create_task(self._listen(pipe, level))

    async def _listen(self, pipe: IO[bytes], level: int) -> None:
        transport, _ = await self._loop.connect_read_pipe(
            lambda: Lines(self._line, level, self._closed), pipe
        )
        self._pipes.append(transport)

    def _line(self, level: int, line: str) -> None:
        if level == logging.WARNING:
            self.last_lines.append(line)
        log_line(level, line, self.path, self.pid)

    # -- calls --------------------------------------------------------------------------------------

    def call(self, kind: Kind, value: Any, what: str) -> asyncio.Future[Any]:
        """Send a frame that is answered; return the answer's future.

        Args:
            kind: CALL or HOOK.
            value: what to send.
            what: names it in errors.

        Raises:
            NotPicklable: it cannot be sent.
        """
        number = self.last_call + 1
        parts = encode(kind, number, value, what, self._limit)
        self.last_call = number
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._calls[number] = answer
        self._write(parts)
        # A dead process's end of the connection is closed: a write fails at once, or was not tried.
        self.unsent = self._transport is None or self._transport.is_closing()
        return answer

    def _write(self, parts: list[Part]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            for part in parts:
                self._transport.write(part)

    def _read(self, frame: Frame) -> None:
        kind = frame.kind
        if kind in (Kind.DONE, Kind.FAILED):
            self._answered(frame)
        elif kind == Kind.TAKEN:
            self._taken(frame.call)
        elif kind == Kind.LOG:
            log_record(frame, self.path, self.pid)
        elif kind == Kind.LEAVE:
            self._on_leave()
        elif kind == Kind.DIED:
            self._failed(self._error_of(frame), frame.call)

    def _taken(self, number: int) -> None:
        """Let the parent's handler go on, and keep the asker for the answer that comes later."""
        answer = self._calls.get(number)
        if not isinstance(answer, asyncio.Future) or answer.done():
            return  # put aside or taken over again: the handler that runs now is another call's
        self._calls[number] = asker = self._on_taken()
        answer.set_result(None)
        if isinstance(asker, Future):
            asker.observe(functools.partial(self._given_up, number))

    def _given_up(self, number: int, asker: Future[Any]) -> None:
        """Tell the worker that the asker does not wait any more, unless the answer is what has come."""
        if self._calls.get(number) is asker:
            del self._calls[number]
            self._write(encode(Kind.GIVEN_UP, number, None, "the news", self._limit))

    def _answered(self, frame: Frame) -> None:
        if frame.call and frame.call not in self._calls:
            return  # its asker has given up
        answer = self._calls[frame.call] if frame.call else self.ready
        value, error = None, None
        try:
            if frame.kind == Kind.DONE:
                value = decode(frame, f"the reply of {self.path}")
            else:
                error = self._error_of(frame)
        except NotPicklable as failure:
            error = failure
        self._calls.pop(
            frame.call, None
        )  # not before: without memory the process is given up, with the calls that are here
        if isinstance(answer, (asyncio.Future, Future)):
            self._settle(answer, value, error)
            return
        answer()
        if error is not None:
            self._on_failed(error)

    def _error_of(self, frame: Frame) -> BaseException:
        try:
            error = decode(frame, f"an error of {self.path}")
        except NotPicklable as failure:
            return failure
        if isinstance(error, BaseException):
            return error
        return ActorError(str(error or f"an error of {self.path} is larger than max_message"))

    def _failed(self, error: BaseException, call: int) -> None:
        if self.ready.done():
            self._on_died(error, call)
        else:
            self._settle(self.ready, None, error)

    @staticmethod
    def _settle(answer: asyncio.Future[Any] | Future[Any], value: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if isinstance(answer, Future):
            if error is None:
                answer.try_set(value)
            elif is_a(error, asyncio.CancelledError):  # the actor has cancelled the reply
                answer.cancel()
            else:
                answer.try_fail(error)
        elif error is None:
            answer.set_result(value)
        else:
            if is_a(error, StopIteration):  # no asyncio future takes it
                error = _from_stop_iteration(error)
            answer.set_exception(error)
            answer.exception()  # it may be that nobody waits any more

    # -- the end --------------------------------------------------------------------------------------

    def _closed(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._all_closed.set()

    def _ended(self, code: int | None, error: Exception | None = None) -> None:
        self._launch_error = error
        if not self.exited.done():
            self.exited.set_result(code)
        if code is None and self._transport is not None:
            self._transport.abort()

    async def death(self) -> WorkerDied:
        """Wait for the last output of a process that has ended; return the error that says how it ended."""
        code = await asyncio.shield(self.exited)
        await self._last_words()
        error = WorkerDied(f"{self.path}: {self._describe(code)}", self.pid, code)
        if self.last_lines:
            error.add_note("The last lines of its standard error:\n" + "\n".join(self.last_lines))
        return error

    async def _last_words(self) -> None:
        """Wait a moment for the end of the output; a grandchild may hold it open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._all_closed.wait()
        for pipe in self._pipes:
            pipe.close()
        self.close()

    def _describe(self, code: int | None) -> str:
        if code is None:
            return f"its worker process could not be launched: {self._launch_error}"
        who = f"its worker process (pid {self.pid})"
        if code == OUT_OF_MEMORY:
            return f"{who} reached its memory limit"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"{who} was ended by {signal.Signals(-code).name}"
        return f"{who} ended with exit code {code}"

    async def end(self, patience: float) -> None:
        """Close the connection, at which the worker exits; kill it after ``patience`` seconds."""
        self.close()
        done, _ = await asyncio.wait([self.exited], timeout=patience)
        if not done:
            log_safely(
                logger.warning, "%s (pid %s): still there after %g s, killed", self.path, self.pid, patience
            )
            self.kill()
            await asyncio.wait([self.exited], timeout=LAST_WORDS)
        await self._last_words()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            with contextlib.suppress(
                RuntimeError
            ):  # the loop is closed; the thread that has launched the process kills it
                self._transport.close()

    def kill(self) -> None:
        """Kill the process, or have it killed as soon as it is launched."""
        self._killed = True
        if self._process is not None and not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self.close()


def _from_stop_iteration(error: StopIteration) -> RuntimeError:
    """Convert a StopIteration that a handler raised to a RuntimeError, as coroutines do."""
    made = RuntimeError("handler raised StopIteration")
    made.__cause__ = error
    return made

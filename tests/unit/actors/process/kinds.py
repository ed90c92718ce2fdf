"""Process actors for the tests; workers import this module, so it imports little."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors import Actor, Future, ProcessActor, Request, handles
from actors._trace import ambient


@dataclass(frozen=True)
class Pid(Request[int]):
    pass


@dataclass(frozen=True)
class Add(Request[int]):
    number: int


@dataclass(frozen=True)
class Fail:
    error: BaseException


@dataclass(frozen=True)
class Exit:
    code: int


@dataclass(frozen=True)
class Allocate:
    size: int


@dataclass(frozen=True)
class Open:
    """Block until somebody writes into this named pipe."""

    fifo: str


@dataclass(frozen=True)
class Wait:
    """Wait for ever in a coroutine; write ``cancelled`` into the file if that is cancelled."""

    path: str


@dataclass(frozen=True)
class Spin:
    """Write ``spins`` into the file, then compute for ever; ``hard`` never lets another thread run."""

    path: str
    hard: bool = False


@dataclass(frozen=True)
class Later:
    """Answered by the next Add."""


@dataclass(frozen=True)
class Measure:
    data: Any


class Blob:
    """Has a buffer that pickle can take out of band."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Blob, (pickle.PickleBuffer(self.data),)


class Unloadable:
    """Can be pickled but not unpickled."""

    def __reduce__(self) -> Any:
        return _refuse, ()


class Exits:
    """Ends the process that unpickles it, if that lets it."""

    def __reduce__(self) -> Any:
        return sys.exit, (3,)


def _refuse() -> None:
    raise ValueError("not today")


class OddError(Exception):
    """Cannot be unpickled: its constructor wants two arguments."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} because {why}")


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        return message


class Kind(ProcessActor):
    """Does what its messages say.

    Args:
        notes: a file to write the names of hooks to, or None.
    """

    name = "kind"
    stop_timeout = 60.0

    def __init__(self, notes: str | None = None) -> None:
        super().__init__()
        self.notes = notes
        self.sum = 0
        self.later: Future[Any] | None = None

    def note(self, what: str) -> None:
        if self.notes is not None:
            with open(self.notes, "a") as file:
                file.write(f"{what}\n")

    async def on_start(self) -> None:
        self.note("start")

    def on_stop(self) -> None:
        self.note("stop")

    def on_failure(self, *failure: Any) -> None:
        self.note(f"failure {failure[1]}")

    def before_restart(self, error: BaseException) -> None:
        self.note(f"before {error}")

    def after_restart(self, error: BaseException) -> None:
        self.note(f"after {error}")

    @handles(Pid)
    def pid(self, _: Pid) -> int:
        return os.getpid()

    @handles(Add)
    def add(self, message: Add) -> int:
        self.sum += message.number
        if self.later is not None:
            self.later.set(self.sum)
            self.later = None
        return self.sum

    @handles(Later)
    def take(self, _: Later) -> None:
        self.later = self.take_reply()

    @handles(Fail)
    async def fail(self, message: Fail) -> None:
        raise message.error

    @handles(Exit)
    def exit(self, message: Exit) -> None:
        print("last words", file=sys.stderr)
        os._exit(message.code)

    @handles(Allocate)
    def allocate(self, message: Allocate) -> int:
        return len(bytearray(message.size))

    @handles(Open)
    def open(self, message: Open) -> None:
        with open(message.fifo) as file:
            file.read()

    @handles(Wait)
    async def wait(self, message: Wait) -> None:
        try:
            with open(message.path, "w") as file:
                file.write("waits\n")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with open(message.path, "a") as file:
                file.write("cancelled\n")
            raise

    @handles(Spin)
    def spin(self, message: Spin) -> None:
        with open(message.path, "w") as file:
            file.write(f"spins {os.getpid()}")
        if message.hard:
            sum(iter(int, 1))
        while True:
            pass

    @handles(Measure)
    def measure(self, message: Measure) -> tuple[str, int, bytes]:
        view = memoryview(message.data)
        return type(message.data).__name__, view.nbytes, bytes(view[:3])

    @handles(Blob)
    def grow(self, message: Blob) -> Blob:
        view = memoryview(message.data)
        view[0] = 7
        return Blob(view)

    @handles(str)
    async def command(self, what: str) -> Any:
        if what == "trace":
            ambient_trace = self._cell.trace or ambient.get()
            return None if ambient_trace is None else ambient_trace.header
        if what == "lambda":
            return lambda: None
        if what == "exits":
            return Exits()
        if what == "no more":
            raise StopIteration
        if what == "print":
            print("said")
            print("complained", file=sys.stderr)
            try:
                print(1 / 0)
            except ZeroDivisionError:
                logging.getLogger("kind").warning("logged %d", 1, exc_info=True, extra={"lock": print})
            return None
        if what == "odd error":
            raise OddError("odd", "so")
        if what == "stop":
            return self.stop()
        if what == "child":
            return await self.spawn(Echo, name="c").ask(self.path, block=False)
        if what == "fork":
            return self.fork()
        if what == "libraries":
            return Path("/proc/self/maps").read_text()
        if what == "timer":
            return self.set_timer("t", 0.0, Fail(ValueError("in a timer")))
        return what

    def fork(self) -> Any:
        codes = []
        for last in (lambda: os._exit(7), lambda: "the child's answer"):
            child = os.fork()
            if child == 0:
                logging.getLogger("kind").warning("in the child")
                return last()
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return codes

    def twice(self, number: int) -> int:
        return 2 * number


class Full(Kind):
    mailbox_capacity = 2


class Small(Kind):
    memory_limit = 1 << 30
    max_message = 1 << 21


class Tight(Kind):
    memory_limit = 4096


class Broken(Kind):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        raise error


class Impatient(Kind):
    stop_timeout = 0.1


class Slow(Kind):
    start_timeout = 0.5

    async def on_start(self) -> None:
        await asyncio.Event().wait()

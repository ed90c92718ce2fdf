"""A daemon for tests of ``kafka-pixy produce``, and how they write to it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import CallError, ShellError
from pixy.cli.shell.output import Output
from pixy.cli.shell.produce import Writer
from pixy.cli.shell.produce_input import ReadAhead, Shape
from pixy.cli.shell.progress import Bar
from pixy.proto import kafkapixy_pb2 as pb


class Daemon:
    """A session whose daemon answers what a test wants. As the real one it looks for signals before it begins a call.

    Args:
        errors: of the messages with these texts.
        refuses: the error of every call.
        answers: what becomes of the wait for an answer, counted from 1: an error, a KeyboardInterrupt, or the number of a
            signal that comes together with the answer.
    """

    def __init__(
        self,
        errors: dict[bytes, str] | None = None,
        refuses: CallError | None = None,
        answers: dict[int, BaseException | signal.Signals] | None = None,
    ) -> None:
        self.server, self.cluster, self.timeout, self.out = "d:1", "", 1.0, Output("table")
        self._errors, self._refuses, self._answers = errors or {}, refuses, answers or {}
        self.requests: list[Any] = []
        self._waits = 0

    def begin(self, _method: str, request: Any) -> Any:
        interrupts.check()
        self.requests.append(request)
        return request

    def answer(self, request: Any, method: str, **_: Any) -> Any:
        self._waits += 1
        happens = self._answers.get(self._waits, self._refuses)
        if isinstance(happens, BaseException):
            raise happens
        if happens is not None:
            with interrupts.deferred():
                signal.raise_signal(happens)
        if method == "Produce":
            return pb.ProdRs(partition=-1, offset=-1)
        results = [pb.ProdResult(error=self._errors.get(each.value, "")) for each in request.records]
        return SimpleNamespace(results=results)


def write(daemon: Daemon, lines: list[bytes], *, skip: int = 0, most: int = 1000, **shape: Any) -> int:
    """Write lines that have all been read before the first call."""
    asynchronous = shape.pop("asynchronous", False)
    with Bar("producing", prints=True) as bar:
        writer = Writer(daemon, "foo", Shape(**shape), bar, asynchronous=asynchronous)  # type: ignore[arg-type]
        return writer.run(read(lines, skip), most, skip)


def read(lines: list[bytes], skip: int = 0) -> ReadAhead:
    ended = threading.Event()

    def source() -> Iterator[bytes]:
        yield from (line + b"\n" for line in lines)
        ended.set()

    made = ReadAhead(source(), skip)
    assert ended.wait(30)
    return made


def failure(daemon: Daemon, lines: list[bytes], **options: Any) -> str:
    with pytest.raises(ShellError) as caught:
        write(daemon, lines, **options)
    assert caught.value.code == 1
    return str(caught.value)

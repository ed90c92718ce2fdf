"""Run programs inside the test's process: starting an interpreter costs more than most programs do."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock


@dataclass
class Finished:
    """The outcome of a program: exit code and output, as of a process."""

    returncode: int
    stdout: bytes
    stderr: bytes


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """Take the root logger's handlers away; afterwards undo what the program changed in logging."""
    root = logging.getLogger()
    disabled = root.manager.disable
    levels = {name: logging.getLogger(name).level for name in [*root.manager.loggerDict, None]}
    with mock.patch.object(root, "handlers", []):
        try:
            yield
        finally:
            logging.disable(disabled)
            for name in [*root.manager.loggerDict, None]:
                logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def run_in_process(
    program: Callable[[], Any], *, argv: list[str] | None = None, stdin: bytes = b""
) -> Finished:
    """Call a program with standard streams of its own.

    The root logger has no handlers meanwhile, so log records go to standard error as they would in a process.

    Args:
        program: returns its exit code or raises SystemExit; any other exception is printed, with exit code 1.
        argv: replaces ``sys.argv``.
        stdin: the bytes on standard input.
    """
    streams = [io.TextIOWrapper(io.BytesIO(each), "utf-8", write_through=True) for each in (stdin, b"", b"")]
    with (
        _own_logging(),
        mock.patch.multiple(
            sys, stdin=streams[0], stdout=streams[1], stderr=streams[2], argv=argv or sys.argv
        ),
    ):
        code: Any
        try:
            code = program()
        except SystemExit as error:
            code = error.code
        except BaseException:
            traceback.print_exc()
            code = 1
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    return Finished(code or 0, *(each.buffer.getvalue() for each in streams[1:]))  # type: ignore[attr-defined]


def run_source(source: str, name: str = "<program>", arguments: tuple[str, ...] = ()) -> Finished:
    """Run the source of a program as ``__main__``.

    Args:
        source: the program's text.
        name: its file name, for tracebacks and ``sys.argv``.
        arguments: its command line.
    """
    module = types.ModuleType("__main__")
    module.__file__ = name

    def program() -> None:
        with mock.patch.dict(sys.modules, {"__main__": module}):
            exec(compile(source, name, "exec"), vars(module))

    return run_in_process(program, argv=[name, *arguments])


def run_file(path: Path, *arguments: str) -> Finished:
    """Run a program's file as ``__main__``."""
    return run_source(path.read_text(), str(path), arguments)

"""A shell whose daemon answers what a test wants: the whole command runs, without a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from pixy.cli.main import main
from pixy.cli.shell import framework
from pixy.cli.shell.errors import CallError
from pixy.cli.shell.session import Session
from tests.in_process import run_in_process

Answer = Any
"""A protobuf message, an error that is raised, or a function of the request that returns one of both."""


class Shell:
    """Runs commands against made-up answers.

    Args:
        monkeypatch: takes the connection away.
        answers: by method of the gRPC service.

    Attributes:
        asked: the methods that were called, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, Answer]) -> None:
        self.asked: list[str] = []
        shell = self

        class Answered(Session):
            def begin(self, method: str, request: Any, timeout: float | None = None) -> Any:
                shell.asked.append(method)
                return request

            def answer(self, future: Any, method: str, **_: Any) -> Any:
                found = answers[method]
                if callable(found):
                    found = found(future)
                if isinstance(found, Exception):
                    raise found
                return found

        monkeypatch.setattr(framework, "Session", Answered)

    def run(self, *args: str, stdin: str = "") -> tuple[int, str, str]:
        """Run a command; return the exit code, and the whole of standard output and error."""
        done = run_in_process(lambda: main(list(args)), stdin=stdin.encode())
        return done.returncode, done.stdout.decode(), done.stderr.decode()


NOT_FOUND = CallError(grpc.StatusCode.NOT_FOUND, "not found")


__all__ = ["NOT_FOUND", "Shell"]

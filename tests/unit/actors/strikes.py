"""Ctrl-C at each place of given functions where Python looks for signals: after a call of C code, where a function or
a coroutine's next step begins, and where a loop jumps back. What a call returns is lost then. Callbacks of the loop are not
struck where they begin: that is no other place than in the loop's own code, which has taken them out of its queue.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

CALLBACKS = {"Turns._run", "Procedure._step", "_start", "_start_task_ended"}
"""Functions that the loop calls."""

LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")
"""How the names of the instructions begin that look for signals."""


@functools.cache
def _looks(code: CodeType) -> dict[int, str]:
    """The instructions that look for signals, by their offset; for a function's beginning and its calls."""
    found = {}
    for each in dis.get_instructions(code):
        resumes_await = each.opname.endswith("RESUME") and (each.arg or 0) & 3 > 1
        if each.opname.startswith(LOOKS) and not each.opname.endswith("NO_INTERRUPT") and not resumes_await:
            found[each.offset] = each.opname
    return found


class Strike:
    """Raises an exception at one of these places; a context manager, for this thread.

    Args:
        functions: where.
        number: at which place, counted as they are passed.
        error: what to raise.
    """

    def __init__(
        self, functions: tuple[Callable[..., Any], ...], number: int, error: BaseException | None = None
    ) -> None:
        self._codes = {function.__code__ for function in functions}  # type: ignore[attr-defined]
        self._left = number
        self._error = KeyboardInterrupt() if error is None else error
        self._called_from: FrameType | None = None
        self.place = ""
        """Where it has struck; empty if it has not."""

    def __enter__(self) -> Strike:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if frame.f_code.co_name != "__init__":  # which C code calls
            self._called_from = frame.f_back
        if self.place or frame.f_code not in self._codes:
            return None
        frame.f_trace_opcodes = True
        # The instruction with which the function begins, or goes on.
        before = [-1 if frame.f_code.co_qualname in CALLBACKS else frame.f_lasti]

        def step(frame: FrameType, event: str, _arg: Any) -> Any:
            if event != "opcode" or self.place:
                return step
            looked, before[0] = _looks(frame.f_code).get(before[0]), frame.f_lasti
            # A call of a Python function looks where that begins, not after it.
            if looked is not None and not ("CALL" in looked and self._called_from is frame):
                self._left -= 1
                if self._left < 0:
                    self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno} after {looked}"
                    raise self._error
            self._called_from = None
            return step

        return step


def strikes(*functions: Callable[..., Any], error: BaseException | None = None) -> Iterator[Strike]:
    """One strike for each place that is passed, until one has found none; before these, one that strikes nowhere.

    From Python 3.12 on a function's instructions are traced from its second call on only, and not all of them.
    """
    yield Strike(functions, sys.maxsize, error)
    number = 0
    while True:
        strike = Strike(functions, number, error)
        yield strike
        if not strike.place:
            return
        number += 1

"""Ctrl-C at each place of given functions where Python looks for signals: after a call of C code, where a function or
a coroutine's next step begins, and where a loop jumps back. What a call returns is lost then. Callbacks of the loop are not
struck where they begin: that is no other place than in the loop's own code, which has taken them out of its queue.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Iterator
from threading import get_ident
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


class _Strike:
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
        self.place = ""
        """Where it has struck; empty if it has not."""

    def _pass(self, frame: FrameType, looked: str) -> None:
        """Pass a place, or strike there."""
        self._left -= 1
        if self._left < 0:
            self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno} after {looked}"
            raise self._error


if sys.version_info >= (3, 12):
    # sys.settrace() has no opcodes of a function's first call there, and not all of the later ones.
    from sys import monitoring

    TOOL = 4  # one of the two numbers without a meaning

    class Strike(_Strike):
        __doc__ = _Strike.__doc__

        def __enter__(self) -> Strike:
            self._thread = get_ident()
            events = monitoring.events
            monitoring.use_tool_id(TOOL, "strikes")
            # A call of a Python function looks where that begins, and is no C_RETURN.
            for event in (events.PY_START, events.PY_RESUME, events.C_RETURN, events.JUMP):
                monitoring.register_callback(TOOL, event, self._look)
            # C_RETURN comes with CALL.
            self._listen(events.PY_START | events.PY_RESUME | events.CALL | events.JUMP)
            return self

        def __exit__(self, *_: object) -> None:
            self._listen(0)
            monitoring.free_tool_id(TOOL)

        def _listen(self, events: int) -> None:
            for code in self._codes:
                monitoring.set_local_events(TOOL, code, events)

        def _look(self, code: CodeType, offset: int, *_: Any) -> None:
            if self.place or get_ident() != self._thread:
                return
            looked = _looks(code).get(offset)
            if looked is not None and not (looked == "RESUME" and code.co_qualname in CALLBACKS):
                self._pass(sys._getframe(1), looked)

else:
    # It strikes also after a call of a Python function that has called others. Python does not look there.

    class Strike(_Strike):
        __doc__ = _Strike.__doc__
        _called_from: FrameType | None = None

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
                    self._pass(frame, looked)
                self._called_from = None
                return step

            return step


def strikes(*functions: Callable[..., Any], error: BaseException | None = None) -> Iterator[Strike]:
    """One strike for each place that is passed, until one has found none; before these, one that strikes nowhere."""
    yield Strike(functions, sys.maxsize, error)
    number = 0
    while True:
        strike = Strike(functions, number, error)
        yield strike
        if not strike.place:
            return
        number += 1

"""Looking into a running system; see the modules. Nothing here costs anything until it is used."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType

from actors._trace import TraceContext, tracing as _tracing
from actors.tracing.blocked import LoopWatch
from actors.tracing.spans import Span, Trace, Tracer

__all__ = ["LoopWatch", "Span", "Trace", "Tracer"]


class _Module(ModuleType):
    """``actors.tracing`` is also the function ``actors.tracing(context)``.

    Importing this package puts it in the function's place, so it can be called as the function.
    """

    def __call__(self, context: TraceContext | None) -> AbstractContextManager[None]:
        return _tracing(context)


sys.modules[__name__].__class__ = _Module

"""What Python itself knows of an exception, whatever its class has made of it: a property, or ``__getattribute__``, may raise.

``isinstance`` reads ``__class__`` of what is no instance, so it may raise, too.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeGuard, TypeVar

E = TypeVar("E", bound=BaseException)

TRACEBACK: Any = vars(BaseException)["__traceback__"]
CAUSE: Any = vars(BaseException)["__cause__"]
CONTEXT: Any = vars(BaseException)["__context__"]
MEMBERS: Any = vars(BaseExceptionGroup)["exceptions"]


def is_a(error: BaseException | None, kinds: type[E] | tuple[type[E], ...]) -> TypeGuard[E]:
    """Tell whether ``except kinds`` would catch the error."""
    return issubclass(type(error), kinds)


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the error's traceback."""
    traceback: TracebackType | None = TRACEBACK.__get__(error)
    return traceback


def exc_info_of(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return what :func:`sys.exc_info` does where the error is caught."""
    return type(error), error, traceback_of(error)

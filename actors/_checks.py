"""Checks of arguments: a wrong one is refused at the call, in one line, before anything has happened because of it."""

from __future__ import annotations

import inspect
from typing import Any

import pykka


def number(what: str, value: Any) -> None:
    """Refuse what is no real number, or an integer that no float can stand for. NaN and the infinities pass.

    A ``Decimal`` or ``Fraction`` compares with floats, but fails when it is added to one: in the middle of a restart.

    Args:
        what: names the value in the error.
        value: the number.

    Raises:
        TypeError: it is no ``int`` or ``float``.
        ValueError: it is beyond a float's range.
    """
    if not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number, an int or a float, not {value!r}")
    try:
        float(value)
    except OverflowError:
        raise ValueError(f"{what} is beyond the range of a float") from None


def seconds(what: str, value: Any, *, above_zero: bool = False) -> None:
    """Refuse what is no number of seconds. NaN is none: a timer of the event loop with it disorders all others.

    Args:
        what: names the value in the error.
        value: the number; infinity stands for no limit.
        above_zero: whether 0 is refused, too.

    Raises:
        ValueError: it is below 0, NaN, or beyond a float's range.
        TypeError: it is no number.
    """
    number(what, value)
    if not (value > 0 if above_zero else value >= 0):
        raise ValueError(
            f"{what} is a number of seconds {'above 0' if above_zero else 'from 0'}, not {value!r}"
        )


def timeout_of(what: str, value: Any) -> None:
    """Refuse a timeout that is NaN or no number; one below 0 is over at once.

    Args:
        what: the parameter's name, for the error.
        value: seconds; None for no timeout.

    Raises:
        ValueError: it is NaN, or beyond a float's range.
        TypeError: it is no number.
    """
    if value is None:
        return
    number(what, value)
    if value != value:  # noqa: PLR0124 - NaN is unequal to itself
        raise ValueError(f"{what} is a number of seconds, not {value!r}")


def count(what: str, value: Any, least: int) -> None:
    """Refuse what is no whole number, or below ``least``.

    Args:
        what: names the value in the error.
        value: the number.
        least: the smallest one that makes sense.

    Raises:
        TypeError: it is no ``int``.
        ValueError: it is below ``least``.
    """
    if not isinstance(value, int):
        raise TypeError(f"{what} is a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{what} is {least} or more, not {value}")


def capacity_of(value: Any) -> None:
    """Refuse what is no bound of a mailbox.

    Args:
        value: the most messages.

    Raises:
        TypeError: it is no ``int``.
        ValueError: it is below 1.
    """
    count("mailbox_capacity", value, value)
    if value < 1:
        raise ValueError(f"a mailbox holds one message at least, not {value}")


def one_of(what: str, value: Any, kind: type) -> None:
    """Refuse what is no object of a class.

    Args:
        what: names the value in the error.
        value: the object.
        kind: the class.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{what} is of class {kind.__name__}, not {value!r}")


def ref_of(what: str, value: Any) -> None:
    """Refuse what is no ref of an actor of this runtime: a path, a proxy, an instance, a ref of pykka's own.

    Args:
        what: names the value in the error.
        value: the ref.

    Raises:
        TypeError: it is none.
    """
    if not (isinstance(value, pykka.ActorRef) and hasattr(value, "_cell")):
        raise TypeError(f"{what} is an actor's ref, not {value!r}")


def function(what: str, value: Any) -> None:
    """Refuse what cannot be called with a message, or with the outcome of piped work.

    Args:
        what: names the value in the error.
        value: the function.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(value):
        raise TypeError(f"{what} is a function, not {value!r}")


def no_generator(what: str, value: Any) -> None:
    """Refuse a generator function as a hook or handler: calling it runs none of its code, and nothing tells.

    Args:
        what: names the function in the error.
        value: the function.

    Raises:
        TypeError: it is a generator function, or an asynchronous one.
    """
    if inspect.isgeneratorfunction(value):
        kind = "a generator function"
    elif inspect.isasyncgenfunction(value):
        kind = "an asynchronous generator function"
    else:
        return
    raise TypeError(
        f"{what} is {kind}, whose body would never run: remove its 'yield', or return a generator"
    )

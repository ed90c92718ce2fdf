"""Texts of errors and messages, whose own code may raise, or write without end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from actors._core.interruption import failed_itself

MOST = 500
"""Characters of an error in the text of another one. An escalation quotes the one below it: without a bound each level
doubled the text, with the escapes of its quotation marks."""


def repr_of(error: BaseException) -> str:
    """Return ``repr(error)``, cut to ``MOST`` characters."""
    return _text_of(repr, error, f"{type(error).__name__}(...)")


def str_of(error: BaseException) -> str:
    """Return ``str(error)``, uncut; nothing if the error's own code fails."""
    return _text_of(str, error, "", cut=False)


def words_of(error: BaseException) -> str:
    """Return the class's name and the text, ``KeyError: 'x'``; the name alone if the error's own code fails."""
    return _text_of(lambda error: f"{type(error).__name__}: {error}", error, type(error).__name__, cut=False)


def repr_of_any(thing: object) -> str:
    """Return ``repr(thing)``, uncut; the class's name if its own code fails."""
    return _text_of(repr, thing, f"{type(thing).__name__}(...)", cut=False)


def str_of_any(thing: object) -> str:
    """Return ``str(thing)``, uncut; the class's name if its own code fails."""
    return _text_of(str, thing, f"{type(thing).__name__}(...)", cut=False)


def repr_of_fields(thing: Any) -> str:
    """Return a dataclass's usual ``repr``, whatever the objects of others in it do: its ``__repr__``, with ``repr=False``.

    A function and no base class: public classes would inherit from a private one.
    """
    values = (
        f"{each.name}={repr_of_any(getattr(thing, each.name))}"
        for each in dataclasses.fields(thing)
        if each.repr
    )
    return f"{type(thing).__qualname__}({', '.join(values)})"


def _text_of(render: Callable[[Any], str], thing: object, otherwise: str, *, cut: bool = True) -> str:
    try:
        text = render(thing)
    except BaseException as failure:
        failed_itself(failure)
        return otherwise
    return f"{text[:MOST]}..." if cut and len(text) > MOST else text

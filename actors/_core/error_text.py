"""Texts of errors, whose own code may raise, or write without end."""

from __future__ import annotations

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


def _text_of(render: Callable[[Any], str], error: BaseException, otherwise: str, *, cut: bool = True) -> str:
    try:
        text = render(error)
    except BaseException as failure:
        failed_itself(failure)
        return otherwise
    return f"{text[:MOST]}..." if cut and len(text) > MOST else text

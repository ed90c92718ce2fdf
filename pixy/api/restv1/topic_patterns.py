"""Patterns of topics: clients write Java's dialect, librdkafka reads POSIX extended expressions. Pure."""

from __future__ import annotations

import re

from pixy.api.restv1 import errors
from pixy.api.restv1.errors import ApiError

_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": "[:space:]"}
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?::|.{0,2})|[*+?}][?+]|.", re.DOTALL)


def posix_pattern(pattern: str) -> str:
    """Translate a pattern: classes (``\\d``), groups that capture nothing, reluctant and possessive quantifiers.

    A pattern has to match a topic's whole name, so how far a quantifier reaches makes no difference.

    Raises:
        ApiError: 422, POSIX has no counterpart (lookahead, flags, ``\\b``).
    """
    return "".join(_translated(part) for part in _PART.findall(pattern))


def _translated(part: str) -> str:
    if part == "(?:":
        return "("
    if part.startswith("(?"):
        raise _unsupported(part)
    if part[0] == "\\":
        return _escaped(part[1:])
    if part[0] == "[" and "\\" in part:
        return _bracket(part)
    return part[0] if part[0] in "*+?}" else part


def _escaped(char: str) -> str:
    if char in _CLASSES:
        return f"[{_CLASSES[char]}]"
    if char.lower() in _CLASSES:
        return f"[^{_CLASSES[char.lower()]}]"
    if char in _LETTERS:
        raise _unsupported(f"\\{char}")
    return f"\\{char}"


def _bracket(part: str) -> str:
    """``[\\w\\-.]`` as ``[A-Za-z0-9_.-]``: in POSIX a backslash has no meaning there, and a hyphen stands at the end."""
    inside, at_end = "", ""
    for piece in re.findall(r"\\.|.", part[1:-1], re.DOTALL):
        if piece == "\\-":
            at_end = "-"
        elif piece[0] != "\\" or piece == "\\.":
            inside += piece[-1]
        elif piece[1] in _CLASSES:
            inside += _CLASSES[piece[1]]
        else:  # no other character of a topic's name needs an escape
            raise _unsupported(piece)
    return f"[{inside}{at_end}]"


def _unsupported(part: str) -> ApiError:
    return ApiError(
        errors.INVALID, f"topic_pattern: {part} is not supported, write a POSIX extended expression"
    )

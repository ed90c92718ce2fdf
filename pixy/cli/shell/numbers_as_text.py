"""JSON whose numbers stay as they are written: Python's own are rounded, and ``1e400`` would become what no JSON has."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

_EXACT: Final = 600
"""Digits of an integer that Python reads and writes as it is, wherever its limit is."""
_SHOWN: Final = 40
"""Digits of a number in an error."""


class Number:
    """A number that Python would write in another way."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."


class _Inexact(Exception):
    """A document has a :class:`Number`, so :func:`_write` must write it."""


def decode(line: bytes) -> Any:
    """Parse JSON; a number that would not be written in the same way is a :class:`Number`. Raises ValueError."""
    return _DECODER.decode(line.decode(json.detect_encoding(line), "surrogatepass"))


def encode(value: Any) -> bytes:
    """Write what :func:`decode` has returned, without white space. Raises UnicodeEncodeError for half of a surrogate pair."""
    try:
        return _ENCODER.encode(value).encode()
    except _Inexact:
        pieces: list[str] = []
        _write(value, pieces)
        return "".join(pieces).encode()


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _EXACT and text != "-0" else Number(text)


def _decimal(text: str) -> float | Number:
    found = float(text)
    return found if repr(found) == text else Number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _refuse(_value: Any) -> NoReturn:
    raise _Inexact


def _write(value: Any, pieces: list[str]) -> None:
    """Append the pieces of a value's JSON; in Python, as only few lines need it."""
    if isinstance(value, dict):
        opening = "{"
        for name, each in value.items():
            pieces += [opening, _ENCODER.encode(name), ":"]
            _write(each, pieces)
            opening = ","
        pieces.append("}" if value else "{}")
    elif isinstance(value, list):
        opening = "["
        for each in value:
            pieces.append(opening)
            _write(each, pieces)
            opening = ","
        pieces.append("]" if value else "[]")
    else:
        pieces.append(value.text if isinstance(value, Number) else _ENCODER.encode(value))


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_decimal, parse_constant=_no_number)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_refuse)

__all__ = ["Number", "decode", "encode"]

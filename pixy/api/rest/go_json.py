"""Parse JSON with the error texts of Go's ``encoding/json``, which clients of the original see."""

from __future__ import annotations

import codecs
import json
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from pixy.errors import InvalidParameter

_LOOK_BACK = 16 * 1024
"""Characters before an error that are looked at to explain it."""
_PIECE = 256 * 1024
"""Bytes that are decoded at once: some 3 ms, if none of them is UTF-8."""
_END = "unexpected end of JSON input"
_TEXTS = (
    ("Expecting value", "looking for beginning of value"),
    ("Expecting property name", "looking for beginning of object key string"),
    ("Illegal trailing comma before end of object", "looking for beginning of object key string"),
    ("Illegal trailing comma before end of array", "looking for beginning of value"),
    ("Expecting ':'", "after object key"),
    ("Extra data", "after top-level value"),
    ("Invalid control character", "in string literal"),
    ("Invalid \\escape", "in string escape code"),
    ("Invalid \\uXXXX", "in \\u hexadecimal character escape"),
)


async def text_of(body: bytes, give_way: Callable[[], Awaitable[None]]) -> str:
    """Decode a document as :func:`parse` does; ``give_way`` is called between the pieces of a long one."""
    if len(body) <= _PIECE:
        return body.decode("utf-8", "replace")
    decoder, found = codecs.getincrementaldecoder("utf-8")("replace"), list[str]()
    for at in range(0, len(body), _PIECE):
        found.append(decoder.decode(body[at : at + _PIECE], at + _PIECE >= len(body)))
        await give_way()
    return "".join(found)


def parse(body: bytes | str) -> Any:
    """Parse a JSON document; raise InvalidParameter with Go's text if it is malformed."""
    text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    try:
        return json.loads(text, parse_constant=lambda name: _constant(text, name))
    except json.JSONDecodeError as error:
        raise _failed(_explain(text, error)) from None
    except RecursionError:
        raise _failed("exceeded max depth") from None
    except ValueError as error:  # an integer of thousands of digits
        raise _failed(str(error)) from None


def _constant(text: str, name: str) -> NoReturn:
    raise json.JSONDecodeError("Expecting value", text, text.index(name))


def _failed(problem: str) -> InvalidParameter:
    return InvalidParameter(f"Failed to parse the request: err=({problem})")


def _explain(text: str, error: json.JSONDecodeError) -> str:
    if error.msg.startswith("Unterminated string") or not text[error.pos :].strip(" \t\r\n"):
        return _END
    at = len(text) - len(text[error.pos :].lstrip(" \t\r\n"))
    char = text[at]
    shown = {"'": "\\'", "\\": "\\\\"}.get(char, repr(char)[1:-1] if char != '"' else '"')
    if error.msg.startswith("Expecting ',' delimiter"):
        where = f"after {_container(text, at)}"
    else:
        where = next((go for python, go in _TEXTS if error.msg.startswith(python)), error.msg)
    return f"invalid character '{shown}' {where}"


def _container(text: str, at: int) -> str:
    """Name the innermost container that is open at ``at``, in Go's words; in a long document, as its last part shows it."""
    start = max(0, at - _LOOK_BACK)
    open_brackets = [text.lstrip(" \t\r\n")[:1]] if start else []
    outer = len(open_brackets)
    in_string, escaped = (text.count('"', 0, start) - text.count('\\"', 0, start)) % 2 == 1, False
    for char in text[start:at]:
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char in "[{":
            open_brackets.append(char)
        elif char in "]}" and len(open_brackets) > outer:
            open_brackets.pop()
    return "array element" if open_brackets[-1:] == ["["] else "object key:value pair"

"""Parse JSON with the error texts of Go's ``encoding/json``, which clients of the original see."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pixy.errors import InvalidParameter

_LOOK_BACK = 16 * 1024
"""Characters before an error that are looked at to explain it."""
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


def parse(body: bytes) -> Any:
    """Parse a JSON document; raise InvalidParameter with Go's text if it is malformed."""
    text = body.decode("utf-8", "replace")
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

"""Write JSON as the original's Go library does: indented by two spaces, HTML characters escaped."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_UNSAFE = re.compile("[<>&\u2028\u2029]")
_SHORT = re.compile(r"(?<!\\)((?:\\\\)*)\\([bf])")


def to_json(value: Any) -> bytes:
    """Encode a document, without a newline at the end."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    text = _UNSAFE.sub(lambda match: _ESCAPES[match[0]], text)
    text = _SHORT.sub(lambda match: match[1] + ("\\u0008" if match[2] == "b" else "\\u000c"), text)
    return printable(text).encode()


def to_json_flat_lists(groups: Mapping[str, Mapping[str, Iterable[int]]]) -> bytes:
    """Encode numbers by two names, each list of numbers on one line: ``[0,1,2]``."""
    return _object(
        {
            group: _object(
                {name: b"[%s]" % ",".join(map(str, found)).encode() for name, found in lists.items()}, b"  "
            )
            for group, lists in groups.items()
        },
        b"",
    )


def _object(fields: Mapping[str, bytes], indent: bytes) -> bytes:
    """Join values that are encoded already."""
    if not fields:
        return b"{}"
    between = b"\n" + indent + b"  "
    lines = (between + to_json(name) + b": " + value for name, value in fields.items())
    return b"{" + b",".join(lines) + b"\n" + indent + b"}"


def printable(text: str) -> str:
    """Replace bytes that were not UTF-8 by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text


def base64_or_none(value: bytes | None) -> str | None:
    """Encode as standard base64; None stays None."""
    return None if value is None else base64.b64encode(value).decode("ascii")

"""Write JSON as the original's Go library does: indented by two spaces, HTML characters escaped."""

from __future__ import annotations

import base64
import json
import re
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
_FLAT_LIST = re.compile(r"\[\s+([-\d,\s]+?)\s+\]")


def to_json(value: Any) -> bytes:
    """Encode a document, without a newline at the end."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    text = _UNSAFE.sub(lambda match: _ESCAPES[match[0]], text)
    text = _SHORT.sub(lambda match: match[1] + ("\\u0008" if match[2] == "b" else "\\u000c"), text)
    return printable(text).encode()


def to_json_flat_lists(value: Any) -> bytes:
    """Encode a document with each list of numbers on one line: ``[0,1,2]``."""
    text = to_json(value).decode()
    return _FLAT_LIST.sub(lambda match: "[" + re.sub(r"\s+", "", match[1]) + "]", text).encode()


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

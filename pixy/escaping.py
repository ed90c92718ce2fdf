"""Show text of clients, topics and metadata to people: nothing in it may command a terminal or forge a line."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

# C0 and C1 controls and DEL (a terminal obeys them), line and paragraph separators, marks that turn the direction of
# text around, zero-width ones, and surrogates, which cannot be written at all.
_ODD = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str, keep: str = "") -> str:
    r"""Replace characters that a terminal would not simply print by ``\n``, ``\r``, ``\t`` or ``\u001b`` and the like.

    In a JSON document it keeps the meaning of strings that :mod:`json` has written.

    Args:
        text: any text.
        keep: characters to leave as they are, such as newlines.
    """

    def replaced(match: re.Match[str]) -> str:
        found = match[0]
        return found if found in keep else _SHORT.get(found) or f"\\u{ord(found):04x}"

    return _ODD.sub(replaced, text)


def json_text(document: Any, encoding: str | None = None, **options: Any) -> str:
    """Return a document as JSON that a stream can take, and in which nothing commands a terminal.

    Args:
        document: what :func:`json.dumps` takes.
        encoding: of the stream; None is UTF-8. One that lacks characters gets ASCII alone: its own escapes are no JSON.
        options: of :func:`json.dumps`.
    """
    whole = encoding is None or codecs.lookup(encoding).name.startswith("utf-")
    return escaped(json.dumps(document, ensure_ascii=not whole, **options), keep="\n")


__all__ = ["escaped", "json_text"]

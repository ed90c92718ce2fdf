"""Show text of clients, topics and metadata to people: nothing in it may command a terminal or forge a line."""

from __future__ import annotations

import re

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

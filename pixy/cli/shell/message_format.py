"""Formats of messages: kcat's, and a JSON document."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pixy.cli.shell.errors import EXIT_USAGE, ShellError
from pixy.cli.shell.output import bytes_view


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was read; key and value are None for null, ``timestamp`` is 0 if it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int

    def view(self) -> dict[str, Any]:
        """Return the message as a JSON document; ``produce --json-lines`` reads it."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp or None,
            "key": None if self.key is None else bytes_view(self.key),
            "value": None if self.value is None else bytes_view(self.value),
            "headers": [{"key": name, "value": bytes_view(value)} for name, value in self.headers],
        }


Part = Callable[[Message], bytes]

_TOKENS: Final[dict[str, Part]] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.partition,
    "o": lambda message: b"%d" % message.offset,
    "k": lambda message: message.key or b"",
    "K": lambda message: b"%d" % (-1 if message.key is None else len(message.key)),
    "s": lambda message: message.value or b"",
    "S": lambda message: b"%d" % (-1 if message.value is None else len(message.value)),
    "R": lambda message: struct.pack(">i", -1 if message.value is None else len(message.value)),
    "T": lambda message: b"%d" % (message.timestamp or -1),
    "h": lambda message: b",".join(name.encode() + b"=" + value for name, value in message.headers),
    "%": lambda _message: b"%",
}
"""The letters after ``%``, as in kcat."""
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_PIECE: Final = re.compile(r"%(.?)|\\x([0-9A-Fa-f]{2})|\\(.?)|([^%\\]+)", re.S)


def formatter(text: str) -> Part:
    """Compile a format.

    Args:
        text: as kcat's -f: %t topic, %p partition, %o offset, %k key, %K its length, %s value, %S its length, %R its length in 4
            bytes, %T timestamp (ms), %h headers, %%; and \\n, \\r, \\t, \\0, \\\\, \\xNN.

    Raises:
        ShellError: it has another token.
    """
    parts: list[Part] = []
    for found in _PIECE.finditer(text):
        token, code, escape, plain = found.groups()
        if plain is not None:
            parts.append(_constant(plain.encode()))
        elif token is not None and token in _TOKENS:
            parts.append(_TOKENS[token])
        elif code is not None:
            parts.append(_constant(bytes.fromhex(code)))
        elif escape is not None and escape in _ESCAPES:
            parts.append(_constant(_ESCAPES[escape]))
        else:
            known = " ".join(f"%{name}" for name in _TOKENS)
            raise ShellError(
                f"--format: unknown {found[0]!r}; known are {known} and \\n \\r \\t \\0 \\\\ \\xNN",
                EXIT_USAGE,
            )
    return lambda message: b"".join(part(message) for part in parts)


def _constant(value: bytes) -> Part:
    return lambda _message: value


__all__ = ["Message", "formatter"]

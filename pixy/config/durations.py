"""Parse Go's duration syntax (``time.ParseDuration``), which the configuration file uses."""

from __future__ import annotations

import re

_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Convert a text such as ``1h15m`` or ``500ms`` to seconds.

    Raises:
        ValueError: the text is not a duration.
    """
    sign, rest = 1.0, text
    if rest[:1] in ("+", "-"):
        sign, rest = (-1.0 if rest[0] == "-" else 1.0), rest[1:]
    if rest == "0":
        return 0.0
    position, total = 0, 0.0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            raise ValueError(f"invalid duration {text!r}")
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not rest:
        raise ValueError(f"invalid duration {text!r}")
    return sign * total

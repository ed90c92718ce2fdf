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
_LONGEST = 9_223_372_036.0
"""Seconds that Go's 64 bits of nanoseconds hold."""
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Convert a text such as ``1h15m`` or ``500ms`` to seconds.

    Raises:
        ValueError: the text is not a duration, or one of more than 292 years, as for Go.
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
    if not rest or total > _LONGEST:
        raise ValueError(f"invalid duration {text!r}")
    return sign * total


def format_duration(seconds: float) -> str:
    """Write a duration so that :func:`parse_duration` reads the same value, to the nanosecond: ``1h15m``, ``500ms``, ``0s``.

    Args:
        seconds: may be negative.
    """
    nanoseconds = round(abs(seconds) * 1e9)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if nanoseconds < 1_000_000_000:
        for unit, size in (("ms", 1_000_000), ("us", 1000), ("ns", 1)):
            if nanoseconds and nanoseconds % size == 0:
                return f"{sign}{nanoseconds // size}{unit}"
        return "0s"
    text = ""
    for unit, size in (("h", 3_600_000_000_000), ("m", 60_000_000_000)):
        count, nanoseconds = divmod(nanoseconds, size)
        text += f"{count}{unit}" if count else ""
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    if whole or rest:
        text += f"{whole}.{rest:09}".rstrip("0").rstrip(".") + "s"
    return sign + text

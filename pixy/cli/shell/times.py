"""Points in time as a person types them: a date, so long ago, or milliseconds since 1970."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from pixy.cli.shell.errors import EXIT_USAGE, ShellError
from pixy.cli.shell.values import MAX_OFFSET

_AGO: Final = re.compile(r"(\d{1,15})(ms|s|m|h|d)\Z")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(text: str, flag: str, also: str = "") -> int:
    """Return milliseconds since 1970.

    Args:
        text: ``2026-11-22T10:00`` (local time without a zone), ``15m`` (so long ago), ``now``, or milliseconds.
        flag: for errors.
        also: what the flag takes besides, for errors, with a comma and a blank at its end.

    Raises:
        ShellError: it is none of these.
    """
    now = int(time.time() * 1000)
    if text == "now":
        return now
    if ago := _AGO.match(text):
        return max(0, now - int(ago[1]) * _UNITS[ago[2]])
    try:
        if text.isascii() and text.isdecimal():
            found: float = int(text)
        else:
            found = datetime.fromisoformat(text).timestamp() * 1000
    except (ValueError, OverflowError):  # ValueError also for thousands of digits
        found = -1
    if not 0 <= found <= MAX_OFFSET:
        raise ShellError(
            f"{flag} {text}: {also}a time such as 2026-11-22T10:00, 15m (ago), now, or milliseconds since 1970 is expected",
            EXIT_USAGE,
        )
    return int(found)


def duration(seconds: float) -> str:
    """Return a duration as people say it, with its two largest units: ``3 d 4 h``, ``2 min 5 s``, ``0.4 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def shown(timestamp: int) -> str:
    """Return milliseconds since 1970 as a date in UTC."""
    return (
        datetime.fromtimestamp(timestamp / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def clock_ahead(theirs: float, began: float, ended: float) -> float:
    """Return how far another clock is ahead of ours for sure, negative if it is behind, in seconds.

    Args:
        theirs: what it showed at some moment of a call, seconds since 1970.
        began: when the call began by our clock.
        ended: when it ended. A daemon may have waited for Kafka before or after it looked at its clock.
    """
    return theirs - min(max(theirs, began), ended)


__all__ = ["clock_ahead", "duration", "milliseconds", "shown"]

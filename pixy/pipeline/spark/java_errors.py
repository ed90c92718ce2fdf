"""Find the cause of an error of Spark in pages of Java's stack traces."""

from __future__ import annotations

FULL = r"No space left on device|Disk quota exceeded|File too large"
"""ENOSPC, EDQUOT and EFBIG (a limit on a process's files) in Java's texts."""

_LONGEST = 500


def cause(text: str) -> str:
    """Return the last cause in a stack trace of Java, or the last line of another text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line for line in lines if "Caused by:" in line or "Exception" in line.partition(":")[0]]
    return (caused or lines or ["no text"])[-1].removeprefix("Caused by: ")[:_LONGEST]

"""Find the cause of an error of Spark in pages of Java's stack traces."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

FULL = r"No space left on device|Disk quota exceeded|File too large"
"""ENOSPC, EDQUOT and EFBIG (a limit on a process's files) in Java's texts."""

_LONGEST = 500

_START_HINTS = (
    (
        ("BindException", "UnknownHostException", "Cannot assign requested address"),
        "set spark.driver.bindAddress and spark.driver.host to an address of this machine (--conf KEY=VALUE)",
    ),
    (
        ("maximum heap size", "INVALID_DRIVER_MEMORY", "initial heap size", "Could not reserve enough space"),
        "set --conf spark.driver.memory to a size that Spark needs and this machine has, such as 2g",
    ),
    (
        ("Master must", "Could not parse Master URL", "unresponsive"),
        "--master is local[N], spark://HOST:PORT, yarn or k8s://URL, and must answer",
    ),
    (
        ("NoSuchFileException", "Failed to create a temp", "No space left"),
        "$TMPDIR must be a folder with room",
    ),
    (("Unrecognized option", "Unrecognized VM option"), "correct $JAVA_TOOL_OPTIONS and $JDK_JAVA_OPTIONS"),
)
_UNIMPORTANT = (
    "WARNING:",
    "NOTE:",
    "Picked up ",
    "at ",
    "...",
    "Error: A fatal exception",
    "Error: Could not",
)


def start_problem(text: str, written: Callable[[], Sequence[str]]) -> str:
    """Say in one line why Spark does not start, and what to do.

    Args:
        text: of pyspark's error.
        written: returns the lines that Java has written to standard error; called if Java has ended.
    """
    if "JAVA_GATEWAY_EXITED" in text:
        lines = [line for line in map(str.strip, written()) if line and not line.startswith(_UNIMPORTANT)]
        reason = _without_thread(cause("\n".join(lines))) if lines else "Java ended without a word"
    else:
        reason = cause(text)
    reason = " ".join(reason.split())
    hint = next((hint for signs, hint in _START_HINTS if any(sign in reason for sign in signs)), "")
    return f"{reason}{hint and f' ({hint})'}"


def _without_thread(line: str) -> str:
    return re.sub(r'^Exception in thread "[^"]*" ', "", line)


def cause(text: str) -> str:
    """Return the last cause in a stack trace of Java, or the last line of another text."""
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    caused = [
        line
        for line in lines
        if "Caused by:" in line or ("Exception" in line.partition(":")[0] and not line.startswith("at "))
    ]
    return (caused or lines or ["no text"])[-1].removeprefix("Caused by: ")[:_LONGEST]

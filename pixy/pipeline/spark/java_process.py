"""Start Spark's Java process, and hold back what it writes to standard error until Spark runs.

Java and Spark write pages about a port or an option that is wrong, also when a person ends the program meanwhile. One line says it; what
they wrote is where its reason is found.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_MOST_LINES: Final = 500
_LINE: Final = 8192
"""Bytes of a line that are kept."""
_NOISE: Final = ("WARNING: Using incubator modules", "Picked up ", "NOTE: Picked up ")


class JavaOutput:
    """Reads Java's standard error: keeps it while Spark starts, passes it on from then on.

    Args:
        keep: False passes everything on at once.
    """

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        reading, self.writing = os.pipe()
        """The end that Java gets."""
        self._reader = threading.Thread(target=self._read, args=(reading,), name="java-output", daemon=True)
        self._reader.start()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as lines:
            while line := lines.readline(_LINE):
                text = line.decode(errors="replace").rstrip("\r\n")
                if self._keep:
                    self._lines.append(text)
                elif not text.startswith(_NOISE):
                    with contextlib.suppress(OSError, ValueError):
                        sys.stderr.write(f"{text}\n")

    def launched(self) -> None:
        """Close our end: Java has its own, so that the end of Java ends the output."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def pass_on(self) -> None:
        """Pass on what comes from now on."""
        self._keep = False

    def lines(self, patience: float = 2.0) -> list[str]:
        """Return what was kept.

        Args:
            patience: seconds to wait for the rest, if Java has ended.
        """
        self._reader.join(patience)
        return list(self._lines)


def launch(settings: Iterable[tuple[str, str]], output: JavaOutput) -> None:
    """Start Java for the session that is opened next, unless this process has it already.

    Args:
        settings: Spark's.
        output: gets what Java writes to standard error.

    Raises:
        Exception: whatever pyspark raises if Java ends.
    """
    try:
        if SparkContext._gateway is None:
            conf = SparkConf(loadDefaults=False).setAll(list(settings))
            start: Any = launch_gateway  # untyped
            gateway = start(conf, {"stderr": output.writing})
            SparkContext._ensure_initialized(gateway=gateway)
    finally:
        output.launched()


__all__ = ["JavaOutput", "launch"]

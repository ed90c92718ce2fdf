"""Erases records in processes that end by SIGKILL, each within one step. They use the JVM of the tests, so each costs little.

Lines of standard input are JSON, [folder of a lake, step]; for each a line says how the process ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pixy.pipeline.archive.erase import Eraser, Erasure
from pixy.pipeline.archive.rewrite import Rewriter
from pixy.pipeline.lake.data_table import DataTable
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.ranges_table import RangesTable
from tests.effort import LONG


def after(owner: Any, method: str, times: int = 1) -> Callable[[Path], None]:
    """Kill the process when a method has returned for the n-th time."""

    def arm(_: Path) -> None:
        real, calls = getattr(owner, method), []

        def run(*args: Any, **named: Any) -> Any:
            made = real(*args, **named)
            calls.append(None)
            if len(calls) == times:
                kill()
            return made

        setattr(owner, method, run)

    return arm


def before(owner: Any, method: str) -> Callable[[Path], None]:
    """Kill the process when a method is called."""
    return lambda _: setattr(owner, method, lambda *_, **__: kill())


def once(holds: Callable[[set[str], set[str]], bool]) -> Callable[[Path], None]:
    """Kill the process as soon as a condition on the lake's files of records holds: those at first, those that exist now."""

    def arm(lake: Path) -> None:
        def files() -> set[str]:
            # os.walk passes over folders that go meanwhile; Path.glob does not.
            found = {f"{folder}/{name}" for folder, _, names in os.walk(lake / "data") for name in names}
            return {path for path in found if path.endswith(".parquet") and "/_delta_log/" not in path}

        def watch() -> None:
            while not holds(first, files() | {path for path in first if Path(path).exists()}):
                time.sleep(0.0005)
            kill()

        first = files()
        threading.Thread(target=watch, daemon=True).start()

    return arm


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_ALL: Final = {
    "the records are found": after(Eraser, "_find"),
    "a file is being written": once(lambda first, now: bool(now - first)),
    "Spark has written": after(Rewriter, "_write"),
    "the files are compared": before(DataTable, "commit"),
    "one day is committed": after(DataTable, "commit"),
    "all days are committed": after(DataTable, "commit", 2),
    "the table of ranges has the entries": after(RangesTable, "append"),
    "files are being deleted": once(lambda first, now: bool(first - now)),
    "all is done": after(DataTable, "vacuum"),
}
_USUAL: Final = (
    "a file is being written",
    "the files are compared",
    "one day is committed",
    "files are being deleted",
)
STEPS: Final = _ALL if LONG else {step: _ALL[step] for step in _USUAL}
"""How to arm a process, by what has happened when it is killed."""


def connect() -> SparkSession:
    """Use the running JVM and its context, as PYSPARK_GATEWAY_PORT and _SECRET name it."""
    gateway = launch_gateway()
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    return SparkSession(SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf())))


def main(topic: str, where: str) -> None:
    for line in sys.stdin:
        lake, step = json.loads(line)
        child = os.fork()  # everything is imported already
        if not child:
            spark = connect()
            armed = Lake.open(lake)
            STEPS[step](Path(lake))
            Eraser(spark, armed).run(Erasure(topic, where, "R-1"), vacuum=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(
            "killed" if os.WIFSIGNALED(status) else f"ended: {os.waitstatus_to_exitcode(status)}", flush=True
        )


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Spark that does not start, and Ctrl-C while it starts: one line that says why and what to do, no page of Java or Python.

Java is a script here: it says what Java says. What Spark itself says was recorded with Spark 4.0.0.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pixy.pipeline.spark import jars
from pixy.pipeline.spark.java_errors import cause, start_problem
from tests.support import ROOT

BIND = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed after 16 retries (on a random free port)!
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
\tat io.netty.channel.AbstractChannelException.invokeBind(AbstractChannelHandlerContext.java:600)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
MEMORY = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] System memory 104857600 must be at least 471859200.
Please increase heap size using the --driver-memory option. SQLSTATE: F0000
"""
GONE = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."


@pytest.mark.parametrize(
    ("text", "written", "wanted"),
    [
        (
            BIND,
            [],
            "java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed after 16 retries (on a random "
            "free port)! (set spark.driver.bindAddress and spark.driver.host to an address of this machine (--conf KEY=VALUE))",
        ),
        (
            MEMORY,
            [],
            "System memory 104857600 must be at least 471859200. (set --conf spark.driver.memory to",
        ),
        (
            GONE,
            [
                "Invalid maximum heap size: -Xmxnonsense",
                "Error: Could not create the Java Virtual Machine.",
                "Error: A fatal exception has occurred. Program will exit.",
            ],
            "Invalid maximum heap size: -Xmxnonsense (set --conf spark.driver.memory to",
        ),
        (
            GONE,
            [
                "WARNING: Using incubator modules: jdk.incubator.vector",
                'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark, k8s, '
                "or local",
                "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1045)",
                "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)",
            ],
            "org.apache.spark.SparkException: Master must either be yarn or start with spark, k8s, or local (--master is local[N]",
        ),
        (GONE, ["WARNING: Using incubator modules: jdk.incubator.vector"], "Java ended without a word"),
    ],
)
def test_the_reason_is_one_line_with_what_to_do(text: str, written: list[str], wanted: str) -> None:
    found = start_problem(text, lambda: written)
    assert wanted in found and "\n" not in found and "\tat" not in found, found


def test_the_cause_is_no_line_of_a_stack() -> None:
    assert cause(BIND).startswith("java.net.BindException: Cannot assign")


JAVA = """#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "17.0.15" 2025-04-15' >&2; exit 0 ;;
  *launcher.Main*) printf '\\0\\n%s\\0SparkSubmit\\0' "$0"; exit 0 ;;
esac
"""
PROGRAM = """
import argparse, sys, types
from pixy.cli import pipeline

def run(args):
    from pixy.cli.pipeline_common import doing, set_up_logging
    from pixy.pipeline.spark.session import running
    set_up_logging(argparse.Namespace(verbose=False))
    with doing("starting Spark"), running("test", None, sys.argv[1]):
        return 0

module = types.ModuleType("starts_spark")
module.add_parser = lambda commands: commands.add_parser("archive").set_defaults(run=run, json=False, verbose=False)
sys.modules["starts_spark"] = module
pipeline.MODULES["archive"] = ("starts_spark", "")
sys.exit(pipeline.run(["archive"]))
"""


Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a program that starts Spark, with this Java."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in jars.NAMES:
        (folder / name).write_bytes(b"")
    (tmp_path / "bin").mkdir()

    def started(java: str) -> subprocess.Popen[str]:
        script = tmp_path / "bin" / "java"
        script.write_text(java)
        script.chmod(0o755)
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
            cwd=ROOT,
            env={**os.environ, "JAVA_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return started


@pytest.mark.slow
def test_java_that_ends_is_one_line(start: Start) -> None:
    with start(
        JAVA + "echo 'Invalid maximum heap size: -Xmx7x' >&2; echo 'Error: Could not create' >&2; exit 1\n"
    ) as done:
        shown, _ = done.communicate(timeout=60)
    assert done.returncode == 1
    assert shown.splitlines() == [
        "starting Spark ...",
        "kafka-pixy pipeline archive: Spark does not start with master local[*]: Invalid maximum heap size: -Xmx7x "
        "(set --conf spark.driver.memory to a size that Spark needs and this machine has, such as 2g)",
    ]


@pytest.mark.slow
def test_ctrl_c_while_spark_starts_is_one_line(start: Start, tmp_path: Path) -> None:
    """Java writes a page afterwards, as the real one does: its folder has gone."""
    reached, written = tmp_path / "reached", tmp_path / "written"
    for each in (reached, written):
        os.mkfifo(each)
    page = f"echo > {reached}; cat > /dev/null; echo 'Exception in thread \"main\"' >&2; echo > {written}\n"
    with start(JAVA + page) as running:
        reached.read_bytes()  # Java runs
        later = threading.Thread(target=written.read_bytes)
        later.start()
        running.send_signal(signal.SIGINT)
        shown, _ = running.communicate(timeout=60)
        later.join(60)
    assert running.returncode == 130
    assert shown.splitlines() == ["starting Spark ...", "kafka-pixy pipeline archive: interrupted"]


@pytest.mark.parametrize(
    ("java", "wanted"),
    [
        (
            None,
            "there is no usable java in $JAVA_HOME/bin ({}/bin): install one (Debian: openjdk-17-jre-headless)",
        ),
        (
            "echo 'openjdk version \"1.8.0_392\"' >&2",
            '{}/bin/java is openjdk version "1.8.0_392": install one',
        ),
        (
            "echo 'Unrecognized option: -Xnonsense' >&2; exit 1",
            "`{}/bin/java -version` fails with exit code 1: Unrecognized option: -Xnonsense: install one",
        ),
        ("exit 0", "`{}/bin/java -version` fails with exit code 0: silent"),
    ],
)
def test_java_that_is_missing_old_or_broken(
    java: str | None, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if java is not None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\n{java}\n")
        (tmp_path / "bin" / "java").chmod(0o755)
    with pytest.raises(jars.SetupError) as caught:
        jars.check_java()
    shown = str(caught.value)
    assert shown.startswith("Java 17 or later is needed; " + wanted.format(tmp_path)), shown
    assert "\n" not in shown

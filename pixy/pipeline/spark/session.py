"""Open a Spark session with the settings that the pipeline's jobs rely on."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec

from pyspark.sql import SparkSession

from pixy.pipeline.errors import SetupError, UsageError
from pixy.pipeline.spark import jars
from pixy.pipeline.spark.java_errors import start_problem
from pixy.pipeline.spark.java_process import JavaOutput, launch

P = ParamSpec("P")

LOG4J = Path(__file__).with_name("log4j2.properties")
DRIVER_MEMORY = "2g"
REDACTED = "(?i)secret|password|token|access[.]?key|jaas|ssl[.]keystore[.]key"
"""Names of options whose values Spark's logs and pages must not show."""

_FIXED = {
    # Kafka's times are milliseconds of the epoch; days are those of UTC.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # topic=17 is the topic "17".
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.redaction.regex": REDACTED,
}
_DEFAULTS = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    # Nobody reads the files of a killed attempt, so a task may commit without the driver.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.sql.streaming.stopTimeout": "60s",
    # Python and Java connect to each other for each result and worker. Spark's 15 s are too short for a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
}
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_DEFAULTS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The log is small here: 50 tasks, Delta's default, take longer than the work.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def open_session(
    name: str,
    master: str | None = None,
    folder: str = "",
    settings: Sequence[str] = (),
    *,
    verbose: bool = False,
    delta: str | None = None,
) -> SparkSession:
    """Start Spark, or return the running session.

    Args:
        name: name of the application.
        master: Spark's master; None is local[*], or the master of spark-submit.
        folder: folder of the connector's jars, see :func:`pixy.pipeline.spark.jars.find`.
        settings: ``key=value`` each; they override our defaults.
        verbose: log Spark's warnings.
        delta: where Delta's jars are, see :func:`pixy.pipeline.spark.jars.find_delta`; None for a session
            without Delta.

    Raises:
        SetupError: Java or a jar is missing, or Spark does not start.
        UsageError: a setting has no ``=``.
    """
    given = dict(_pair(text) for text in settings)
    if delta is not None:
        given = _with_delta(given)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        jars.check_java()
        if "spark.pyspark.python" in given:  # spark-submit would set this, and pyspark looks only here
            os.environ["PYSPARK_PYTHON"] = given["spark.pyspark.python"]
        # Python's workers find the same packages as the driver.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {"spark.app.name": name}
    if master or not submitted:
        chosen["spark.master"] = master or "local[*]"
    paths = jars.find(folder) if not submitted or folder else []
    if delta or (delta is not None and not submitted):
        paths += jars.find_delta(delta)
    if paths:
        chosen["spark.jars"] = ",".join(paths)
    if not submitted:
        if (master or "local").startswith("local"):
            chosen |= dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), "127.0.0.1")
        level = "warn" if verbose else "fatal"
        chosen["spark.driver.extraJavaOptions"] = (
            f"-Dlog4j2.configurationFile=file:{LOG4J} -Dpixy.spark.log={level}"
        )
    return _start({**chosen, **({} if submitted else _DEFAULTS), **given, **_FIXED}, submitted, verbose)


def _start(settings: dict[str, str], submitted: bool, verbose: bool) -> SparkSession:
    """Start Java and Spark. Raises SetupError with the reason and what to do, in one line."""
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    if submitted:
        return builder.getOrCreate()
    output = JavaOutput(keep=not verbose)
    try:
        launch(settings.items(), output)
        spark = builder.getOrCreate()
    except Exception as error:
        reason = start_problem(str(error), output.lines)
        raise SetupError(f"Spark does not start with master {settings['spark.master']}: {reason}") from error
    output.pass_on()
    return spark


def _stopped(
    open_: Callable[P, SparkSession],
) -> Callable[P, contextlib.AbstractContextManager[SparkSession]]:
    @contextlib.contextmanager
    def run(*args: P.args, **kwargs: P.kwargs) -> Iterator[SparkSession]:
        spark = open_(*args, **kwargs)
        try:
            yield spark
        except BaseException:
            # Java may be gone, or the connection to it broken by Ctrl-C: what is on its way already says more.
            with contextlib.suppress(Exception):
                spark.stop()
            raise
        stop(spark)

    return run


running = _stopped(open_session)
"""Open a session as :func:`open_session` does, and stop Spark when the context ends, however it ends."""


def stop(spark: SparkSession) -> None:
    """Stop Spark. Ctrl-C meanwhile raises KeyboardInterrupt here, and never in one of Py4J's finalizers, where Python prints and drops it."""
    done: Future[None] = Future()

    def work() -> None:
        try:
            spark.stop()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=work, name="spark-stop", daemon=True).start()
    done.result()


def _with_delta(given: dict[str, str]) -> dict[str, str]:
    """Add the settings that Delta Lake needs to the given ones."""
    extensions = [each for each in given.get("spark.sql.extensions", "").split(",") if each]
    if _DELTA_EXTENSION not in extensions:
        extensions.append(_DELTA_EXTENSION)
    return {**_DELTA_DEFAULTS, **given, "spark.sql.extensions": ",".join(extensions)}


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--conf {text!r} is not KEY=VALUE")
    return key, value

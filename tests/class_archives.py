"""Class data archives of Kafka and Spark, with which their JVMs start in about half the processor time.

``python -m tests.class_archives`` makes them; ``make test`` does so once. Without them, or if they do not fit the
jars (the JVM checks that and ignores them), the tests only take longer.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

BUILD = Path(__file__).parent.parent / "build" / "classes"
KAFKA, SPARK = BUILD / "kafka.jsa", BUILD / "spark.jsa"
OPTIONS = "JDK_JAVA_OPTIONS"
QUIET = "-Xlog:disable"
"""A JVM that ignores an archive says so on stdout, where a command's output belongs."""


def use(archive: Path) -> list[str]:
    """Return the JVM's options for starting with an archive, if there is one."""
    return [f"-XX:SharedArchiveFile={archive}", QUIET] if archive.exists() else []


def make_kafka() -> None:
    """Start and stop a broker that writes down its classes."""
    from tests.kafka.cluster import Cluster

    draft = KAFKA.with_suffix(".draft")
    KAFKA.unlink(missing_ok=True)  # a JVM reads an archive or writes one
    os.environ[OPTIONS] = f"-XX:ArchiveClassesAtExit={draft} {QUIET}"
    cluster = Cluster(brief=True)
    try:
        cluster.create_topic("classes")
        cluster.stop(1)
    finally:
        cluster.close()
    draft.rename(KAFKA)


def make_spark() -> None:
    """Run a few small queries in a Spark that writes down its classes."""
    from pixy.pipeline.spark.session import open_session

    draft = SPARK.with_suffix(".draft")
    os.environ[OPTIONS] = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={draft} {QUIET}"
    spark = open_session("classes", "local[2]", settings=["spark.driver.memory=512m"])
    folder = tempfile.mkdtemp()
    try:
        _query(spark, folder)
    finally:
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # ends the JVM
        gateway.proc.wait()
        shutil.rmtree(folder)
    draft.rename(SPARK)


def _query(spark: Any, folder: str) -> None:
    """Use what the pipeline's jobs use: Parquet, streams, joins, sums, windows, Arrow."""
    from pyspark.sql import Window, functions as sf

    rows = spark.range(100).withColumn("date", sf.lit("day")).withColumn("time", sf.current_timestamp())
    rows.write.partitionBy("date").parquet(f"{folder}/in")
    read = spark.read.parquet(f"{folder}/in")
    in_order = Window.partitionBy("date").orderBy("id")
    read.withColumn("before", sf.lag("id").over(in_order)).join(read, "id").groupBy("before").agg(
        sf.sum("id"), sf.max("before"), sf.count("*")
    ).orderBy("before").toArrow()
    spark.readStream.schema(read.schema).parquet(f"{folder}/in").writeStream.foreachBatch(
        lambda batch, _number: batch.write.mode("append").parquet(f"{folder}/out")
    ).option("checkpointLocation", f"{folder}/checkpoint").trigger(
        availableNow=True
    ).start().awaitTermination()


def main() -> int:
    """Make both archives; what is missing for them, the tests name themselves."""
    from pixy.pipeline.errors import SetupError
    from tests.kafka.cluster import Unavailable

    BUILD.mkdir(parents=True, exist_ok=True)
    before = os.environ.get(OPTIONS)
    for make in (make_kafka, make_spark):
        try:
            make()
        except (Unavailable, SetupError, ImportError) as error:
            print(f"without a class archive: {error}", file=sys.stderr)
        os.environ.pop(OPTIONS)
        if before is not None:
            os.environ[OPTIONS] = before
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``format("pixy")``: Kafka for Spark, batch and streaming, read with :mod:`pixy.wire`.

    from pixy.pipeline.datasource import register

    register(spark)
    spark.read.format("pixy").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

It yields what Spark's own source can not: producer, epoch and sequence, codec, leader epoch and checksum of the batch
that a record came in; with ``mode=batches``, the batches themselves from their headers, without decompressing.
Executors need this package (and nothing of Java): install it there, or ship it with ``--py-files``.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from pixy.pipeline.datasource.source import PixyDataSource


def register(spark: SparkSession) -> None:
    """Make ``format("pixy")`` known to a session."""
    spark.dataSource.register(PixyDataSource)


__all__ = ["PixyDataSource", "register"]

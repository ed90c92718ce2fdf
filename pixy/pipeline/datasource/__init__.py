"""``format("pixy")``: Kafka for Spark, batch and streaming, read with :mod:`pixy.wire`.

    from pixy.pipeline.datasource import register

    register(spark)
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    spark.read.format("pixy").options(**options).load()

It has columns that Spark's own source lacks: producer, epoch and sequence number of each record; codec,
leader epoch and checksum of its batch. With ``mode=batches`` it returns the batches themselves, from their
headers, without decompressing. Executors need this package, but no Java connector: install it there, or ship
it with ``--py-files``.

To follow a read, open the files in this order:

1. ``source``: the calls that Spark makes.
2. ``options``, ``access``, ``positions``: the options are checked.
3. ``columns``: the schema.
4. ``cluster``: the driver asks the brokers for topics and offsets.
5. ``stream``, ``progress`` (streams only): where each batch of the stream starts and ends, and the offsets as
   documents in the checkpoint.
6. ``plan``: ranges are divided into tasks.
7. ``record_rows``, or ``batch_rows`` in mode ``batches``: a task turns Kafka's batches into rows.
8. ``fetching``: a task fetches those batches from the partition's leader.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from pixy.pipeline.datasource.source import PixyDataSource


def register(spark: SparkSession) -> None:
    """Register ``format("pixy")`` with a session."""
    spark.dataSource.register(PixyDataSource)


__all__ = ["PixyDataSource", "register"]

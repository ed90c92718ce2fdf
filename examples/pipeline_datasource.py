"""Kafka in Spark with what only a record batch's header tells: who wrote what, how it was packed, and whether all is there.

Usage: python examples/pipeline_datasource.py localhost:9092 TOPIC [CHECKPOINT]

Shows codecs and producers of a topic from the headers of its batches, without decompressing them; checks that the sequence
numbers of idempotent producers have no holes; and reads, as a stream, what has come since the last run.
"""

import sys
import tempfile

from pyspark.sql import SparkSession, Window, functions as sf

from pixy.pipeline.datasource import register


def main(bootstrap: str, topic: str, checkpoint: str) -> None:
    spark = SparkSession.builder.master("local[2]").appName("pipeline_datasource").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    # A row for each record batch: the headers tell how many records there are.
    batches = spark.read.format("pixy").options(**kafka, mode="batches").load()
    print("batches by codec:")
    batches.where("not isControl").groupBy("codec").agg(
        sf.count("*").alias("batches"),
        sf.sum("count").alias("records"),
        sf.sum("bytes").alias("bytes"),
        sf.every("crcValid").alias("intact"),
    ).orderBy("codec").show()

    # A row for each record, with what Spark's own source has, and more.
    records = spark.read.format("pixy").options(**kafka).load()
    in_order = Window.partitionBy("partition", "producerId", "producerEpoch").orderBy("offset")
    holes = (
        records.where("producerId >= 0")
        .withColumn("before", sf.lag("sequence").over(in_order))
        .where("sequence != before + 1")
        .count()
    )
    print(f"{records.count()} records, {holes} holes in the sequence numbers of idempotent producers")

    # What is new since the checkpoint; run it again and only newer records come.
    new = (
        spark.readStream.format("pixy")
        .options(**kafka)
        .load()
        .select("partition", "offset", sf.col("value").cast("string").alias("value"))
    )
    seen: list[int] = []
    new.writeStream.foreachBatch(lambda batch, _number: seen.append(batch.count())).option(
        "checkpointLocation", checkpoint
    ).trigger(availableNow=True).start().awaitTermination()
    print(f"{sum(seen)} new records in the stream")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else tempfile.mkdtemp())

"""Read Kafka in Spark with the fields of record batches: producers, codecs, and gaps in sequence numbers.

Usage: python examples/pipeline_datasource.py localhost:9092 TOPIC [CHECKPOINT]

Counts a topic's records by codec from the headers of its batches, without decompressing them; looks for gaps
in the sequence numbers of idempotent producers; and reads, as a stream, the records that are new since the
last run.
"""

import sys
import tempfile

from pixy.errors import needs_extra

try:
    from pyspark.sql import SparkSession, Window, functions as sf

    from pixy.pipeline.datasource import register
except ImportError as error:
    sys.exit(needs_extra("this example", "pipeline", error))


def main(bootstrap: str, topic: str, checkpoint: str) -> None:
    spark = SparkSession.builder.master("local[2]").appName("pipeline_datasource").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    # One row per record batch; its header has the number of records.
    batches = spark.read.format("pixy").options(**kafka, mode="batches").load()
    print("batches by codec:")
    batches.where("not isControl").groupBy("codec").agg(
        sf.count("*").alias("batches"),
        sf.sum("count").alias("records"),
        sf.sum("bytes").alias("bytes"),
        sf.every("crcValid").alias("intact"),
    ).orderBy("codec").show()

    # One row per record, with the columns of Spark's own source and more.
    records = spark.read.format("pixy").options(**kafka).load()
    in_order = Window.partitionBy("partition", "producerId", "producerEpoch").orderBy("offset")
    gaps = (
        records.where("producerId >= 0")
        .withColumn("previous", sf.lag("sequence").over(in_order))
        .where("sequence != previous + 1")
        .count()
    )
    print(f"{records.count()} records, {gaps} gaps in the sequence numbers of idempotent producers")

    # The records since the checkpoint; the next run returns only newer ones.
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

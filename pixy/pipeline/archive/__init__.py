"""Archive topics into a lake, each record exactly once; compact the lake; keep a Delta table over it.

The way of a batch, in reading order:

1. ``job``: topics, lake and limits of the job; ``subscription`` finds its partitions and checks that Kafka
   still has the offsets to archive.
2. ``archive``: opens lake and checkpoint, compares the two, and starts Spark's streaming query.
3. ``batch_writer``: gets Kafka's rows, reads the offsets that Spark planned for them (``checkpoint``), and
   compares both with the log.
4. ``batch_writer``: adds the records' hashes (``spark.columns``) and lets Spark write the rows to staging.
5. ``staged_files``: topic, day and stats of each staged file, read back by ``lake.parquet_stats``.
6. ``batch_writer``: moves the files to their names in the lake (``lake.store``, ``lake.layout``) and drafts
   the manifest (``lake.manifest``).
7. ``lake.lake``: gives the manifest its number and digest and publishes it. Readers see the batch from now on.
8. ``delta``: commits the same files to the Delta table, if the lake has one.
9. ``progress``: counts the batch; ``metrics`` shows the counts to Prometheus.
10. ``archive``: returns to Spark, which commits the batch in its checkpoint and plans the next one.

``failures`` turns the texts of Spark's errors into the pipeline's errors. ``compact`` rewrites closed days.
"""

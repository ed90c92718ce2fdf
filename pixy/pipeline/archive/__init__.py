"""Archive topics into a lake, each record exactly once; rewrite its closed days to large files.

The way of a batch, in reading order:

1. ``job``: topics, lake and limits of the job; ``subscription`` finds its topics.
2. ``archive``: opens the lake, asks Kafka for bounds and ids.
3. ``planning``: from the covered offsets of the lake (``lake.state``) and Kafka's bounds, the ranges to read, the offsets to
   skip, and the topics that cannot go on.
4. ``batch_writer``: adds the records' hashes (``spark.columns``) and lets Spark write the rows; Spark observes count and
   checksum.
5. ``staged_files``: topic, day and stats of each file, read back by ``lake.parquet_stats``; ``batch_writer`` compares.
6. ``lake.lake``: gives the entry its number and digest, and commits it with the files (``lake.data_table``). Readers see
   the batch from now on.
7. ``progress``: counts the batch; ``metrics`` shows the counts to Prometheus.

``failures`` turns the texts of Spark's errors into the pipeline's errors. ``optimize`` rewrites closed days.
"""

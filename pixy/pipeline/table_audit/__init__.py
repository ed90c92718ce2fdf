"""The audit of a table that another program wrote: which of a topic's records it lacks, has twice, or had late.

The table needs two columns, partition and offset; a mapping names them. It may be a Delta, an Iceberg or a
Parquet table. To follow a run read ``request``, ``table``, ``bounds``, ``buckets``, ``compare`` and ``repair``.
The work is Spark's, and the driver holds a row per partition and no more.
"""

"""Query a lake with Spark SQL.

    python examples/pipeline_query_spark.py LAKE TOPIC ["SELECT ... FROM records ..."]

The lake is a Delta table, which lists the files to read: `spark.read.parquet(LAKE)` would also read files of killed jobs,
and files that `optimize` has replaced. A session with Delta's jars reads `LAKE/data` with `format("delta")`. The view `records` has the columns of Spark's Kafka source, and `size` and
`hash` (docs/pipeline.md).
"""

import sys

from pixy.errors import needs_extra

try:
    from pyspark.sql import SparkSession

    from pixy.pipeline.lake import Lake
except ImportError as error:
    sys.exit(needs_extra("this example", "pipeline", error))

SQL = """
SELECT partition,
       count(*) AS records,
       min(offset) AS first,
       max(offset) AS last,
       sum(size) AS bytes,
       count(DISTINCT key) AS keys,
       count_if(value IS NULL) AS tombstones,
       max(timestamp) AS newest
FROM records
GROUP BY partition
ORDER BY partition
"""


def main(uri: str, topic: str, sql: str = SQL) -> None:
    lake = Lake.open(uri)
    files = [lake.location.for_spark(file.path) for file in lake.state().select(topic)]
    if not files:
        sys.exit(f"{uri} has no records of {topic}; it has {', '.join(lake.state().topics()) or 'nothing'}")
    spark = (
        SparkSession.builder.appName("query")
        .master("local[*]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    try:
        spark.read.parquet(*files).createOrReplaceTempView("records")
        spark.sql(sql).show(50, truncate=False)
    finally:
        spark.stop()


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

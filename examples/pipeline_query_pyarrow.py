"""Query a lake with pyarrow alone: neither Spark nor Java.

    python examples/pipeline_query_pyarrow.py LAKE TOPIC

The lake is a Delta table, which lists the files to read. Do not read other files: a killed job may have left them, or
`optimize` has replaced them. docs/pipeline.md documents the columns, and how other programs read the table.
"""

import sys

from pixy.errors import needs_extra

try:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from pixy.pipeline.lake import Lake
except ImportError as error:
    sys.exit(needs_extra("this example", "lake", error))


def main(uri: str, topic: str) -> None:
    lake = Lake.open(uri)
    files = [lake.location.for_arrow(file.path) for file in lake.state().select(topic)]
    if not files:
        sys.exit(f"{uri} has no records of {topic}; it has {', '.join(lake.state().topics()) or 'nothing'}")
    records = ds.dataset(files, format="parquet", filesystem=lake.location.filesystem)

    # Sums need not read the payload: the columns size and hash stand for it.
    found = records.to_table(columns=["partition", "offset", "timestamp", "size"])
    print(
        f"{topic}: {found.num_rows:,} records, {pc.sum(found['size']).as_py():,} bytes in {len(files)} files"
    )
    by_partition = found.group_by("partition").aggregate(
        [
            ("offset", "min"),
            ("offset", "max"),
            ("timestamp", "max"),
            ("size", "sum"),
        ]
    )
    for row in by_partition.sort_by("partition").to_pylist():
        print(
            f"  partition {row['partition']}: offsets {row['offset_min']:,} to {row['offset_max']:,}, "
            f"{row['size_sum']:,} bytes, the last of {row['timestamp_max']:%Y-%m-%d %H:%M:%S}"
        )

    # pyarrow pushes the filter into the files: it skips row groups that cannot match.
    first = records.to_table(filter=(ds.field("partition") == 0) & (ds.field("offset") < 3))
    for row in first.sort_by("offset").to_pylist():
        print(
            f"  offset {row['offset']}: key {row['key']!r}, value {row['value']!r}, headers {row['headers']}"
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

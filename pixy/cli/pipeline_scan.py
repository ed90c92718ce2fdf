"""``kafka-pixy pipeline scan``."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import (
    EXIT_FOUND,
    EXIT_OK,
    EXITS,
    add_topics,
    common_parser,
    console,
    load_cluster,
    report,
    set_up_logging,
)
from pixy.escaping import escaped

DESCRIPTION = """\
Count the records of topics from the headers of their batches: check every checksum, decompress nothing.
"""
_EXAMPLES = {"kafka-pixy pipeline scan --config pixy.yaml --topics orders,payments": ""}
_EXITS = EXITS | {3: "done, and found damaged batches"}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "scan",
        parents=[common_parser(cluster=True, spark=False)],
        help="count records by the headers of their batches",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=_EXITS,
    )
    add_topics(parser, "count", "Python")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.datasource import access, options
        from pixy.pipeline.datasource.cluster import ClusterReader, check_exist, partitions_of
        from pixy.pipeline.datasource.plan import Range

    _, proxy = load_cluster(args)
    chosen = {"subscribePattern": args.pattern} if args.pattern else {"subscribe": args.topics}
    source = options.parse({**access.from_proxy(proxy).spark_options(), **chosen, "mode": "batches"})
    cluster = ClusterReader.of(source)
    topics = cluster.topics(source.selection)
    check_exist(source.selection, topics)
    began = time.monotonic()
    rows: dict[tuple[str, str], dict[str, int]] = defaultdict(
        lambda: {"batches": 0, "records": 0, "bytes": 0, "control": 0, "bad_crc": 0}
    )
    for (topic, partition), (start, end) in sorted(
        cluster.bounds(partitions_of(topics), committed=False).items()
    ):
        _scan(source, Range(topic, partition, start, end, topics[topic].id), rows)
        console.print(
            escaped(f"{topic}/{partition}: offsets {start:,} to {end:,}"), markup=False, soft_wrap=True
        )
    bad = sum(row["bad_crc"] for row in rows.values())
    return report(
        args,
        {
            "records": sum(row["records"] for row in rows.values()),
            "bad_crc": bad,
            "seconds": round(time.monotonic() - began, 3),
            "topics": [
                {"topic": topic, "codec": codec, **row} for (topic, codec), row in sorted(rows.items())
            ],
        },
        EXIT_FOUND if bad else EXIT_OK,
    )


def _scan(source: Any, range_: Any, rows: dict[tuple[str, str], dict[str, int]]) -> None:
    from pixy.pipeline.datasource.batch_rows import BatchRows

    wanted = ("codec", "count", "bytes", "isControl", "crcValid")
    for made in BatchRows(source, range_, wanted).read():
        for codec, count, size, control, valid in zip(
            *(column.to_pylist() for column in made.columns), strict=True
        ):
            row = rows[range_.topic, codec]
            row["batches"] += not control
            row["records"] += 0 if control else count
            row["bytes"] += size
            row["control"] += control
            row["bad_crc"] += not valid

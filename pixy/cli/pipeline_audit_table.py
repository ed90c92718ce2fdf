"""``kafka-pixy pipeline audit-table``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import (
    EXIT_FOUND,
    EXIT_OK,
    EXITS,
    add_delta_jars,
    common_parser,
    console,
    doing,
    load_cluster,
    report,
    set_up_logging,
)
from pixy.config.durations import parse_duration
from pixy.escaping import escaped

DESCRIPTION = """\
Compare a table that another program fills from Kafka with the broker's log, and
with a lake if there is one: which records are missing, doubled or late. The
table needs a column for the partition and one for the offset. Spark counts
where the rows are; the broker is asked only about missing offsets.
"""

_EXAMPLES = {
    "kafka-pixy pipeline audit-table --config pixy.yaml --table /warehouse/orders \\\n"
    "      --format delta --columns topic,partition=k_partition,offset=k_offset \\\n"
    "      --repair repair.jsonl": "a role without = is its own column"
}
_EXITS = EXITS | {
    0: "nothing is missing, doubled or late",
    3: "records are missing, doubled, late, or of another topic; --repair has them",
}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "audit-table",
        parents=[common_parser(cluster=True, spark=True)],
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=_EXITS,
        help="report what a table of another program lacks, has twice or had late",
    )
    parser.add_argument(
        "--table",
        metavar="PATH|NAME",
        required=True,
        help="folder or URI of the table, or its name in a catalog of Spark's",
    )
    parser.add_argument(
        "--format", choices=("parquet", "delta", "iceberg"), required=True, help="format of the table"
    )
    parser.add_argument(
        "--columns",
        metavar="ROLE=COLUMN,...",
        required=True,
        help="the columns of partition and offset, perhaps of topic, timestamp (the record's) and written (when the row "
        "was); a dot enters a struct, a role alone is its own column",
    )
    parser.add_argument(
        "--topics",
        metavar="A,B",
        default="",
        help="topics to audit (default: those that the table has; one must be named if it has no column for it)",
    )
    parser.add_argument(
        "--lake", metavar="DIR", default="", help="a lake that has the topics too, beyond the log's retention"
    )
    parser.add_argument(
        "--late-after",
        metavar="10m",
        type=_millis,
        default=600_000,
        help="a record is late if the table lacks it, or got it, longer than this after its timestamp (default: 10m)",
    )
    parser.add_argument(
        "--since-table",
        action="store_true",
        help="expect records only from each partition's first row on (default: from the start of log and lake)",
    )
    parser.add_argument(
        "--repair",
        metavar="FILE",
        default="",
        help="write the faulty ranges to this file, one JSON line each",
    )
    parser.add_argument(
        "--table-jars", metavar="DIR", default="", help="folder with the jars of the format, for Iceberg"
    )
    add_delta_jars(parser)
    parser.set_defaults(run=run)


def _millis(text: str) -> int:
    try:
        found = round(parse_duration(text) * 1000)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0")
    return found


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    # Starting Spark takes seconds: refuse first whatever can be refused.
    with importing():
        from pixy.pipeline.errors import UsageError
        from pixy.pipeline.table_audit.job import audit_table
        from pixy.pipeline.table_audit.repair import write_repair
        from pixy.pipeline.table_audit.request import TableRequest, parse_columns
        from pixy.pipeline.table_audit.summary import summarize

    _, proxy = load_cluster(args)
    topics = tuple(dict.fromkeys(each.strip() for each in args.topics.split(",") if each.strip()))
    request = TableRequest(
        args.table,
        args.format,
        parse_columns(args.columns),
        proxy,
        topics,
        args.lake,
        args.late_after,
        args.since_table,
    )
    request.check()
    if args.repair and not Path(args.repair).resolve().parent.is_dir():
        raise UsageError(f"--repair {args.repair}: the folder does not exist")
    _check_folders(args)
    with doing("starting Spark") as now, _session(args) as spark:

        def step(line: str) -> None:
            console.print(escaped(line, keep="\n"), markup=False, soft_wrap=True)
            now(line)

        result = audit_table(spark, request, step)
        counts = write_repair(args.repair, result.findings())
        now("stopping Spark")
    summary = summarize(request, result, counts)
    code = EXIT_OK if summary["verdict"] == "clean" else EXIT_FOUND
    return report(args, {**summary, "repair": args.repair or None}, code)


def _check_folders(args: argparse.Namespace) -> None:
    """Raise for a table or a lake that this machine lacks. Catalogs and stores are left to Spark, and so are patterns of paths."""
    from pixy.pipeline.errors import SourceError
    from pixy.pipeline.lake import Lake
    from pixy.pipeline.lake.locations import is_local, local_path

    table = Path(local_path(args.table))
    if _is_of_this_machine(args):
        if not table.exists():
            raise SourceError(f"--table {args.table}: there is no such folder")
        if args.format == "delta" and not (table / "_delta_log").is_dir():
            raise SourceError(f"--table {args.table} is not a Delta table: it has no _delta_log")
    if args.lake and is_local(args.lake):
        Lake.open(args.lake)


def _is_of_this_machine(args: argparse.Namespace) -> bool:
    """Tell whether Spark will look for the table on this machine: not in a catalog, nor in a cluster's default file system."""
    if set("*?[{") & set(args.table):
        return False
    if args.table.startswith("file:"):
        return True
    named = args.format == "iceberg" and "/" not in args.table
    elsewhere = {"PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR"} & set(os.environ)
    elsewhere |= {each for each in args.conf if "defaultFS" in each}
    local_master = (args.master or "local").startswith("local")
    return not (named or elsewhere or ":" in args.table) and local_master


def _session(args: argparse.Namespace) -> Any:
    from pixy.pipeline.errors import UsageError
    from pixy.pipeline.spark import jars
    from pixy.pipeline.spark.session import running

    settings = list(args.conf)
    if args.table_jars:
        extra = sorted(str(path.resolve()) for path in Path(args.table_jars).glob("*.jar"))
        if not extra:
            raise UsageError(f"--table-jars {args.table_jars}: the folder has no jars")
        settings.append("spark.jars=" + ",".join([*jars.find(args.jars), *extra]))
    delta = (args.delta_jars or "") if args.format == "delta" or args.delta_jars is not None else None
    return running("audit-table", args.master, args.jars, settings, verbose=args.verbose, delta=delta)

"""``kafka-pixy pipeline compact``."""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import add_delta_jars, common_parser, console, doing, report, set_up_logging
from pixy.config.durations import parse_duration

DESCRIPTION = """\
Rewrite the closed days of a lake to files of 128 to 512 MB. The checksums of the new files are compared with
the manifests before they replace the old ones. Safe beside archive jobs and readers.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "compact",
        parents=[common_parser(cluster=False, spark=True)],
        help="rewrite a lake's closed days to large files",
        description=DESCRIPTION,
    )
    parser.add_argument("--lake", metavar="DIR", required=True, help="folder or Hadoop URI of the lake")
    parser.add_argument("--topic", default=None, help="compact this topic only")
    parser.add_argument(
        "--before",
        metavar="DAY",
        type=_day,
        default=None,
        help="compact days before this one (default: today, UTC)",
    )
    parser.add_argument(
        "--target-mb",
        type=_size,
        default=256,
        metavar="N",
        help="size of the new files, 128 to 512 (default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=_duration,
        default=24 * 3600.0,
        metavar="DURATION",
        help="how long replaced files stay on disk, for readers that have them open (default: 24h)",
    )
    add_delta_jars(parser)
    parser.add_argument("--dry-run", action="store_true", help="list the days to compact; do not start Spark")
    parser.set_defaults(run=run)


def _day(text: str) -> str:
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2025-12-31")


def _size(text: str) -> int:
    if not text.isdecimal() or not 128 <= int(text) <= 512:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 128 to 512")
    return int(text)


def _duration(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.archive.compact import Compactor, plan, today
        from pixy.pipeline.archive.delta import has_table
        from pixy.pipeline.lake import Lake
        from pixy.pipeline.lake.store import is_local
        from pixy.pipeline.spark.hadoop_store import store_for

    before, target, delta = args.before or today(), args.target_mb << 20, args.delta_jars
    if is_local(args.lake):
        local = Lake.open(args.lake)
        groups = plan(local.state(), before, args.topic, target)
        if delta is None and has_table(local.store):
            delta = ""
        if args.dry_run:
            return report(args, _plan_summary(args.lake, groups))
        console.print(f"{len(groups)} days to compact", markup=False)
    with importing():
        from pixy.pipeline.spark.session import running

    session = running(
        f"compact {args.lake}", args.master, args.jars, args.conf, verbose=args.verbose, delta=delta
    )
    with doing("starting Spark") as now, session as spark:
        now(f"compacting {args.lake}")
        lake = Lake.open(args.lake, store_for(args.lake, spark))
        done = Compactor(spark, lake, args.keep, delta=delta is not None).run(before, args.topic, target)
        now("stopping Spark")
    return report(
        args,
        {
            "lake": args.lake,
            "days": len(done.groups),
            "files_before": done.files_before,
            "files_after": done.files_after,
            "bytes_before": done.bytes_before,
            "bytes_after": done.bytes_after,
            "records": done.records,
            "deleted": done.deleted,
        },
    )


def _plan_summary(lake: str, groups: list[Any]) -> dict[str, Any]:
    return {
        "lake": lake,
        "days": [
            {
                "topic": group.topic,
                "date": group.date,
                "files": len(group.files),
                "into": group.into,
                "bytes": group.size,
            }
            for group in groups
        ],
    }

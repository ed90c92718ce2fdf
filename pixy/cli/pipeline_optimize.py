"""``kafka-pixy pipeline optimize``."""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import EXITS, common_parser, console, doing, report, set_up_logging

DESCRIPTION = """\
Rewrite the closed days of a lake to files of 128 to 512 MB. The checksums of the new files are compared with those of
the old ones before they replace them. Safe beside archive jobs and readers; `vacuum` deletes the old files later.
"""
_EXAMPLES = {
    "kafka-pixy pipeline optimize --lake /lake --dry-run": "the days that it would rewrite",
    "kafka-pixy pipeline optimize --lake /lake --topic orders": "",
}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "optimize",
        parents=[common_parser(cluster=False, spark=True)],
        help="rewrite a lake's closed days to large files",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=EXITS,
    )
    parser.add_argument("--lake", metavar="DIR", required=True, help="folder or URI of the lake")
    parser.add_argument("--topic", default=None, help="rewrite this topic only")
    parser.add_argument(
        "--before",
        metavar="DAY",
        type=_day,
        default=None,
        help="rewrite days before this one (default: today, UTC)",
    )
    parser.add_argument(
        "--target-mb",
        type=_size,
        default=256,
        metavar="N",
        help="size of the new files, 128 to 512 (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the days to rewrite; do not start Spark")
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


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.archive.optimize import Optimizer, plan, today
        from pixy.pipeline.errors import UsageError
        from pixy.pipeline.lake import Lake

    before, target = args.before or today(), args.target_mb << 20
    lake = Lake.open(args.lake)
    state = lake.state()
    if args.topic is not None and args.topic not in state.topic_ids:
        raise UsageError(f"{args.lake} has no topic {args.topic}")
    groups = plan(state, before, args.topic, target)
    if args.dry_run:
        return report(args, _plan_summary(args.lake, groups))
    console.print(f"{len(groups)} days to rewrite", markup=False)
    with importing():
        from pixy.pipeline.spark.session import running

    session = running(f"optimize {args.lake}", args.master, args.jars, args.conf, verbose=args.verbose)
    with doing("starting Spark") as now, session as spark:
        now(f"optimizing {args.lake}")
        done = Optimizer(spark, lake).run(before, args.topic, target)
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

"""``kafka-pixy pipeline vacuum``."""

from __future__ import annotations

import argparse
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import EXITS, common_parser, report, set_up_logging
from pixy.config.durations import parse_duration

DESCRIPTION = """\
Delete the files of a lake that no reader needs: those that `optimize` replaced and those that killed jobs left, and the
entries of Delta's log that the table of ranges has and that are older than 7 days. Needs neither Spark nor Kafka.
"""
_EXAMPLES = {
    "kafka-pixy pipeline vacuum --lake /lake --dry-run": "the files that it would delete",
    "kafka-pixy pipeline vacuum --lake /lake --keep 720h": "files of the last 30 days stay",
}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "vacuum",
        parents=[common_parser(cluster=False, spark=False)],
        help="delete files that a lake no longer lists",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=EXITS,
    )
    parser.add_argument("--lake", metavar="DIR", required=True, help="folder or URI of the lake")
    parser.add_argument(
        "--keep",
        type=_hours,
        default=7 * 24,
        metavar="DURATION",
        help="how long files stay that are not listed, for readers of older versions and for running jobs: "
        "whole hours (default: 168h)",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the files; delete nothing")
    parser.set_defaults(run=run)


def _hours(text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds < 0 or seconds % 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of whole hours such as 24h")
    return int(seconds // 3600)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.lake import Lake

    deleted = Lake.open(args.lake).vacuum(args.keep, dry_run=args.dry_run)
    return report(
        args,
        {
            "lake": args.lake,
            "files": len(deleted),
            "ended": "dry run" if args.dry_run else "deleted",
            "paths": list(deleted) if args.dry_run else [],
        },
    )

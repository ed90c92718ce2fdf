"""``kafka-pixy pipeline expire``."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import EXITS, common_parser, report, set_up_logging

DESCRIPTION = """\
Remove the records of whole days (UTC, by their timestamps) from a lake. The table of ranges says what has expired, so
verify, audit and replay tell it from a loss. Records without a timestamp, and those of years other than 1970 to 9999, stay.
`vacuum` deletes the files later. Needs neither Spark nor Kafka.
"""
_EXAMPLES = {
    "kafka-pixy pipeline expire --lake /lake --older-than 90d --dry-run": "how many records it would remove",
    "kafka-pixy pipeline expire --lake /lake --topic orders --older-than 2025-01-31": "",
}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "expire",
        parents=[common_parser(cluster=False, spark=False)],
        help="remove the records of old days from a lake",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=EXITS,
    )
    parser.add_argument("--lake", metavar="DIR", required=True, help="folder or URI of the lake")
    parser.add_argument(
        "--older-than",
        metavar="DAY|AGE",
        type=_first_kept,
        required=True,
        help="remove days before this one, such as 2025-01-31, or that ended longer than this ago, such as 90d",
    )
    parser.add_argument("--topic", default=None, help="remove records of this topic only")
    parser.add_argument("--dry-run", action="store_true", help="count the records; remove nothing")
    parser.set_defaults(run=run)


def _first_kept(text: str) -> str:
    """Parse a day, or an age in days; return the first day to keep."""
    today = datetime.now(UTC).date()
    age = re.fullmatch(r"([0-9]{1,7})d", text)
    try:
        first = today - timedelta(days=int(age[1])) if age else date.fromisoformat(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a day such as 2025-12-31 nor an age such as 90d"
        ) from None
    if first > today:
        raise argparse.ArgumentTypeError(f"{text!r} is in the future")
    return first.isoformat()


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.errors import UsageError
        from pixy.pipeline.lake import Lake
        from pixy.pipeline.lake.expire import expire, plan

    lake = Lake.open(args.lake)
    state = lake.state()
    if args.topic is not None and args.topic not in state.topic_ids:
        raise UsageError(f"{args.lake} has no topic {args.topic}")
    found = (
        plan(state, args.older_than, args.topic)
        if args.dry_run
        else expire(lake, args.older_than, args.topic)
    )
    return report(
        args,
        {
            "lake": args.lake,
            "before": args.older_than,
            "ended": "dry run" if args.dry_run else "expired",
            "records": sum(each.records for each in found),
            "files": sum(len(each.files) for each in found),
            "bytes": sum(each.bytes for each in found),
            "topics": [
                {
                    "topic": each.topic,
                    "topic_id": each.topic_id,
                    "first_day": each.days[0],
                    "last_day": each.days[1],
                    "files": len(each.files),
                    "records": each.records,
                }
                for each in found
            ],
        },
    )

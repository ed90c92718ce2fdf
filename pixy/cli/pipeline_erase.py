"""``kafka-pixy pipeline erase``."""

from __future__ import annotations

import argparse
import re
import shlex
import uuid
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import EXITS, add_keys, common_parser, console, doing, report, set_up_logging
from pixy.escaping import escaped

DESCRIPTION = """\
Erase records of a topic from a lake: their files are rewritten without them, and the table of ranges says how many of which
offsets are gone, and on which request; verify, audit and replay tell that from a loss. Replaced files keep the records until
they are deleted: --vacuum does it at once, otherwise `vacuum` does it later. Run the command again to see that no file on disk
has them. The condition itself is recorded nowhere. Kafka's own copy is not touched.
"""
_EXAMPLES = {
    "kafka-pixy pipeline erase --lake /lake --topic orders --key alice --dry-run": "how many records it would erase",
    "kafka-pixy pipeline erase --lake /lake --topic orders --key alice \\\n"
    "      --request-id GDPR-17 --vacuum": "also deletes the replaced files",
}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "erase",
        parents=[common_parser(cluster=False, spark=True)],
        help="remove the records of a key or a condition from a lake",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=EXITS,
    )
    parser.add_argument("--lake", metavar="DIR", required=True, help="folder or URI of the lake")
    parser.add_argument("--topic", required=True, help="topic in the lake")
    which = parser.add_argument_group("which records (at least one condition; all must hold)")
    add_keys(which)
    which.add_argument(
        "--where",
        default="",
        metavar="SQL",
        help="a condition in Spark SQL, such as \"get_json_object(cast(value as string), '$.user') = '17'\"",
    )
    parser.add_argument(
        "--request-id",
        type=_request,
        default=None,
        metavar="ID",
        help="name of the request in the history; no personal data (default: a random one)",
    )
    parser.add_argument(
        "--vacuum",
        action="store_true",
        help="delete all replaced files of the lake at once; readers of earlier versions then fail",
    )
    parser.add_argument("--dry-run", action="store_true", help="count the records; change nothing")
    parser.set_defaults(run=run)


def _request(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:/#-]{1,100}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 100 letters, digits and ._:/#-")
    return text


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.archive.erase import Eraser, Erasure
        from pixy.pipeline.errors import UsageError
        from pixy.pipeline.lake import Lake
        from pixy.pipeline.spark.session import running

    keys = ", ".join(f"X'{key.hex()}'" for key in args.key + args.key_hex)
    conditions = [f"key in ({keys})"] if keys else []
    conditions += [f"({args.where})"] if args.where else []
    if not conditions:
        raise UsageError("give --key, --key-hex or --where: which records?")
    lake = Lake.open(args.lake)
    if args.topic not in lake.ledger().topic_ids:
        raise UsageError(f"{args.lake} has no topic {args.topic}")
    erasure = Erasure(args.topic, " and ".join(conditions), args.request_id or uuid.uuid4().hex[:12])
    session = running(f"erase {args.lake}", args.master, args.jars, args.conf, verbose=args.verbose)
    with doing("starting Spark") as now, session as spark:
        now(f"erasing records of {args.topic}")
        eraser = Eraser(spark, lake)
        done = eraser.dry_run(erasure) if args.dry_run else eraser.run(erasure, vacuum=args.vacuum)
        now("stopping Spark")
    if done.left and not args.dry_run:
        _tell(args.lake, len(done.left))
    return report(
        args,
        {
            "lake": args.lake,
            "topic": args.topic,
            "request_id": erasure.request,
            "ended": "dry run" if args.dry_run else "erased",
            "records": done.records,
            "erased_before": done.before,
            "files_rewritten": done.files,
            "files_left": len(done.left),
            "left": done.left[:20],
        },
    )


def _tell(lake: str, files: int) -> None:
    text = (
        f"{files:,} files of earlier versions still hold such records. When no job and no query needs them: "
        f"kafka-pixy pipeline vacuum --lake {shlex.quote(lake)} --keep 0h"
    )
    console.print(escaped(text), markup=False, soft_wrap=True)

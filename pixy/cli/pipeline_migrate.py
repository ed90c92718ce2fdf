"""``kafka-pixy pipeline migrate``."""

from __future__ import annotations

import argparse
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import EXITS, common_parser, doing, report, set_up_logging

DESCRIPTION = """\
Make a lake of format 1, which kept a log of manifests, a Delta table. No file of records is rewritten or moved. Stop its
jobs first. After a kill run the same command again. Needs neither Spark nor Kafka.
"""
_EXAMPLES = {"kafka-pixy pipeline migrate --lake /lake": "then: kafka-pixy pipeline verify --lake /lake"}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "migrate",
        parents=[common_parser(cluster=False, spark=False)],
        help="make a lake of format 1 a Delta table",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=EXITS,
    )
    parser.add_argument("--lake", metavar="DIR", required=True, help="folder or URI of the lake")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.lake.migrate import migrate

    with doing(f"migrating {args.lake}") as now:
        done = migrate(
            args.lake, on_progress=lambda made, all_: now(f"migrating {args.lake}: entry {made} of {all_}")
        )
    return report(
        args, {"lake": args.lake, "entries": done.entries, "files": done.files, "records": done.records}
    )

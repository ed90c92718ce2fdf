"""``kafka-pixy pipeline verify``."""

from __future__ import annotations

import argparse
import os
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import (
    EXIT_FOUND,
    EXIT_OK,
    common_parser,
    console,
    report,
    set_up_logging,
)

DESCRIPTION = """\
Check a lake: the log's chain of digests, every file against its manifest, every record against the
checksums. Needs neither Spark nor Kafka, and changes nothing. Exit code 3 means damage.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "verify",
        parents=[common_parser(cluster=False, spark=False)],
        help="check a lake: manifests against files against checksums",
        description=DESCRIPTION,
    )
    parser.add_argument(
        "--lake", metavar="DIR", required=True, help="folder of the lake, or a URI that pyarrow can read"
    )
    parser.add_argument("--topic", default=None, help="check the files of this topic only")
    parser.add_argument(
        "--shallow", action="store_true", help="check only the log and the files' sizes, do not read records"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of processes that read files (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.lake import Lake
        from pixy.pipeline.lake.arrow_store import reading_store
        from pixy.pipeline.lake.verify import verify

    lake = Lake.open(args.lake, reading_store(args.lake))
    with Progress(
        TextColumn("verifying"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_interactive,
    ) as progress:
        task = progress.add_task("", total=None)
        verdict = verify(
            lake,
            records=not args.shallow,
            topic=args.topic,
            processes=args.processes,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    return report(
        args,
        {
            "lake": args.lake,
            "manifests": verdict.manifests,
            "files": verdict.files,
            "records": verdict.records,
            "bytes": verdict.bytes,
            "unlisted": len(verdict.unlisted),
            "problems": verdict.problems,
            "verdict": "damaged" if verdict.problems else "as the manifests say",
        },
        EXIT_FOUND if verdict.problems else EXIT_OK,
    )

"""``kafka-pixy pipeline verify``."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import (
    EXIT_FOUND,
    EXIT_OK,
    EXITS,
    common_parser,
    console,
    doing,
    report,
    set_up_logging,
)

DESCRIPTION = """\
Check a lake: the chain of digests, every file against the table, every record against the checksums. Changes nothing and
needs no Kafka; with --master Spark's executors read the files, otherwise processes of this machine. Exit code 3 means
damage.
"""
_EXAMPLES = {
    "kafka-pixy pipeline verify --lake /lake": "reads every record",
    "kafka-pixy pipeline verify --lake /lake --topic orders --shallow": "history and sizes only",
}
_EXITS = EXITS | {3: "done, and found damage"}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "verify",
        parents=[common_parser(cluster=False, spark=True)],
        help="check a lake: history against files against checksums",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=_EXITS,
    )
    parser.add_argument("--lake", metavar="DIR", required=True, help="folder or URI of the lake")
    parser.add_argument("--topic", default=None, help="check the files of this topic only")
    parser.add_argument(
        "--shallow",
        action="store_true",
        help="check only the history and the files' sizes, do not read records",
    )
    parser.add_argument(
        "--processes",
        type=_processes,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of processes that read files (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def _processes(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= len(text) <= 4 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes from 1 to 9999")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.pipeline.lake import Lake
        from pixy.pipeline.lake.verify import in_processes, verify

    lake = Lake.open(args.lake)
    _check_topic(args, lake)
    with contextlib.ExitStack() as opened:
        if args.master:
            with importing():
                from pixy.pipeline.spark.session import running
                from pixy.pipeline.spark.tasks import on_executors

            now = opened.enter_context(doing("starting Spark"))
            session = running(f"verify {args.lake}", args.master, args.jars, args.conf, verbose=args.verbose)
            runner = on_executors(opened.enter_context(session))
            now(f"verifying {args.lake}")
            verdict = verify(lake, records=not args.shallow, topic=args.topic, run=runner)
        else:
            verdict = _with_progress(args, lake, in_processes(args.processes), verify)
    return _report(args, verdict)


def _check_topic(args: argparse.Namespace, lake: Any) -> None:
    """Raise UsageError if the lake lacks the topic; whether its history is damaged is for the verification to say."""
    from pixy.pipeline.errors import LakeError, UsageError

    with contextlib.suppress(LakeError):
        if args.topic is not None and args.topic not in lake.ledger().topic_ids:
            raise UsageError(f"{args.lake} has no topic {args.topic}")


def _with_progress(args: argparse.Namespace, lake: Any, runner: Any, verify: Any) -> Any:
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
        return verify(
            lake,
            records=not args.shallow,
            topic=args.topic,
            run=runner,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )


def _report(args: argparse.Namespace, verdict: Any) -> int:
    return report(
        args,
        {
            "lake": args.lake,
            "entries": verdict.entries,
            "files": verdict.files,
            "records": verdict.records,
            "bytes": verdict.bytes,
            **verdict.removed,
            "unlisted": len(verdict.unlisted),
            "problems": verdict.problems,
            "verdict": "damaged" if verdict.problems else "as archived",
        },
        EXIT_FOUND if verdict.problems else EXIT_OK,
    )

"""``kafka-pixy pipeline archive``."""

from __future__ import annotations

import argparse
import signal
import time
from datetime import UTC, datetime
from typing import Any

from pixy.cli.pipeline_common import (
    add_delta_jars,
    add_topics,
    common_parser,
    console,
    load_cluster,
    report,
    set_up_logging,
)
from pixy.config.durations import parse_duration

DESCRIPTION = """\
Write topics to a lake, each record exactly once for every reader. Run the same command again to go on;
it may be killed at any point. SIGTERM and ctrl-C end it after the batch under way.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "archive",
        parents=[common_parser(cluster=True, spark=True)],
        help="write topics to a lake, exactly once",
        description=DESCRIPTION,
    )
    add_topics(parser, "archive", "Java")
    parser.add_argument(
        "--lake",
        metavar="DIR",
        required=True,
        help="folder or Hadoop URI of the lake; made if it is not there",
    )
    parser.add_argument(
        "--trigger",
        metavar="once|30s",
        type=_trigger,
        default=None,
        help="once: archive what is there now and end (default); a duration: go on, a batch that often",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="start|end|TIME",
        type=parse_start,
        default="start",
        help="where partitions begin that are new to the job: ISO 8601 or milliseconds for a time (default: start)",
    )
    parser.add_argument(
        "--format",
        choices=("parquet", "delta"),
        default=None,
        help="delta: keep a Delta table over the same files, LAKE/data (default: what the lake has; parquet for a new one)",
    )
    add_delta_jars(parser)
    parser.add_argument("--job", default="", help="the job's name (default: made from cluster and topics)")
    parser.add_argument("--checkpoint", metavar="DIR", default="", help="default: within the lake")
    parser.add_argument(
        "--batch-records",
        type=_positive,
        default=2_000_000,
        metavar="N",
        help="the most offsets a batch covers (default %(default)s)",
    )
    parser.add_argument(
        "--max-rate", type=_positive, default=0, metavar="N", help="records a second (default: unlimited)"
    )
    parser.add_argument(
        "--read-committed",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="leave out records of aborted and open transactions (default: yes)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "skip"),
        default="fail",
        help="when Kafka has deleted what was to be archived (default: %(default)s)",
    )
    parser.add_argument(
        "--commit-as",
        metavar="GROUP",
        default="",
        help="commit the archived offsets for this group, for lag tools",
    )
    parser.add_argument(
        "--metrics-file", metavar="FILE", default="", help="Prometheus text, rewritten after each batch"
    )
    parser.add_argument(
        "--metrics-port", metavar="PORT", type=_positive, default=0, help="the same, served over HTTP"
    )
    parser.set_defaults(run=run)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _trigger(text: str) -> float | None:
    if text == "once":
        return None
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is neither once nor a duration such as 30s")
    return seconds


def parse_time(text: str) -> int:
    """Milliseconds of a time: ISO 8601 (UTC unless it says otherwise) or milliseconds already."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither ISO 8601 nor milliseconds") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_start(text: str) -> str | int:
    """``start``, ``end`` or the milliseconds of a time."""
    return text if text in ("start", "end") else parse_time(text)


def _delta(args: argparse.Namespace) -> bool:
    """Whether a Delta table is wanted: said so, or the lake has one."""
    from pixy.pipeline.archive.delta import has_table
    from pixy.pipeline.errors import UsageError
    from pixy.pipeline.lake.store import LocalStore, is_local, local_path

    if args.format == "parquet" and args.delta_jars is not None:
        raise UsageError("--delta-jars goes with --format delta")
    if args.format is not None:
        return bool(args.format == "delta")
    return args.delta_jars is not None or (
        is_local(args.lake) and has_table(LocalStore(local_path(args.lake)))
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit code."""
    set_up_logging(args)
    # Spark's start takes seconds: what can be refused is refused before.
    from pixy.pipeline.archive.archive import Archive, admin_view
    from pixy.pipeline.archive.job import Job
    from pixy.pipeline.archive.metrics import Metrics
    from pixy.pipeline.archive.subscription import Subscription, check_job_name
    from pixy.pipeline.spark.session import open_session

    cluster, proxy = load_cluster(args)
    topics = tuple(dict.fromkeys(topic.strip() for topic in (args.topics or "").split(",") if topic.strip()))
    subscription = Subscription(topics, args.pattern or "")
    name = check_job_name(args.job) if args.job else subscription.job_name(cluster)
    job = Job(
        cluster,
        proxy,
        args.lake,
        subscription,
        name,
        args.checkpoint,
        args.trigger,
        args.start,
        args.batch_records,
        args.max_rate,
        args.read_committed,
        args.on_data_loss == "skip",
        args.commit_as,
        _delta(args),
    )
    view = admin_view(proxy)
    subscription.find(view.topics())
    metrics = Metrics(name, args.metrics_file, args.metrics_port)
    console.print("starting Spark ...")
    spark = open_session(
        f"archive {subscription}",
        args.master,
        args.jars,
        args.conf,
        verbose=args.verbose,
        delta=(args.delta_jars or "") if job.delta else None,
    )
    try:
        archive = Archive(spark, job, view, lambda progress, manifest: _tell(metrics, progress, manifest))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: archive.stopping.set())
        began = time.monotonic()
        console.print(f"archiving {subscription} of {cluster} into {args.lake}, job {name}", markup=False)
        ended = archive.run()
        seconds = time.monotonic() - began
    finally:
        spark.stop()
    done = archive.progress
    return report(
        args,
        {
            "job": name,
            "lake": args.lake,
            "ended": ended,
            "batches": done.batches,
            "records": done.records,
            "bytes": done.bytes,
            "seconds": round(seconds, 3),
            "records_per_second": round(done.records / seconds, 1) if seconds else 0.0,
            "topics": [
                {"topic": topic, "records": count, "bytes": size}
                for topic, (count, size) in sorted(done.by_topic.items())
            ],
        },
    )


def _tell(metrics: Any, progress: Any, manifest: Any) -> None:
    metrics.update(progress, manifest.published)
    count = sum(each.stats.count for each in manifest.ranges)
    lag = sum(progress.lag.values())
    console.print(
        f"batch {manifest.batch}: {count:,} records in {progress.batch_seconds:.1f} s; {progress.records:,} "
        f"records, {progress.bytes / 1e6:,.1f} MB so far; {lag:,} behind",
        markup=False,
    )

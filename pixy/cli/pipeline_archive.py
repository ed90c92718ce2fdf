"""``kafka-pixy pipeline archive``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from datetime import UTC, datetime
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_common import (
    EXITS,
    MAX_DIGITS,
    add_topics,
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
Write topics to a lake, each record exactly once for every reader. Run the same command again to continue;
it may be killed at any point. SIGTERM and Ctrl-C end it after the current batch.
"""
_EXAMPLES = {
    "kafka-pixy pipeline archive --config pixy.yaml --topics orders --lake /lake": "what Kafka has now",
    "kafka-pixy pipeline archive --config pixy.yaml --pattern 'shop\\..*' \\\n"
    "      --lake /lake --trigger 1m": "a batch each minute, until Ctrl-C or SIGTERM",
}
_EXITS = EXITS | {1: "failed, or a topic was left out; stderr names the reason. What is published stays"}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "archive",
        parents=[common_parser(cluster=True, spark=True)],
        help="write topics to a lake, exactly once",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=_EXITS,
    )
    add_topics(parser, "archive", "Java")
    parser.add_argument(
        "--lake",
        metavar="DIR",
        required=True,
        help="folder or URI of the lake; created if it does not exist",
    )
    parser.add_argument(
        "--trigger",
        metavar="once|30s",
        type=_trigger,
        default=None,
        help="once: archive the records of now and end (default); a duration: keep running, one batch per interval",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="start|end|TIME",
        type=parse_start,
        default="start",
        help="where topics begin that are new to the lake; a time is ISO 8601 (UTC unless it names a zone) or milliseconds of the epoch (default: start)",
    )
    _add_job_options(parser)
    parser.set_defaults(run=run)


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--job", default="", help="name of the job (default: derived from cluster and topics)"
    )
    parser.add_argument(
        "--batch-records",
        type=_positive,
        default=2_000_000,
        metavar="N",
        help="maximum offsets of a batch (default: %(default)s)",
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
        help="if Kafka has deleted records that are not archived yet (default: %(default)s)",
    )
    parser.add_argument(
        "--commit-as",
        metavar="GROUP",
        default="",
        help="commit the archived offsets for this group, so that lag tools see the job",
    )
    parser.add_argument(
        "--decode",
        metavar="FILE",
        default="",
        help="decode keys and values into typed columns, by the schema registry that this YAML file names: url, ca, username, "
        "password_file, timeout, max_schemas",
    )
    parser.add_argument(
        "--metrics-file",
        metavar="FILE",
        default="",
        help="write metrics in Prometheus' text format, after each batch",
    )
    parser.add_argument(
        "--metrics-port", metavar="PORT", type=_port, default=0, help="serve the same metrics over HTTP"
    )


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > MAX_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 5 or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
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
    """Parse ISO 8601 (UTC if it names no zone) or milliseconds; return milliseconds of the epoch."""
    if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither ISO 8601 nor milliseconds") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_start(text: str) -> str | int:
    """Parse ``start``, ``end`` or a time; return a time as milliseconds of the epoch."""
    return text if text in ("start", "end") else parse_time(text)


def _job(args: argparse.Namespace) -> Any:
    from pixy.kafka.schema_registry import Registry, load_settings
    from pixy.pipeline.archive.job import Job
    from pixy.pipeline.archive.subscription import Subscription, check_job_name

    cluster, proxy = load_cluster(args)
    topics = tuple(dict.fromkeys(topic.strip() for topic in (args.topics or "").split(",") if topic.strip()))
    subscription = Subscription(topics, args.pattern or "")
    return Job(
        cluster,
        proxy,
        args.lake,
        subscription,
        check_job_name(args.job) if args.job else subscription.job_name(cluster),
        interval=args.trigger,
        start=args.start,
        batch_records=args.batch_records,
        max_rate=args.max_rate,
        read_committed=args.read_committed,
        skip_lost=args.on_data_loss == "skip",
        commit_as=args.commit_as,
        decode=Registry(load_settings(args.decode)) if args.decode else None,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    # Starting Spark takes seconds: refuse first whatever can be refused.
    with importing():
        from pixy.pipeline.archive.archive import Archive, admin_view
        from pixy.pipeline.archive.metrics import Metrics
        from pixy.pipeline.lake import Lake
        from pixy.pipeline.spark.session import running

    job = _job(args)
    view = admin_view(job.proxy)
    Lake.check(job.lake, job.cluster, view.cluster_id())
    job.subscription.find(view.topics())
    metrics = Metrics(job.name, args.metrics_file, args.metrics_port)
    with contextlib.ExitStack() as opened:
        now = opened.enter_context(doing("starting Spark"))
        session = running(
            f"archive {job.subscription}",
            args.master,
            args.jars,
            args.conf,
            verbose=args.verbose,
        )
        spark = opened.enter_context(session)
        now(f"archiving {job.subscription}: waiting for the first batch")

        def on_batch(progress: Any, entry: Any) -> None:
            _show_progress(metrics, progress, entry)
            now(f"archiving {job.subscription}: {progress.records:,} records so far")

        archive = Archive(spark, job, view, on_batch)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: archive.stopping.set())
        began = time.monotonic()
        console.print(
            f"archiving {job.subscription} of {job.cluster} into {args.lake}, job {job.name}",
            markup=False,
            soft_wrap=True,
        )
        ended = archive.run()
        seconds = time.monotonic() - began
        now("stopping Spark")
    return report(args, _summary(job, archive.progress, ended, seconds))


def _summary(job: Any, progress: Any, ended: str, seconds: float) -> dict[str, Any]:
    return {
        "job": job.name,
        "lake": job.lake,
        "ended": ended,
        "batches": progress.batches,
        "records": progress.records,
        "bytes": progress.bytes,
        "seconds": round(seconds, 3),
        "records_per_second": round(progress.records / seconds, 1) if seconds else 0.0,
        "topics": [
            {"topic": topic, "records": count, "bytes": size}
            for topic, (count, size) in sorted(progress.by_topic.items())
        ],
        **{
            f"{part}s": [
                {"topic": topic, **counts}
                for (of, topic), counts in sorted(progress.decoded.items())
                if of == part
            ]
            for part in ("key", "value")
        },
    }


def _show_progress(metrics: Any, progress: Any, entry: Any) -> None:
    metrics.update(progress, entry.published)
    count = sum(each.stats.count for each in entry.ranges)
    lag = sum(progress.lag.values())
    console.print(
        f"batch {entry.batch}: {count:,} records in {progress.batch_seconds:.1f} s; {progress.records:,} "
        f"records, {progress.bytes / 1e6:,.1f} MB so far; {lag:,} behind",
        markup=False,
        soft_wrap=True,
    )
    for text in entry.events:
        console.print(escaped(text), markup=False, soft_wrap=True)
    for each in entry.ranges:
        if each.skipped:
            text = f"offsets {each.start} to {each.end - 1} of {each.topic}/{each.partition} are not archived: {each.skipped}"
            console.print(escaped(text), markup=False, soft_wrap=True)

"""``kafka-pixy pipeline replay``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from dataclasses import replace
from functools import partial
from typing import Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_archive import parse_time
from pixy.cli.pipeline_common import (
    EXITS,
    MAX_DIGITS,
    MAX_PARTITION,
    add_keys,
    common_parser,
    console,
    doing,
    load_cluster,
    report,
    set_up_logging,
)
from pixy.escaping import escaped

DESCRIPTION = """\
Write records of a lake to a topic: same bytes, timestamps, headers and tombstones, to the same partition and
in the same order. Run the same command again to continue after a stop or a kill: nothing is written twice.
A state folder keeps the progress and the map of old to new offsets (Parquet).
"""
_EXAMPLES = {
    "kafka-pixy pipeline replay --config pixy.yaml --lake /lake --topic orders \\\n"
    "      --to orders-again --create": "all records, into a new topic",
    "kafka-pixy pipeline replay --config pixy.yaml --lake /lake --topic orders \\\n"
    "      --to orders-again --from 2025-01-01 --partitions 0,1 --dry-run": "how many records it would write",
}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "replay",
        parents=[common_parser(cluster=True, spark=True)],
        help="write records of a lake to a topic",
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=EXITS,
    )
    parser.add_argument("--lake", metavar="DIR", required=True, help="folder or URI of the lake")
    parser.add_argument("--topic", required=True, help="topic in the lake")
    parser.add_argument(
        "--topic-id",
        default="",
        metavar="ID",
        help="Kafka's id of an earlier topic of that name, as the lake has it, whose records to write",
    )
    parser.add_argument("--to", required=True, metavar="TOPIC", help="topic to write to")
    _add_selection(parser)
    _add_options(parser)
    parser.set_defaults(run=run)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which records (all conditions must hold; default: all)")
    which.add_argument(
        "--from",
        dest="since",
        type=parse_time,
        metavar="T",
        help="from this timestamp on: ISO 8601 (UTC unless it names a zone), or milliseconds of the epoch",
    )
    which.add_argument("--until", type=parse_time, metavar="T", help="before this timestamp")
    which.add_argument(
        "--offsets",
        type=_offsets,
        action="append",
        default=[],
        metavar="P:START-END",
        help="offsets of a partition, END not included; may be repeated, once for each partition",
    )
    which.add_argument(
        "--partitions", type=_partitions, default=frozenset(), metavar="P,P", help="these partitions"
    )
    add_keys(which)
    which.add_argument(
        "--where",
        default="",
        metavar="SQL",
        help="a condition in Spark SQL, such as \"cast(value as string) like '%%error%%'\"; starts Spark",
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how")
    how.add_argument(
        "--partitioner",
        default="keep",
        choices=("keep", "murmur2_random", "fnv1a_random", "consistent_random"),
        metavar="NAME",
        help="keep the partition (default), or choose it by key as Java (murmur2_random), this proxy (fnv1a_random) "
        "or librdkafka (consistent_random) do",
    )
    how.add_argument(
        "--create",
        action="store_true",
        help="create the topic if it does not exist, with as many partitions and unlimited retention",
    )
    how.add_argument(
        "--max-rate", type=_rate, default=0, metavar="N", help="records a second (default: unlimited)"
    )
    how.add_argument(
        "--executors",
        action="store_true",
        help="let Spark's executors write, a task for each partition: for the partitioner keep; --state must be in a folder "
        "that they share",
    )
    how.add_argument(
        "--allow-same-topic",
        action="store_true",
        help="write the records to the topic of the same cluster that they came from, which then has them twice",
    )
    how.add_argument("--dry-run", action="store_true", help="count the records, write nothing")
    how.add_argument(
        "--any-timestamp-type", action="store_true", help="write also to a topic that replaces timestamps"
    )
    how.add_argument(
        "--missing-timestamps",
        choices=("fail", "now"),
        default="fail",
        help="records without a timestamp (default: %(default)s)",
    )
    how.add_argument(
        "--group",
        action="append",
        default=[],
        type=_group,
        metavar="G[=NEW]",
        help="translate this group's offsets to the new topic and commit them",
    )
    how.add_argument(
        "--schemas-from",
        metavar="FILE",
        default="",
        help="replace the ids of schemas: the settings of the registry that the records were written with (as of archive --decode)",
    )
    how.add_argument(
        "--schemas-to",
        metavar="FILE",
        default="",
        help="the settings of the registry whose ids they get; it gets the schemas, too",
    )
    how.add_argument(
        "--state",
        metavar="DIR",
        default="",
        help="folder for progress and map (default: ./replays/<name>)",
    )


def _offsets(text: str) -> tuple[int, tuple[int, int]]:
    try:
        partition, _, range_ = text.partition(":")
        start, _, end = range_.partition("-")
        found = int(partition), (int(start), int(end))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not PARTITION:START-END") from None
    if not 0 <= found[0] <= MAX_PARTITION:
        raise argparse.ArgumentTypeError(f"{text!r}: no partition has the number {found[0]}")
    if not 0 <= found[1][0] < found[1][1]:
        raise argparse.ArgumentTypeError(f"{text!r} holds no offset")
    return found


def _ranges(given: list[tuple[int, tuple[int, int]]]) -> dict[int, tuple[int, int]]:
    """Return the range of each partition. Raises UsageError for a partition that has two."""
    from pixy.pipeline.errors import UsageError

    ranges: dict[int, tuple[int, int]] = {}
    for partition, range_ in given:
        if partition in ranges:
            raise UsageError(f"--offsets names partition {partition} twice: replay one range after the other")
        ranges[partition] = range_
    return ranges


def _partitions(text: str) -> frozenset[int]:
    try:
        found = frozenset(int(part) for part in text.split(","))
    except ValueError:
        found = frozenset({-1})
    if not all(0 <= each <= MAX_PARTITION for each in found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of partitions such as 0,3")
    return found


def _rate(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > MAX_DIGITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of records a second (0: unlimited)")
    return int(text)


def _group(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    return old, new or old


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    with importing():
        from pixy.kafka import settings
        from pixy.kafka.blocking import ClusterView
        from pixy.pipeline.lake import Lake
        from pixy.pipeline.replay.job import ReplayJob
        from pixy.pipeline.replay.state import ReplayState

    cluster, proxy = load_cluster(args)
    lake = Lake.open(args.lake)
    registries = _registries(args)
    _check_executors(args)
    request = replace(_request(args), registries=tuple(each.url for each in registries))
    state = ReplayState(args.state or f"replays/{request.name(lake.identity.id)}")
    opened = contextlib.ExitStack()
    job = ReplayJob(
        lake,
        request,
        proxy,
        ClusterView(settings.admin(proxy), proxy.net.dial_timeout),
        state,
        _finder(args),
        lambda progress: console.print(f"{progress.records:,} records written", markup=False, soft_wrap=True),
        lambda text: console.print(escaped(text, keep="\n"), markup=False, soft_wrap=True),
        None if args.dry_run else _change(args, registries),
        partial(_on_executors, args, opened) if args.executors else None,
        cluster,
    )
    if args.dry_run:
        return report(args, _dry_run_summary(args, job.dry_run()))
    _stop_on_signals(job)
    began = time.monotonic()
    with opened:
        result = job.run()
    return report(args, _summary(args, result, time.monotonic() - began, state.folder))


def _request(args: argparse.Namespace) -> Any:
    from pixy.pipeline.lake.selection import Selection
    from pixy.pipeline.replay.request import ReplayRequest

    return ReplayRequest(
        args.topic,
        args.to,
        Selection(
            args.since,
            args.until,
            _ranges(args.offsets),
            args.partitions,
            tuple(args.key + args.key_hex),
            args.where,
        ),
        partitioner=args.partitioner,
        create=args.create,
        any_timestamp_type=args.any_timestamp_type,
        now_if_missing=args.missing_timestamps == "now",
        max_rate=args.max_rate,
        groups=tuple(args.group),
        topic_id=args.topic_id,
        allow_same_topic=args.allow_same_topic,
    )


def _check_executors(args: argparse.Namespace) -> None:
    from pixy.pipeline.errors import UsageError

    if args.executors and args.partitioner != "keep":
        raise UsageError("--executors write partition by partition: --partitioner must be keep")
    if args.executors and args.schemas_from:
        raise UsageError(
            "--executors do not know the registries: leave out --schemas-from and --schemas-to, or --executors"
        )


def _on_executors(args: argparse.Namespace, opened: contextlib.ExitStack, *what: Any) -> Any:
    """Start Spark, which is stopped with ``opened``; return the writer."""
    with importing():
        from pixy.pipeline.replay.on_executors import ExecutorWriter
        from pixy.pipeline.spark.session import running

    now = opened.enter_context(doing("starting Spark"))
    session = running("replay", args.master, args.jars, args.conf, verbose=args.verbose)
    writer = ExecutorWriter(opened.enter_context(session), *what)
    now("executors write the records")
    return writer


def _registries(args: argparse.Namespace) -> list[Any]:
    """Return the settings of both registries, or none."""
    from pixy.kafka.schema_registry import load_settings
    from pixy.pipeline.errors import UsageError

    files = [each for each in (args.schemas_from, args.schemas_to) if each]
    if len(files) == 1:
        raise UsageError("--schemas-from and --schemas-to go together")
    return [load_settings(each) for each in files]


def _change(args: argparse.Namespace, registries: list[Any]) -> Any:
    """Return what replaces the ids of schemas; None if they stay."""
    from pixy.kafka.schema_registry import Registry
    from pixy.pipeline.replay.schema_ids import SchemaIds

    if not registries:
        return None
    source, target = (Registry(each) for each in registries)
    return SchemaIds(source, target, args.topic, args.to).change


def _stop_on_signals(job: Any) -> None:
    """Let SIGTERM and Ctrl-C stop the writer; before it starts they interrupt."""

    def stop(*_: Any) -> None:
        if job.writer is not None:
            job.writer.stopping.set()
        else:
            raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _dry_run_summary(args: argparse.Namespace, result: Any) -> dict[str, Any]:
    return {
        "topic": args.topic,
        "to": args.to,
        "ended": result.ended,
        "records": sum(result.selected.values()),
        **result.removed,
        "partitions": [{"partition": number, "records": count} for number, count in result.selected.items()],
    }


def _summary(args: argparse.Namespace, result: Any, seconds: float, folder: Any) -> dict[str, Any]:
    done = result.progress
    return {
        "topic": args.topic,
        "to": args.to,
        "ended": result.ended,
        "records": done.records,
        "written_before": done.skipped,
        "found_in_topic": done.found,
        **result.removed,
        "seconds": round(seconds, 3),
        "records_per_second": round(done.records / seconds, 1) if seconds else 0.0,
        "state": str(folder),
        "map": str(folder / "map"),
        "groups": result.groups,
    }


def _finder(args: argparse.Namespace) -> Any:
    def find(files: Any, where: str, typed: Any) -> Any:
        from pixy.pipeline.spark.predicate import find as by_spark
        from pixy.pipeline.spark.session import running

        session = running("replay", args.master, args.jars, args.conf, verbose=args.verbose)
        with doing("starting Spark") as now, session as spark:
            now(f"finding the records of --where in {len(files):,} files")
            yield from by_spark(spark, files, where, typed)

    return find

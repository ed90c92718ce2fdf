"""``kafka-pixy pipeline replay``."""

from __future__ import annotations

import argparse
import signal
import time
from typing import Any

from pixy.cli.pipeline_archive import parse_time
from pixy.cli.pipeline_common import common_parser, console, load_cluster, report, set_up_logging

DESCRIPTION = """\
Write records of a lake to a topic: same bytes, timestamps, headers and tombstones, to the same partition and
in the same order. Run the same command again to continue after a stop or a kill: nothing is written twice.
A state folder keeps the progress and the map of old to new offsets (Parquet).
"""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "replay",
        parents=[common_parser(cluster=True, spark=True)],
        help="write records of a lake to a topic",
        description=DESCRIPTION,
    )
    parser.add_argument(
        "--lake", metavar="DIR", required=True, help="folder of the lake, or a URI that pyarrow can read"
    )
    parser.add_argument("--topic", required=True, help="topic in the lake")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="topic to write to")
    which = parser.add_argument_group("which records (all conditions must hold; default: all)")
    which.add_argument(
        "--from",
        dest="since",
        type=parse_time,
        metavar="T",
        help="from this timestamp on: ISO 8601, or milliseconds of the epoch",
    )
    which.add_argument("--until", type=parse_time, metavar="T", help="before this timestamp")
    which.add_argument(
        "--offsets",
        type=_offsets,
        action="append",
        default=[],
        metavar="P:START-END",
        help="offsets of a partition, END not included; may be repeated",
    )
    which.add_argument(
        "--partitions", type=_partitions, default=frozenset(), metavar="P,P", help="these partitions"
    )
    which.add_argument("--key", action="append", default=[], help="records with this key; may be repeated")
    which.add_argument(
        "--key-hex",
        action="append",
        default=[],
        type=_hex,
        metavar="HEX",
        help="the same for a binary key, in hex",
    )
    which.add_argument(
        "--where",
        default="",
        metavar="SQL",
        help="a condition in Spark SQL, such as \"cast(value as string) like '%%error%%'\"; starts Spark",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--partitioner",
        default="keep",
        choices=("keep", "murmur2_random", "fnv1a_random", "consistent_random"),
        help="keep the partition (default), or choose it by key as Java, this proxy or librdkafka do",
    )
    how.add_argument(
        "--create",
        action="store_true",
        help="create the topic if it does not exist, with as many partitions and unlimited retention",
    )
    how.add_argument(
        "--max-rate", type=int, default=0, metavar="N", help="records a second (default: unlimited)"
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
        "--state",
        metavar="DIR",
        default="",
        help="folder for progress and map (default: ./replays/<name>)",
    )
    parser.set_defaults(run=run)


def _offsets(text: str) -> tuple[int, tuple[int, int]]:
    try:
        partition, _, range_ = text.partition(":")
        start, _, end = range_.partition("-")
        found = int(partition), (int(start), int(end))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not PARTITION:START-END") from None
    if not 0 <= found[1][0] < found[1][1]:
        raise argparse.ArgumentTypeError(f"{text!r} holds no offset")
    return found


def _partitions(text: str) -> frozenset[int]:
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of partitions") from None


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not hexadecimal") from None


def _group(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    return old, new or old


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    from pixy.kafka import settings
    from pixy.kafka.blocking import ClusterView
    from pixy.pipeline.lake import Lake
    from pixy.pipeline.lake.arrow_store import reading_store
    from pixy.pipeline.lake.selection import Selection
    from pixy.pipeline.replay.job import ReplayJob
    from pixy.pipeline.replay.request import ReplayRequest
    from pixy.pipeline.replay.state import ReplayState

    _, proxy = load_cluster(args)
    lake = Lake.open(args.lake, reading_store(args.lake))
    request = ReplayRequest(
        args.topic,
        args.to,
        Selection(
            args.since,
            args.until,
            dict(args.offsets),
            args.partitions,
            tuple([key.encode() for key in args.key] + args.key_hex),
            args.where,
        ),
        args.partitioner,
        args.create,
        args.any_timestamp_type,
        args.missing_timestamps == "now",
        args.max_rate,
        tuple(args.group),
    )
    state = ReplayState(args.state or f"replays/{request.name(lake.identity.id)}")
    job = ReplayJob(
        lake,
        request,
        proxy,
        ClusterView(settings.admin(proxy), proxy.net.dial_timeout),
        state,
        _finder(args),
        lambda progress: console.print(f"{progress.records:,} records written", markup=False),
        lambda text: console.print(text, markup=False, soft_wrap=True),
    )
    if args.dry_run:
        found = job.dry_run()
        return report(
            args,
            {
                "topic": args.topic,
                "to": args.to,
                "ended": found.ended,
                "records": sum(found.selected.values()),
                "partitions": [
                    {"partition": number, "records": count} for number, count in found.selected.items()
                ],
            },
        )

    def stop(*_: Any) -> None:
        if job.writer is not None:
            job.writer.stopping.set()
        else:
            raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    console.print(f"replaying {args.topic} to {args.to}; state in {state.folder}", markup=False)
    began = time.monotonic()
    result = job.run()
    seconds = time.monotonic() - began
    done = result.progress
    return report(
        args,
        {
            "topic": args.topic,
            "to": args.to,
            "ended": result.ended,
            "records": done.records,
            "written_before": done.skipped,
            "found_in_topic": done.found,
            "seconds": round(seconds, 3),
            "records_per_second": round(done.records / seconds, 1) if seconds else 0.0,
            "state": str(state.folder),
            "map": str(state.folder / "map"),
            "groups": result.groups,
        },
    )


def _finder(args: argparse.Namespace) -> Any:
    def find(files: Any, where: str) -> Any:
        from pixy.pipeline.spark.predicate import find as by_spark
        from pixy.pipeline.spark.session import open_session

        spark = open_session("replay", args.master, args.jars, args.conf, verbose=args.verbose)
        try:
            return by_spark(spark, files, where)
        finally:
            spark.stop()

    return find

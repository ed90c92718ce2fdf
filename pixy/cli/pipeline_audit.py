"""``kafka-pixy pipeline audit``."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from pixy.cli.importing import importing
from pixy.cli.pipeline_archive import parse_time
from pixy.cli.pipeline_common import (
    EXIT_FOUND,
    EXIT_OK,
    EXITS,
    common_parser,
    console,
    doing,
    load_cluster,
    report,
    set_up_logging,
)
from pixy.config import Proxy
from pixy.config.durations import parse_duration
from pixy.escaping import escaped

if TYPE_CHECKING:
    from pixy.pipeline.audit.request import AuditRequest

DESCRIPTION = """\
Count the messages that were lost, duplicated, out of order or late: per topic,
partition, group and time window. Sources are the lake, the broker's log, the
groups' committed offsets and the daemons' journal; any may be absent, and the
report names those that were used. Run it again into the same folder to update
the windows: the report names the windows that late data has changed, with
their revision.
"""

_EXAMPLES = {
    "kafka-pixy pipeline audit --config pixy.yaml --lake /lake --out audit": "then open audit/report.html",
    "kafka-pixy pipeline audit --config pixy.yaml --lake /lake --out audit \\\n"
    "      --incremental": "only what may have changed since",
    "kafka-pixy pipeline audit --config pixy.yaml --out audit --topics orders \\\n"
    "      --group billing": "without a lake and a journal",
}
_EXITS = EXITS | {
    0: "nothing is lost",
    3: "messages are lost; with --strict also if messages are duplicated or out of order without an explanation",
}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "audit",
        parents=[common_parser(cluster=False, spark=True)],
        description=DESCRIPTION,
        examples=_EXAMPLES,
        exits=_EXITS,
        help="report what was lost, duplicated or late",
    )
    parser.add_argument("--lake", metavar="DIR", default="", help="folder or Hadoop URI of the lake")
    parser.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        help="folder for audit.json, report.html and the Parquet tables; that of an earlier run is updated",
    )
    parser.add_argument(
        "--topics",
        metavar="A,B",
        type=_names,
        default=(),
        help="topics to audit (default: those of the lake and of the journal)",
    )
    parser.add_argument(
        "--group",
        metavar="G",
        action="append",
        default=[],
        help="group to audit, may be repeated (default: those of the journal)",
    )
    parser.add_argument(
        "--journal",
        metavar="TOPIC",
        default="",
        help="topic with the daemons' journal, in the cluster or in the lake (default: the configuration's)",
    )
    parser.add_argument(
        "--window", metavar="1m", type=_millis, default=60_000, help="length of a window (default: 1m)"
    )
    parser.add_argument(
        "--watermark",
        metavar="1m",
        type=_millis,
        default=60_000,
        help="how long after its end a window may change without being called restated (default: 1m)",
    )
    parser.add_argument(
        "--late-after",
        metavar="5m",
        type=_millis,
        default=0,
        help="a message is late if it is archived, or still unread by a group, longer than this after its timestamp "
        "(default: --window and --watermark together)",
    )
    _add_period(parser)
    _add_checks(parser)
    parser.set_defaults(run=run)


def _add_period(parser: argparse.ArgumentParser) -> None:
    period = parser.add_argument_group("period (default: everything); what is outside stays as --out has it")
    period.add_argument(
        "--from",
        dest="since",
        type=parse_time,
        default=None,
        metavar="T",
        help="windows from this time on: ISO 8601 (UTC unless it names a zone), or milliseconds of the epoch",
    )
    period.add_argument(
        "--until", type=parse_time, default=None, metavar="T", help="windows before this time"
    )
    period.add_argument(
        "--incremental",
        action="store_true",
        help="only windows from the oldest message on that may have news since the earlier run; everything, if "
        "there was none",
    )


def _add_checks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read the broker's log after the lake's end (default: yes)",
    )
    parser.add_argument(
        "--sequences",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="check the sequence numbers of idempotent producers in the log; fetches all of its bytes, "
        "decompresses none (default: yes)",
    )
    parser.add_argument(
        "--contents",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="look for the same content at two offsets (default: yes)",
    )
    parser.add_argument(
        "--settle",
        metavar="2s",
        type=_seconds,
        default=2.0,
        help="time for running daemons to write their events; more than their journal.linger (default: 2s)",
    )
    parser.add_argument(
        "--prometheus",
        metavar="FILE",
        default="",
        help="write the counts in Prometheus' text format too, replacing the file as a whole; name it *.prom in the "
        "folder of node_exporter's textfile collector",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit code 3 also for unexplained duplicates and disorder",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _seconds(text: str) -> float:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return found


def _millis(text: str) -> int:
    found = round(_seconds(text) * 1000)
    if found <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0")
    return found


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    set_up_logging(args)
    # Starting Spark takes seconds: refuse first whatever can be refused.
    with importing():
        from pixy.pipeline.audit import prometheus
        from pixy.pipeline.audit.check_sources import check_sources
        from pixy.pipeline.audit.previous_run import read_previous_run
        from pixy.pipeline.errors import UsageError

    prometheus.check_file(args.prometheus)
    cluster, proxy = load_cluster(args) if args.config else ("", None)
    if not args.lake and proxy is None:
        raise UsageError("give --lake, or --config for the cluster, or both: there is nothing to audit")
    if args.incremental and (args.since, args.until) != (None, None):
        raise UsageError("--incremental finds its period itself: leave out --from and --until")
    if args.since is not None and args.until is not None and args.since >= args.until:
        raise UsageError("--from is not before --until")
    for topic in args.topics:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic):
            raise UsageError(f"--topics: {topic!r} is not a name of a topic")
    request = _request(args, cluster, proxy)
    read_previous_run(args.out).check_window(request.window, args.out)
    check_sources(request)
    return _audit(args, request)


def _request(args: argparse.Namespace, cluster: str, proxy: Proxy | None) -> AuditRequest:
    from pixy.pipeline.audit.request import AuditRequest

    return AuditRequest(
        args.out,
        args.lake,
        cluster,
        proxy,
        args.topics,
        tuple(args.group),
        args.window,
        args.watermark,
        args.journal,
        args.log,
        args.settle,
        args.sequences,
        args.contents,
        args.late_after,
        args.config,
        args.since,
        args.until,
        args.incremental,
    )


def _audit(args: argparse.Namespace, request: AuditRequest) -> int:
    with importing():
        from pixy.pipeline.audit import output, prometheus
        from pixy.pipeline.audit.job import audit
        from pixy.pipeline.audit.report import render
        from pixy.pipeline.audit.summary import summarize
        from pixy.pipeline.spark.session import running

    session = running("audit", args.master, args.jars, args.conf, verbose=args.verbose)
    with doing("starting Spark") as now, session as spark:

        def step(line: str) -> None:
            console.print(escaped(line, keep="\n"), markup=False, soft_wrap=True)
            now(line)

        now("opening the sources")
        result = audit(spark, request, step)
        now("stopping Spark")
    summary = summarize(result)
    files = output.write(result, summary, render(result, summary))
    if args.prometheus:
        prometheus.write(args.prometheus, summary)
    verdict = summary["verdict"]
    code = EXIT_FOUND if verdict == "loss" or (args.strict and verdict == "fault") else EXIT_OK
    return report(args, summary if args.json else _short(summary, files), code)


_TOPIC = (
    "topic",
    "produced",
    "archived",
    "archive_lost",
    "log_lost",
    "archive_duplicates",
    "archive_out_of_order",
)
_GROUP = (
    "topic",
    "group",
    "offered",
    "acked",
    "retried",
    "dead_lettered",
    "lost",
    "unknown",
    "duplicates_unexplained",
    "out_of_order",
)


def _line(problem: dict[str, Any]) -> str:
    """Say a problem in a line, and the next command in another."""
    where = problem["topic"] + (f", group {problem['group']}" if problem["group"] else "")
    parts = ", ".join(
        f"partition {part['partition']} from {part['ranges'][0][0]:,}"
        for part in problem["partitions"][:3]
        if part["partition"] >= 0 and part["ranges"]
    )
    more = len(problem["partitions"]) - 3
    text = f"{problem['title']}: {problem['offsets']:,} offsets" if problem["offsets"] else problem["title"]
    text += "".join(
        f", {each}" for each in (where, parts, f"and {more} more partitions" if more > 0 else "") if each
    )
    return text + (f"\n    next: {problem['next'][0]['command']}" if problem["next"] else "")


def _short(summary: dict[str, Any], files: list[str]) -> dict[str, Any]:
    """Shorten the summary for a terminal."""
    windows = summary["windows"]
    return {
        "verdict": summary["verdict"],
        "sources": summary["sources"],
        "run": summary["run"],
        "windows": windows["count"],
        "restated": windows["restated"],
        "topics": [{name: row[name] for name in _TOPIC} for row in summary["topics"]],
        "groups": [{name: row[name] for name in _GROUP} for row in summary["groups"]],
        "found": summary["found"],
        "wrong": [_line(problem) for problem in summary["problems"]],
        "report": next(path for path in files if path.endswith(".html")),
    }

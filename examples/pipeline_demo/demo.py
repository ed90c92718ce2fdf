"""The steps of the demo in their order, and the table of comparisons at the end."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pixy.pipeline.errors import SetupError
from pixy.pipeline.lake import Lake
from pixy.pipeline.spark import jars
from tests.kafka.cluster import Cluster, Unavailable, free_port

from . import checks, traffic
from .processes import Command, Daemon, DemoError
from .progress import Bar, progress_bars

TOPIC, REPLAYED, JOURNAL, GROUP = "orders", "orders-replayed", "journal", "billing"
PARTITIONS = 4
MOST_CONSUMED = 50_000
BATCHES, KILL_AFTER = 8, 3
MARK = ".pipeline-demo"
SMALL = 50_000
"""Messages up to which a run lasts as long as its programs take to start: they start fast rather than run fast."""
SMALL_SHUFFLES = ("--conf", "spark.sql.shuffle.partitions=2")

console = Console(highlight=False)
if not console.is_terminal:
    console.width = 120


class Demo:
    """One run of the demo: call ``run`` once, then ``close``, whatever has happened.

    Args:
        messages: number of messages.
        folder: for lake and report; empty, or left by an earlier demo.
        master: Spark's master.

    Raises:
        DemoError: the folder has other files, or Java or a jar is missing.
    """

    def __init__(self, messages: int, folder: Path, master: str) -> None:
        self.messages, self.folder, self.master = messages, folder, master
        self._stack = ExitStack()
        self._step = 0
        self._rows: list[tuple[str, str, str, bool]] = []
        if folder.is_dir() and any(folder.iterdir()):
            if not (folder / MARK).exists():
                raise DemoError(f"--out {folder} has files that no earlier demo has written")
            shutil.rmtree(folder)
        _check_java()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
        self.lake = folder / "lake"
        self.config = folder / "pixy.yaml"

    def close(self, *, keep: bool) -> None:
        """Stop all processes; without ``keep`` remove the folder too."""
        self._stack.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self) -> bool:
        """Run all steps; return whether all comparisons are equal. Raises DemoError if a step fails."""
        with self._heading("a Kafka broker and the daemon"):
            daemon = self._start()
        sent, taken = self._traffic(daemon)
        self._archive()
        with self._heading(f"replay of {TOPIC} to {REPLAYED}"):
            replay = self._command(
                "replay",
                "--topic",
                TOPIC,
                "--to",
                REPLAYED,
                "--create",
                "--state",
                str(self.folder / "replay"),
            )
            console.print(f"  {replay['records']:,} records, {replay['records_per_second']:,.0f} a second")
        with self._heading(f"archive of {REPLAYED}"):
            self._print_rate(self._command("archive", "--topics", REPLAYED, "--trigger", "once"))
        with self._heading("verification: every record of the lake against its checksums"):
            verified = self._command("verify", cluster=False)
            console.print(
                f"  {verified['records']:,} records in {verified['files']:,} files: {verified['verdict']}"
            )
        with self._heading("audit of both topics"):
            audit = self._audit()
        with self._heading("comparison"):
            self._compare(sent, taken, replay, audit)
        with self._heading("report"):
            self._report(audit)
        return self._verdict()

    # -- the steps --------------------------------------------------------------------------------

    def _start(self) -> Daemon:
        console.print("  on the first run Maven fetches the broker's jars, about 60 MB")
        try:
            # The default delay of 3 s would change nothing but the time.
            kafka = Cluster(rebalance_delay=0, brief=self.messages <= SMALL)
        except Unavailable as error:
            raise DemoError(str(error)) from error
        self._stack.callback(kafka.close)
        for topic, partitions in ((TOPIC, PARTITIONS), (JOURNAL, 1)):
            kafka.create_topic(topic, partitions)
        grpc, rest = free_port(), free_port()
        self.config.write_text(
            json.dumps(
                {
                    "grpc_addr": f"127.0.0.1:{grpc}",
                    "tcp_addr": f"127.0.0.1:{rest}",
                    "proxies": {
                        "demo": {
                            "kafka": {"seed_peers": kafka.bootstrap()},
                            "consumer": {"initial_offset": "oldest"},
                            "journal": {"topic": JOURNAL},
                        }
                    },
                },
                indent=1,
            )
        )
        daemon = Daemon(self.config, self.folder / "daemon.log", grpc, rest)
        self._stack.callback(daemon.close)
        console.print(f"  daemon with the journal on: gRPC 127.0.0.1:{grpc}, REST 127.0.0.1:{rest}")
        return daemon

    def _traffic(self, daemon: Daemon) -> tuple[traffic.Tally, int]:
        wanted = min(self.messages // 20, MOST_CONSUMED)
        with self._heading(
            f"{self.messages:,} messages through the proxy, one a request; {wanted:,} consumed by group {GROUP}"
        ):
            began = time.monotonic()
            with progress_bars(console) as bar, closing(self._clients(daemon, wanted, bar)) as clients:
                # Closed, because Python says so of one that Ctrl-C has kept from its beginning.
                sent, taken, producing = asyncio.run(clients)
            daemon.stop()
            rate = f"{sent.count / producing:,.0f} a second"
            console.print(
                f"  {sent.count:,} sent in {producing:.1f} s ({rate}), {taken:,} consumed and acknowledged; "
                f"the daemon drained after {time.monotonic() - began:.1f} s"
            )
        return sent, taken

    async def _clients(self, daemon: Daemon, wanted: int, bar: Bar) -> tuple[traffic.Tally, int, float]:
        consuming = asyncio.create_task(
            traffic.consume(daemon.grpc, TOPIC, GROUP, wanted, bar("consumed", wanted))
        )
        began = time.monotonic()
        try:
            sent = await traffic.produce(daemon.rest, TOPIC, self.messages, bar("sent", self.messages))
            producing = time.monotonic() - began
            return sent, await consuming, producing
        finally:
            consuming.cancel()

    def _archive(self) -> None:
        arguments = (
            "archive",
            "--topics",
            TOPIC,
            "--trigger",
            "once",
            "--batch-records",
            str(-(-self.messages // BATCHES)),
        )
        with self._heading("archive, killed in the middle"):
            running = self._begin(*arguments)
            running.wait_for(f"batch {KILL_AFTER - 1}:")
            time.sleep(random.uniform(0.0, 0.5))  # at a random moment within the next batch
            running.kill()
            published = self._published()
            console.print(
                f"  kill -9 with {published:,} of {self.messages:,} records published", style="yellow"
            )
            if not 0 < published < self.messages:
                raise DemoError("the kill was not in the middle")
        with self._heading("archive, the same command again"):
            rest = self._command(*arguments)
            self._print_rate(rest)
            both = published + rest["records"]
            self._row(
                "published before the kill + after it",
                f"{published:,} + {rest['records']:,}",
                f"{self.messages:,}",
                both == self.messages,
            )

    def _published(self) -> int:
        return sum(stats[0] for stats in checks.partition_sums(Lake.open(str(self.lake)), TOPIC).values())

    def _audit(self) -> dict[str, Any]:
        found = self._command(
            "audit",
            "--topics",
            f"{TOPIC},{REPLAYED}",
            "--out",
            str(self.folder / "audit"),
            "--window",
            "5s" if self.messages > 200_000 else "1s",
        )
        console.print(f"  verdict: {found['verdict']}")
        return found

    def _compare(
        self, sent: traffic.Tally, taken: int, replay: dict[str, Any], audit: dict[str, Any]
    ) -> None:
        lake = Lake.open(str(self.lake))
        for topic in (TOPIC, REPLAYED):
            read = checks.read(lake, topic)
            self._row(
                f"messages sent, in the lake as {topic}",
                f"{sent.count:,}",
                f"{read.count:,}",
                sent.count == read.count == self.messages,
            )
            self._row(
                "checksum of their keys and values",
                f"{sent.checksum:016x}",
                f"{read.checksum:016x}",
                sent.checksum == read.checksum,
            )
        self._compare_partitions(lake)
        self._row(
            "records replayed",
            f"{replay['records']:,}",
            f"{self.messages:,}",
            replay["records"] == self.messages,
        )
        self._compare_audit(taken, audit)

    def _compare_partitions(self, lake: Lake) -> None:
        first, second = checks.partition_sums(lake, TOPIC), checks.partition_sums(lake, REPLAYED)
        for partition in sorted(first.keys() | second.keys()):
            one, other = first.get(partition, (0, 0, 0)), second.get(partition, (0, 0, 0))
            self._row(
                f"partition {partition} of {TOPIC} and {REPLAYED}",
                f"{one[0]:,} {one[2]:016x}",
                f"{other[0]:,} {other[2]:016x}",
                one == other,
            )

    def _compare_audit(self, taken: int, audit: dict[str, Any]) -> None:
        by_topic = {row["topic"]: row for row in audit["topics"]}
        answered = by_topic[TOPIC]["answered"]
        self._row(
            "messages confirmed in the journal",
            f"{answered:,}",
            f"{self.messages:,}",
            answered == self.messages,
        )
        [group] = [row for row in audit["groups"] if row["topic"] == TOPIC]
        self._row(
            "messages consumed, and acknowledged in the journal",
            f"{taken:,}",
            f"{group['acked']:,}",
            group["acked"] == taken,
        )
        lost = sum(row["archive_lost"] + row["log_lost"] for row in by_topic.values()) + group["lost"]
        self._row("lost messages in the audit", str(lost), "0", lost == 0)
        self._row("verdict of the audit", audit["verdict"], "clean", audit["verdict"] == "clean")

    def _report(self, audit: dict[str, Any]) -> None:
        report = self.folder / "audit" / "report.html"
        browser = checks.find_browser()
        if browser is None:
            console.print("  found no chromium or chrome to open it; open it in any browser")
            return
        verdict, plots = checks.open_report(report, self.folder / "report.png", browser)
        self._row(
            f"the report in {Path(browser).name}: verdict, plots",
            f"{verdict}, {plots}",
            f"{audit['verdict']}, 2",
            (verdict, plots) == (audit["verdict"], 2),
        )

    # -- output -----------------------------------------------------------------------------------

    @contextmanager
    def _heading(self, title: str) -> Iterator[None]:
        self._step += 1
        console.print(f"\n[bold]{self._step}. {title}[/bold]")
        began = time.monotonic()
        yield
        console.print(f"  done in {time.monotonic() - began:.1f} s", style="dim")

    @staticmethod
    def _print_rate(result: dict[str, Any]) -> None:
        console.print(
            f"  {result['records']:,} records in {result['batches']} batches, {result['records_per_second']:,.0f} a second"
        )

    def _row(self, what: str, found: str, wanted: str, equal: bool) -> None:
        self._rows.append((what, found, wanted, equal))

    def _verdict(self) -> bool:
        table = Table("compared", "", "with", "equal")
        for what, found, wanted, equal in self._rows:
            table.add_row(what, found, wanted, "yes" if equal else "[bold red]NO[/bold red]")
        console.print()
        console.print(table)
        good = all(row[3] for row in self._rows)
        console.print(
            f"[bold green]Counts and checksums are equal: {self.messages:,} messages went through the proxy, "
            "into the lake, back to Kafka and into the lake again; none lost, none doubled, none changed.[/bold green]"
            if good
            else "[bold red]Not all comparisons are equal.[/bold red]"
        )
        out = Console(highlight=False, soft_wrap=True)
        out.print(f"\nreport: {(self.folder / 'audit' / 'report.html').as_uri()}", markup=False)
        out.print(f"lake:   {self.lake}", markup=False)
        for name in ("spark", "pyarrow"):
            out.print(
                f"query:  .venv/bin/python examples/pipeline_query_{name}.py {self.lake} {TOPIC}",
                markup=False,
            )
        return good

    # -- commands -----------------------------------------------------------------------------------

    def _begin(self, name: str, *arguments: str, cluster: bool = True) -> Command:
        more = ["--config", str(self.config), "--master", self.master] if cluster else []
        if name in ("archive", "audit") and self.messages <= SMALL:
            more += SMALL_SHUFFLES
        if name != "audit":
            console.print(
                f"  kafka-pixy pipeline {name} {' '.join(arguments)}",
                style="dim",
                markup=False,
                soft_wrap=True,
            )
        running = Command(
            [name, *arguments, "--lake", str(self.lake), *more],
            lambda line: console.print(f"  | {line}", style="dim", markup=False, soft_wrap=True),
        )
        self._stack.callback(running.close)
        return running

    def _command(self, name: str, *arguments: str, cluster: bool = True) -> dict[str, Any]:
        return self._begin(name, *arguments, cluster=cluster).result()


def _check_java() -> None:
    try:
        jars.check_java()
        jars.find()
    except SetupError as error:
        raise DemoError(str(error)) from error


__all__ = ["Demo", "DemoError", "console"]

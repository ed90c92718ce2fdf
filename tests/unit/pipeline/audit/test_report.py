"""The report's page: what is wrong comes first, nothing makes a phone's page scroll sideways, and its colours follow the reader's."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from pixy.pipeline.audit import charts, findings
from pixy.pipeline.audit.findings import Finding, Severity
from pixy.pipeline.audit.gaps import Gap, Reason
from pixy.pipeline.audit.merge_windows import MergedWindows
from pixy.pipeline.audit.partitions import PartitionView
from pixy.pipeline.audit.report import render
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.result import AuditResult
from pixy.pipeline.audit.summary import summarize
from pixy.pipeline.audit.waiting import Waiting

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LONG = "a-topic-with-quite-a-long-name.of.some.team.that.likes.long.names"


MINUTE = 60_000
START = 1_795_600_000_000 // MINUTE * MINUTE


def _window(at: int, *, lost: int = 0, unacked: int = 0) -> dict[str, Any]:
    delays = {
        f"{metric}_{part}_ms": 5.0 + at
        for metric in ("archive_delay", "produce_offer", "offer_ack")
        for part in ("p50", "p95", "p99", "max")
    }
    row = {"produced": 100, "archived": 100 - lost, "archive_lost": lost, "archive_late": 7 if at == 9 else 0}
    group = {"offered": 100, "acked": 100 - unacked, "lost": unacked, "retried": 3}
    return {**row, **group, **delays, "closed": True, "revision": 1, "restated": False, "carried": False}


def _result() -> AuditResult:
    rows = {
        (LONG, partition, "billing", START + at * MINUTE): _window(
            at, lost=5 if (partition, at) == (1, 3) else 0, unacked=2 if (partition, at) == (0, 6) else 0
        )
        for partition in (0, 1)
        for at in range(10)
    }
    gap = Gap(300, 305, Reason.LOSS, "the broker still has the records")
    views = [PartitionView(LONG, 0, (0, 1000), (0, 1000), 1000, [Gap(7, 8, Reason.MARKER)])]
    views += [
        PartitionView(LONG, 1, (0, 1000), (0, 900), 895, [gap], timestamps={302: START + 3 * MINUTE + 17})
    ]
    waiting = [
        Waiting(LONG, 0, "billing", 400, 1000, 0, 600, START + 4 * MINUTE),
        Waiting(LONG, 1, "billing", 990, 1000),
        Waiting(LONG, 1, None, 900, 1000, 0, 10, START + 9 * MINUTE),
    ]
    request = AuditRequest("/out", "/lakes/main", "main", None, config="/etc/pixy.yaml")
    found = [
        *findings.from_partitions(views),
        *findings.from_waiting(waiting, request.late_after),
        Finding(Severity.LOSS, "lost to the group", LONG, 0, "billing", 600, 602, "nobody acknowledged"),
        *(
            Finding(Severity.BEHIND, "archived late", LONG, 0, None, 10 * at, 10 * at + 1, "late")
            for at in range(700)
        ),
    ]
    inputs = {name: {} for name in ("lake", "journal", "log", "committed")}
    windows = MergedWindows(rows, [next(iter(rows))], [], START)
    return AuditResult(
        request, START * 1000, inputs, f"sha256:{'0' * 64}", windows, views, findings.sort(found), [], 3
    )


@pytest.fixture(scope="module")
def result() -> AuditResult:
    return _result()


@pytest.fixture(scope="module")
def report(result: AuditResult) -> str:
    return render(result, summarize(result))


class Tables(HTMLParser):
    """Collects the cells of each row of each table."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.unlabelled = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            assert not {"colspan", "rowspan"} & set(given)
            self.tables[-1][-1].append(tag)
            self.unlabelled += tag == "td" and not given.get("data-label")


def uplot(name: str = "uplot.js") -> str:
    return files("pixy.pipeline.audit").joinpath("templates", name).read_text()


def test_each_cell_names_its_column_so_that_a_row_can_be_a_card(report: str) -> None:
    found = Tables()
    found.feed(report)
    assert len(found.tables) == 7
    for head, *rows in found.tables:
        assert set(head) == {"th"} and rows
        assert {len(row) for row in rows} == {len(head)}
    assert found.unlabelled == 0


def test_the_page_loads_nothing_and_follows_the_reader_s_colours(report: str) -> None:
    assert "@media (prefers-color-scheme: dark)" in report and "color-scheme: light dark" in report
    assert not re.search(r"(src|href)=", report.replace(uplot(), "")), "the page is one file"
    assert "uPlot (v1.6.32)" in report and "The MIT License" in uplot("LICENSE.uplot")


def test_what_is_wrong_comes_first_with_its_place_time_cause_and_command(
    report: str, result: AuditResult
) -> None:
    text = re.sub(r"<[^>]+>", "", report[: report.index("<h2>Lag")])
    for wanted in (
        "Lost in the lake: 5 offsets",
        "300 to 304",
        "Kafka still has the records",
        "kafka-pixy pipeline archive --config /etc/pixy.yaml --cluster main --topics",
        "Lost to the group: 2 offsets",
        f"--to {LONG}-again --create --offsets 0:600-602",
        "Group behind: 600 offsets",
        "more than 2 min after the record",
        "and 200 more ranges in findings.parquet",
    ):
        assert wanted in text, wanted
    assert text.index("Lost in the lake: 5") < text.index("Lost to the group: 2") < text.index("Group behind")
    lake, group, *_ = summarize(result)["problems"]
    assert (lake["place"], lake["since"]) == ("lake", START + 3 * MINUTE + 17), "the log told the time"
    assert (group["place"], group["since"]) == ("group", START + 6 * MINUTE), "the window told it"


def test_the_number_of_a_partition_is_not_greyed_as_if_it_counted_nothing(report: str) -> None:
    cells = re.findall(r'<td class="([^"]*)" data-label="(?:partition|position|end of the log)">', report)
    assert cells and set(cells) == {"n"}
    assert "zero" in report, "counts of nothing are"
    assert "`" not in re.sub(r"<(script|style).*?</\1>", "", report, flags=re.DOTALL)


def test_a_clean_audit_says_so(result: AuditResult) -> None:
    clean = replace(result, findings=[])
    page = render(clean, summarize(clean))
    assert "nothing is lost, doubled or late" in page and 'class="problem' not in page


def test_charts_add_up_partitions_and_join_windows_where_there_are_too_many(
    result: AuditResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(result.windows.rows.items())
    whole = charts.chart_topic(rows, MINUTE)
    assert whole["counts"]["produced"] == [200] * 10
    assert whole["counts"]["archive_lost"] == [0, 0, 0, 5, 0, 0, 0, 0, 0, 0]
    assert whole["groups"][0]["counts"]["lost"][6] == 2
    assert whole["archive_delay"]["p99"] == [5.0 + at for at in range(10)]
    monkeypatch.setattr(charts, "MAX_WINDOWS", 4)
    joined = charts.chart_topic(rows, MINUTE)
    assert len(joined["starts"]) <= 5 and joined["length"] == 180
    assert sum(joined["counts"]["produced"]) == 2000


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None, reason="!!! the report is not tested in a browser: chromium is missing !!!"
)
def test_a_phone_s_page_does_not_scroll_sideways_and_its_charts_answer(report: str, tmp_path: Path) -> None:
    """In a frame as wide as a phone: Chromium has no window of less than 500 pixels."""
    # Points at the fourth window of the first chart, then drags over a third of it.
    use = """<script>
      const page = document.documentElement, over = document.querySelector("#topic-0 .u-over"), box = over.getBoundingClientRect();
      const send = (type, part) => over.dispatchEvent(new MouseEvent(type, { clientX: box.left + box.width * part, clientY: box.top + 20, bubbles: true, view: window }));
      setTimeout(() => {  // on the virtual clock: no frame has to be drawn in time
        send("mouseenter", 0.35); send("mousemove", 0.35);
        const tip = document.querySelector("#topic-0 .tip").innerText.replace(/\\s+/g, " ");
        send("mousedown", 0.2); send("mousemove", 0.5); document.dispatchEvent(new MouseEvent("mouseup", { bubbles: true, view: window }));
        setTimeout(() => parent.postMessage({ beyond: page.scrollWidth - page.clientWidth, charts: document.querySelectorAll("canvas").length, tip }, "*"), 100);
      }, 100);
    </script></body>"""
    (tmp_path / "report.html").write_text(report.replace("</body>", use))
    frame = '<iframe src="report.html" style="width:400px;height:900px;border:0"></iframe>'
    listen = "<script>onmessage = (told) => { document.body.title = JSON.stringify(told.data) }</script>"
    (tmp_path / "phone.html").write_text(f"<!doctype html><body>{listen}{frame}</body>")
    assert CHROMIUM is not None
    options = [
        "--headless",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-quic",
    ]
    options += ["--disable-component-update", "--disable-sync", "--dump-dom"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [
            CHROMIUM,
            *options,
            "--virtual-time-budget=20000",
            f"--user-data-dir={tmp_path}/profile",
            f"file://{tmp_path}/phone.html",
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    found = re.findall(r'title="({[^"]*})"', done.stdout)
    assert found, done
    told = json.loads(html.unescape(found[0]))
    assert told["beyond"] == 0
    # Messages, the group, three faults, the group's retries, three delays.
    assert told["charts"] == 9, told
    assert "archived 195" in told["tip"] and "lost in the lake 5" in told["tip"], told

"""The report's page: each column has one heading, nothing makes a phone's page scroll sideways, and its colours follow the reader's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pixy.pipeline.audit.report import render

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LONG = "a-topic-with-quite-a-long-name.of.some.team.that.likes.long.names"
_TOPIC = ("produced", "answered", "failed", "archived", "archive_lost", "log_lost", "archive_duplicates")
_GROUP = ("offered", "acked", "retried", "dead_lettered", "lost", "unknown", "duplicates_retried")


def _latencies(*names: str) -> dict[str, float]:
    return {f"{name}_{part}_ms": 1234.5 for name in names for part in ("p50", "p95", "p99", "max")}


def _summary() -> dict[str, Any]:
    topic = dict.fromkeys((*_TOPIC, "archive_out_of_order", "archive_late"), 1_234_567)
    group = dict.fromkeys(
        (*_GROUP, "duplicates_reassigned", "duplicates_unexplained", "out_of_order"), 1_234_567
    )
    partition = {
        "topic": LONG,
        "partition": 3,
        "log_start": 0,
        "log_end": 1_234_567,
        "archived_start": 0,
        "archived_end": 1_234_567,
        "archived_records": 1_234_567,
        "not_archived_yet": 0,
        "missing": 150,
        "lost": 150,
        "gaps": {"transaction markers": 7, "compacted": 8},
    }
    finding = {
        "severity": "loss",
        "kind": "lost in the log",
        "topic": LONG,
        "partition": 3,
        "group": "billing",
        "start": 100,
        "end": 250,
        "why": "retention deleted it before the archive came to it",
    }
    return {
        "verdict": "loss",
        "run": 1,
        "at": "2026-11-23T02:32:41+00:00",
        "cluster": "main",
        "lake": f"/lakes/{LONG}",
        "sources": ["lake", "log"],
        "inputs_digest": f"sha256:{'0' * 64}",
        "inputs": {"journal": None, "log": None},
        "found": [{"severity": "loss", "kind": "lost in the log", "ranges": 1, "offsets": 150}],
        "topics": [{"topic": LONG, **topic, **_latencies("archive_delay")}],
        "groups": [{"topic": LONG, "group": "billing", **group, **_latencies("produce_offer", "offer_ack")}],
        "partitions": [partition],
        "findings": [finding],
        "windows": {
            "count": 4,
            "length_ms": 1000,
            "closed": 3,
            "watermark_ms": 5000,
            "restated": 1,
            "carried": 0,
            "restated_windows": [
                {"window": "2026-11-23T02:32", "topic": LONG, "partition": 3, "group": None}
            ],
        },
    }


@pytest.fixture(scope="module")
def report() -> str:
    rows = {
        (LONG, 0, None, start): {
            "produced": 10,
            "archived": 9,
            "archive_lost": 1,
            "archive_delay_p50_ms": 3.0,
        }
        for start in range(0, 5000, 1000)
    }
    result: Any = SimpleNamespace(windows=SimpleNamespace(rows=rows))
    return render(result, _summary())


class Tables(HTMLParser):
    """Collects the cells of each row of each table, and what stands outside of a box that scrolls by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.bare: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("div", "figure"):
            self._open.append(given.get("class") or "")
        if tag in ("table", "svg") and "wide" not in self._open:
            self.bare.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            assert not {"colspan", "rowspan"} & set(given)
            self.tables[-1][-1].append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("div", "figure"):
            self._open.pop()


def test_each_column_has_one_heading_and_each_table_scrolls_by_itself(report: str) -> None:
    found = Tables()
    found.feed(report)
    assert len(found.tables) == 7 and not found.bare
    for head, *rows in found.tables:
        assert set(head) == {"th"} and rows
        assert {len(row) for row in rows} == {len(head)}
    headings = re.findall(r"<th[^>]*>([^<]*)</th>", report)
    assert {f"archive delay, {part}, ms" for part in ("p50", "p95", "p99", "max")} <= set(headings)


def test_colours_follow_the_reader_s(report: str) -> None:
    assert "@media (prefers-color-scheme: dark)" in report and "color-scheme: light dark" in report
    plots = "".join(re.findall(r"<svg.*?</svg>", report, re.S))
    assert "stroke: currentColor" in plots
    assert not re.search(r"(fill|stroke): #(000000|ffffff|dddddd)", plots), "ink, page or grid of one theme"


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None, reason="!!! the report is not tested in a browser: chromium is missing !!!"
)
def test_a_phone_s_page_does_not_scroll_sideways(report: str, tmp_path: Path) -> None:
    """In a frame as wide as a phone: Chromium has no window of less than 500 pixels."""
    measure = "<script>const page = document.documentElement; parent.postMessage(page.scrollWidth - page.clientWidth, '*')</script></body>"
    (tmp_path / "report.html").write_text(report.replace("</body>", measure))
    frame = '<iframe src="report.html" style="width:400px;height:900px;border:0"></iframe>'
    listen = "<script>onmessage = (told) => { document.body.id = 'beyond-' + told.data }</script>"
    (tmp_path / "phone.html").write_text(f"<!doctype html><body>{listen}{frame}</body>")
    assert CHROMIUM is not None
    options = [
        "--headless",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--dump-dom",
    ]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [
            CHROMIUM,
            *options,
            "--virtual-time-budget=5000",
            f"--user-data-dir={tmp_path}/profile",
            f"file://{tmp_path}/phone.html",
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert re.findall(r'id="beyond-(\d+)"', done.stdout) == ["0"], done

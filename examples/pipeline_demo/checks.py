"""Read what the demo compares: sums over the lake's live files, and the report in a browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyarrow.dataset as ds

from pixy.pipeline.lake import Lake

from .processes import DemoError
from .traffic import Tally

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE = 120.0

PartitionSums = dict[int, tuple[int, int, int]]
"""Records, bytes and content checksum by partition."""


def partition_sums(lake: Lake, topic: str) -> PartitionSums:
    """Read a topic's sums from the lake's log."""
    return {
        partition: (stats.count, stats.bytes, stats.content_checksum)
        for partition, stats in lake.state().partition_stats(topic).items()
    }


def read(lake: Lake, topic: str) -> Tally:
    """Sum up the messages in the live files, as the clients did when they sent them."""
    tally = Tally()
    files = [lake.path(file.path) for file in lake.state().select(topic)]
    for batch in ds.dataset(files, format="parquet").to_batches(columns=["key", "value"]):
        for key, value in zip(*(batch.column(name).to_pylist() for name in ("key", "value")), strict=True):
            tally.add(key, value)
    return tally


def find_browser() -> str | None:
    """Find a browser that can open a page without a screen."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def open_report(report: Path, picture: Path, browser: str) -> tuple[str, int]:
    """Open the report in a browser and take a picture.

    Args:
        report: the HTML file.
        picture: the PNG file to write.
        browser: path of the browser.

    Returns:
        The verdict and the number of topics with charts.

    Raises:
        DemoError: the browser does not show a report.
    """
    with tempfile.TemporaryDirectory(prefix="pipeline-demo-") as profile:
        options = [
            browser,
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--window-size=1180,1500",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        page = subprocess.run(
            [*options, "--dump-dom", report.as_uri()],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        ).stdout
        subprocess.run(
            [*options, f"--screenshot={picture}", report.as_uri()],
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    verdict = re.search(r'<body data-verdict="(\w+)">', page)
    if verdict is None or not picture.is_file():
        raise DemoError(f"{browser} does not show {report} as a report")
    # A canvas is drawn by the page's script.
    topics = re.findall(r'<figure class="card topic".*?</figure>', page, re.S)
    return verdict[1], sum("<canvas" in topic for topic in topics)

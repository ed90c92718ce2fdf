"""The page for people: `/` leads browsers to it, it is served whole, and in a real browser it shows requests with the daemon's address."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import shutil
from pathlib import Path

import pytest

from pixy.api.openapi import page
from tests.integration.restv1.support import ask
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


async def test_the_root_leads_browsers_to_the_page_and_nobody_else(kafka: Cluster) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for path in ("/", "/rest/", "/rest"):
            led = await ask(daemon, "GET", path, accept=BROWSER)
            assert (led.status, led.headers["Location"], led.headers["Vary"]) == (302, "docs", "Accept")
        for accept in (
            None,
            "*/*",
            "application/json",
            "application/vnd.kafka.v2+json",
            "application/json, text/html",
        ):
            answer = await ask(daemon, "GET", "/", accept=accept)
            assert (answer.status, answer.json) == (200, {}), accept
        assert (await ask(daemon, "GET", "/clusters/default/", accept=BROWSER)).status == 200
        assert (await ask(daemon, "GET", "/", accept="image/png")).status == 406
        assert (await ask(daemon, "POST", "/", accept=BROWSER)).json == {}


async def test_the_viewer_is_served_to_any_client(kafka: Cluster) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for prefix in ("", "/rest"):
            shown = await ask(daemon, "GET", f"{prefix}/docs", accept=BROWSER)
            [source] = re.findall(rb'src="([^"]*)"', shown.body)
            plain = await ask(daemon, "GET", f"{prefix}/{source.decode()}", accept=None)
            assert plain.headers["Content-Type"].startswith("text/javascript")
            assert plain.body == gzip.decompress(page.packed_viewer())
        async with daemon.http.get(
            f"http://{daemon.engine.addresses['rest']}/docs/viewer.js", headers={"Accept-Encoding": "gzip"}
        ) as answer:
            assert (
                answer.headers["Content-Encoding"] == "gzip"
                and "immutable" in answer.headers["Cache-Control"]
            )
            assert int(answer.headers["Content-Length"]) < 1_500_000


@pytest.mark.skipif(CHROMIUM is None, reason="!!! /docs is not tested in a browser: chromium is missing !!!")
async def test_the_page_in_a_browser(kafka: Cluster, tmp_path: Path) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        address = daemon.engine.addresses["rest"]
        dom, log = await browse(f"http://{address}/", tmp_path)
        assert f"http://{address}" in re.sub(r"<[^>]*>", "", dom), (
            "curl commands name the daemon's own address"
        )
        assert "Write a message" in dom and "Test Request" in dom and "curl" in dom
        assert "InCluster" not in dom, "each request is shown once"
        assert "Content Security Policy" not in log, log


async def browse(url: str, folder: Path) -> tuple[str, str]:
    """Open an address in a headless browser; return the page's elements when it has settled, and the browser's log."""
    assert CHROMIUM is not None
    options = [
        "--headless",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ]
    options += ["--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--dump-dom"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *options,
        "--virtual-time-budget=10000",
        "--window-size=1400,3000",
        f"--user-data-dir={folder}",
        url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, log = await process.communicate()
    return out.decode(), log.decode(errors="replace")

"""Make the pictures of the console's pages: ``python -m tests.browser.screenshots [FOLDER]`` (docs/console by default).

Those of docs/console.md show the shop of examples/actors_console.py after half a minute, those of Kafka's views (docs/admin.md,
docs/tracing.md) a daemon on the sandbox with a client that acknowledges nothing. ``... FOLDER kafka`` makes the latter alone.
Look at them before you commit them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from actors.console import serve
from pixy.kafka.sandbox import Sandbox
from tests.browser.chromium import browser
from tests.browser.test_console import ROOT, example
from tests.support import make_config, serving

WARM_UP = 20.0
"""Seconds until the troubles are old enough to count as such."""

PICTURES = (
    ("actors", "actors", "light", 1400, 720, 3),
    ("waits", "waits", "dark", 1400, 720, 3),
    ("failures", "failures", "light", 1400, 720, 3),
    ("flow", "flow", "dark", 1400, 640, 12),
    ("tree", "tree?open=%5B%22%2Fshop%22%5D", "light", 1400, 640, 3),
    ("actor", "actor?path=%2Fshop%2Fpricing", "dark", 1400, 760, 40),
    ("phone", "waits", "light", 400, 780, 3),
)
"""File, address, theme, width and height in pixels, seconds to wait for data."""


async def main(folder: Path) -> None:
    """Take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    async with example().shop() as system, serve(system) as address, browser() as chromium:
        await asyncio.sleep(WARM_UP)
        for name, view, theme, width, height, wait in PICTURES:
            scheme: Any = theme
            context = await chromium.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page = await context.new_page()
            await page.goto(f"{address}#/{view}")
            await page.wait_for_timeout(wait * 1000)
            await page.screenshot(path=folder / f"{name}.png")
            await context.close()
            print(folder / f"{name}.png")


async def kafka(folder: Path) -> None:
    """Take the pictures of Kafka's views."""
    sandbox = Sandbox()
    config = make_config(sandbox.seed_peers, ack_timeout=600.0)
    config.admin_addr, config.admin_actions = "127.0.0.1:0", True
    async with serving(config) as daemon, browser() as chromium:
        for number in range(12):
            await daemon.produce(
                "orders", b'{"order": %d, "total": 19.90}' % number, b"customer-%d" % (number % 5)
            )
        for group in ("archive", "billing"):
            await asyncio.sleep(3.0)
            held = await daemon.consume("orders", group, no_ack=True)
        await asyncio.sleep(8.0)
        base = f"http://{daemon.engine.addresses['admin']}/console/#"
        page = await chromium.new_page(viewport={"width": 1400, "height": 640})
        name = page.get_by_label("Name of the group")
        await page.goto(f"{base}/group?cluster=default&group=billing")
        await page.locator(".view-group .tools").get_by_role("button", name="Pause", exact=True).first.click()
        await name.fill("billing")
        await name.press("Enter")
        await page.locator(".card", has_text="is paused by").wait_for()
        await page.get_by_role("button", name="Give back").click()
        await page.screenshot(path=folder / "group.png")
        await page.get_by_role("button", name="Cancel").click()
        place = f"topic=orders&partition={held.partition}&offset={held.offset}"
        await page.goto(f"{base}/trace?cluster=default&{place}")
        await page.get_by_role("list", name="Waterfall").wait_for()
        await page.screenshot(path=folder / "trace.png")
    del sandbox


if __name__ == "__main__":
    logging.disable()
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "console"
    if sys.argv[2:] != ["kafka"]:
        asyncio.run(main(where))
    asyncio.run(kafka(where))

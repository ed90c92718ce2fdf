"""Make the pictures of docs/console.md: ``python -m tests.browser.screenshots [FOLDER]`` (docs/console by default).

They show the shop of examples/actors_console.py after half a minute. Look at them before you commit them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from actors.console import serve
from tests.browser.chromium import browser
from tests.browser.test_console import ROOT, example

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


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "console"))

"""Headless Chromium for the tests: Debian's ``chromium`` or another one on PATH, driven by Playwright.

``python -m tests.browser.chromium`` installs it where root and apt-get are there; ``make dev`` calls this.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INSTALL_TIMEOUT = 600


def find() -> str:
    """Return the path of Chromium. Skip the test, or in CI fail it, if there is none."""
    path = _installed()
    if path is None:
        import pytest  # main() runs without it

        text = "NOT TESTED in a browser: no Chromium: `apt-get install chromium`, or `make dev` as root on Debian"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    return path


def _installed() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start Chromium with a new profile."""
    path = find()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=path, args=list(FLAGS), headless=True)
        try:
            yield found
        finally:
            await found.close()


def main() -> int:
    """Install Chromium if there is none; return 1 with a line that says why it could not be."""
    if path := _installed():
        print(path)
        return 0
    why = _install()
    if why:
        print(f"no Chromium, so the tests in a browser cannot run: {why}", file=sys.stderr)
    return 1 if why else 0


def _install() -> str:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return "install the package chromium (this needs root and apt-get)"
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"],
    ):
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{' '.join(command[:2])} took more than {INSTALL_TIMEOUT} s"
        if done.returncode:
            return (done.stderr.splitlines() or [f"{' '.join(command[:2])} failed"])[-1]
    return ""


if __name__ == "__main__":
    sys.exit(main())

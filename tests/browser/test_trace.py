"""The page of one message's life in headless Chromium, on a sandbox: found from what is out, by key, and typed in."""

from __future__ import annotations

from typing import Any

import pytest

from pixy.kafka.sandbox import Sandbox
from tests.browser.test_console import page, quiet
from tests.support import make_config, serving

__all__ = ["page", "quiet"]

pytestmark = pytest.mark.slow


async def test_a_message_is_traced_from_what_is_out_and_by_its_key(page: Any) -> None:
    sandbox = Sandbox()
    config = make_config(sandbox.seed_peers, ack_timeout=600.0)
    config.admin_addr = "127.0.0.1:0"
    async with serving(config) as daemon:
        odd = "<b>k\u202e"
        await daemon.produce("orders", b"v", odd.encode())
        held = await daemon.consume("orders", "billing", no_ack=True)
        name = f"orders/{held.partition}/{held.offset}"
        base = f"http://{daemon.engine.addresses['admin']}/console/"

        await page.goto(f"{base}#/group?cluster=default&group=billing")
        await page.get_by_role("link", name=name, exact=True).click()
        await page.get_by_role("heading", name=f"Message {name}").wait_for()
        facts = page.locator("dl.message")
        await facts.wait_for()
        assert "<b>k\u2039U+202E\u203a" in await facts.inner_text(), (
            "text is text, and what is hidden is shown"
        )
        happened = page.get_by_role("table", name="What happened")
        assert "offered" in await happened.inner_text() and "client 127.0.0.1" in await happened.inner_text()
        groups = page.get_by_role("table", name="Groups")
        assert "held" in await groups.inner_text()
        bars = page.get_by_role("list", name="Waterfall")
        assert "waits for a request" in await bars.inner_text()
        assert "client 127.0.0.1, attempt 1: has it now" in await bars.inner_text()
        unknown = page.get_by_role("table", name="Not known")
        assert "the journal is off (proxies.default.journal.topic)" in await unknown.inner_text()

        await page.get_by_label("Message", exact=True).fill("orders")
        await page.get_by_label("Key", exact=True).fill(odd)
        await page.get_by_role("button", name="Trace", exact=True).click()
        await page.get_by_role("link", name=name, exact=True).click()
        await page.get_by_role("heading", name=f"Message {name}").wait_for()
        await page.reload()  # a deep link
        await groups.get_by_role("link", name="billing").click()
        await page.get_by_role("heading", name="What is out").wait_for()

        await page.goto(f"{base}#/trace")
        await page.get_by_label("Message", exact=True).fill(f"orders/{held.partition}/77")
        await page.get_by_role("button", name="Trace", exact=True).click()
        await page.get_by_text("the log ends at offset").wait_for()

        await page.goto(f"{base}#/tail?topic=orders")
        messages = page.get_by_role("table", name="Messages")
        await messages.get_by_role("link", name=name, exact=True).wait_for()
        await daemon.produce("orders", b"<i>live</i>", b"k")
        await messages.get_by_text("<i>live</i>", exact=True).wait_for()
    del sandbox

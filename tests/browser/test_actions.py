"""An operator's buttons in headless Chromium, on a sandbox: shown where they are allowed, and each asks for the group's name."""

from __future__ import annotations

from typing import Any

import pytest

from pixy.kafka.sandbox import Sandbox
from tests.browser.test_console import page, quiet
from tests.support import make_config, serving

__all__ = ["page", "quiet"]

pytestmark = pytest.mark.slow


async def test_a_group_is_paused_and_a_message_given_back_by_buttons_that_ask_for_the_name(page: Any) -> None:
    sandbox = Sandbox()
    config = make_config(sandbox.seed_peers, ack_timeout=600.0)
    config.admin_addr = "127.0.0.1:0"
    async with serving(config) as daemon:
        await daemon.produce("orders", b"v", b"k")
        held = await daemon.consume("orders", "billing", no_ack=True)
        address = f"http://{daemon.engine.addresses['admin']}/console/#/group?cluster=default&group=billing"
        await page.goto(address)
        await page.get_by_role("table", name="Un-acked messages").locator("tbody tr").wait_for()
        assert await page.get_by_role("button", name="Pause", exact=True).count() == 1, "the page's own"
        config.admin_actions = True
        await page.reload()

        await page.locator(".view-group .tools").get_by_role("button", name="Pause", exact=True).first.click()
        dialog = page.get_by_role("dialog", name="Pause group billing")
        go = dialog.get_by_role("button", name="Pause", exact=True)
        await dialog.get_by_label("Name of the group").fill("billin")
        assert await go.is_disabled()
        await dialog.get_by_role("button", name="Cancel").click()
        await dialog.wait_for(state="detached")
        assert not list(daemon.engine.counters["default"].pauses)

        await page.locator(".view-group .tools").get_by_role("button", name="Pause", exact=True).first.click()
        await dialog.get_by_label("Name of the group").fill("billing")
        await dialog.get_by_label("Name of the group").press("Enter")
        await page.get_by_text("group billing is paused.", exact=True).wait_for()
        await page.locator(".card", has_text="is paused by 127.0.0.1").wait_for()
        await page.get_by_role("table", name="Partitions").get_by_text("paused", exact=True).first.wait_for()

        await page.get_by_role("button", name="Give back", exact=True).click()
        dialog = page.get_by_role("dialog", name=f"Give back orders/{held.partition}/{held.offset}")
        await dialog.get_by_label("Name of the group").fill("billing")
        await dialog.get_by_role("button", name="Give back", exact=True).click()
        await page.get_by_text("waits to be offered again").wait_for()
    del sandbox


async def test_an_actor_is_restarted_and_the_sampler_switched_by_buttons_that_ask_for_the_name(
    page: Any,
) -> None:
    sandbox = Sandbox()
    config = make_config(sandbox.seed_peers)
    config.admin_addr, config.admin_actions = "127.0.0.1:0", True
    async with serving(config) as daemon:
        base = f"http://{daemon.engine.addresses['admin']}/console/#"
        fetcher = daemon.engine.system.lookup("/service/default/fetcher")
        assert fetcher is not None and daemon.engine.diagnostics.sampling

        async with page.expect_response(lambda answer: "/actions?" in answer.url) as asked:
            await page.goto(f"{base}/actor?path=/service/default")
        await (await asked.value).finished()
        await page.evaluate("() => new Promise(requestAnimationFrame)")
        assert await page.get_by_role("button", name="Restart", exact=True).count() == 0, "not of its kind"

        await page.goto(f"{base}/actor?path=/service/default/fetcher")
        await page.get_by_role("button", name="Restart", exact=True).click()
        dialog = page.get_by_role("dialog", name="Restart /service/default/fetcher")
        typed, go = dialog.get_by_label("Name of the actor"), dialog.get_by_role("button", name="Restart")
        await typed.fill("/service/default/fetcher")
        assert await go.is_disabled()
        await typed.fill("fetcher")
        await typed.press("Enter")
        await page.get_by_text("It has been told to restart.", exact=True).wait_for()
        await page.locator("dt", has_text="Restarts").wait_for()
        assert fetcher.statistics().restarts == 1
        message = page.get_by_role("table", name="Messages").locator("td.message").first
        assert await message.evaluate("(cell) => getComputedStyle(cell).display") == "table-cell"

        await page.goto(f"{base}/failures")
        await page.get_by_text("The sampler of the event loop is on.", exact=True).wait_for()
        await page.get_by_role("button", name="Stop the sampler").click()
        typed = page.get_by_role("dialog", name="Stop the sampler").get_by_label("Name of the sampler")
        await typed.fill("sampler")
        await typed.press("Enter")
        await page.get_by_text("The sampler of the event loop is off.", exact=True).wait_for()
        assert not daemon.engine.diagnostics.sampling
        await page.get_by_role("button", name="Start the sampler").wait_for()
    del sandbox


async def test_the_menu_marks_the_view_that_a_hidden_one_belongs_to(page: Any) -> None:
    sandbox = Sandbox()
    config = make_config(sandbox.seed_peers)
    config.admin_addr = "127.0.0.1:0"
    async with serving(config) as daemon:
        base = f"http://{daemon.engine.addresses['admin']}/console/#"
        marked = page.locator("#menu a[aria-current]")
        for view, title in (
            ("group?cluster=default&group=billing", "Groups"),
            ("actor?path=/service", "Hot actors"),
            ("groups", "Groups"),
            ("trace", "Trace"),
        ):
            await page.goto(f"{base}/{view}")
            await marked.get_by_text(title, exact=True).wait_for()
            assert await marked.count() == 1, view
    del sandbox

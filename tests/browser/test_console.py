"""The console in headless Chromium: one session walks through all views of the example's shop, another meets bad names."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from actors import Actor, ActorSystem
from actors.console import Extension, View, serve
from tests.browser.chromium import browser

ROOT = Path(__file__).resolve().parents[2]
SOON = 20_000
"""Milliseconds within which something has to be on the page."""

pytestmark = pytest.mark.slow


def example() -> ModuleType:
    """Import the example program."""
    spec = importlib.util.spec_from_file_location("actors_console", ROOT / "examples/actors_console.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("actors").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("actors").setLevel(logging.NOTSET)


@pytest_asyncio.fixture
async def page() -> AsyncIterator[Any]:
    """A page that fails the test for any error in its console, such as a breach of its policy."""
    async with browser() as chromium:
        page = await chromium.new_page(viewport={"width": 1400, "height": 900})
        errors: list[str] = []
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_default_timeout(SOON)
        yield page
        # A server that has stopped first is no mistake of the page.
        errors = [error for error in errors if "ERR_CONNECTION_REFUSED" not in error]
        assert not errors, errors


async def test_all_views_of_a_shop_in_trouble(page: Any, tmp_path: Path) -> None:
    (tmp_path / "stock.js").write_text(
        "export default ({ root, h, watch }) => {\n"
        "  const shown = h('p', {}); root.append(shown);\n"
        "  watch('stock.shelves', { of: 'shop' }, (data) => { shown.textContent = `${data.count} shelves`; });\n};\n"
    )

    async def shelves(query: Any) -> Any:
        return {"count": len(system.find(f"/{query['of']}/shelf-*"))}

    stock = Extension(
        "stock",
        files=tmp_path,
        views=[View("stock", "Stock", "stock.js")],
        sources={"shelves": shelves},
        title="Shop",
    )
    async with example().shop() as system, serve(system, extensions=[stock]) as address:
        # Hot actors, sorted and filtered on the server.
        await page.goto(address)
        await page.locator("tbody tr").first.wait_for()
        assert await page.locator("tbody tr").count() == 50
        await page.get_by_role("button", name="Out/s").click()
        await page.wait_for_url("**/#/actors?sort=out")
        await page.keyboard.press("/")
        await page.keyboard.type("/shop/shelf-1?")
        await page.get_by_text("10 actors", exact=True).wait_for()
        assert "scope=" in page.url
        await page.reload()  # a deep link
        await page.get_by_text("10 actors", exact=True).wait_for()

        # The keyboard: a view by its number, a row by j and Enter.
        await page.locator("body").press("2")
        await page.get_by_role("heading", name="Who holds others up").wait_for()
        carrier = page.locator(".card", has_text="/shop/carrier")
        await carrier.get_by_text("waiter").wait_for()
        assert (
            "handles Ship since" in await carrier.inner_text()
            and "/shop/warehouse" in await carrier.inner_text()
        )
        circle = page.locator(".circle")
        assert "/manager-a" in await circle.inner_text() and "/manager-b" in await circle.inner_text()

        await page.locator("body").press("3")
        failure = page.locator(".card", has_text="OSError")
        await failure.wait_for()
        assert "in Ledger, on_receive, handling Book" in await failure.inner_text()
        await page.locator("tr", has_text="dead letter").get_by_role("link", name="/clerk").wait_for()
        assert "no space left" not in await page.locator("body").inner_text(), "errors' texts quote messages"

        await page.locator("body").press("4")
        shop = page.locator(".tree-row[data-path='/shop']")
        await shop.wait_for()
        assert await shop.get_attribute("aria-expanded") == "false"
        await shop.focus()
        await page.keyboard.press("ArrowRight")
        await page.locator(".tree-row[data-path='/shop/carrier']").wait_for()
        await page.get_by_text("166 more like these").wait_for()

        await page.locator("body").press("5")
        await page.locator(".edge", has_text="Desk → Pricing").wait_for(state="attached")
        assert system.hooks_in_use is not None
        await page.locator(".node", has_text="Ledger").click()
        await page.wait_for_url("**/#/flow?class=Ledger")

        # One actor, reached through a row.
        await page.goto(f"{address}#/actors?scope=pricing&sort=path&order=asc")
        await page.get_by_role("link", name="/shop/pricing").wait_for()
        await page.locator("body").press("j")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="/shop/pricing").wait_for()
        await page.get_by_text("last prices").wait_for()
        await page.locator("tr", has_text="/shop/desk-").first.wait_for()
        assert await page.locator("canvas").count() >= 4, "three plots and a heat map"

        # Pause ends the work of the server; resume begins it again.
        await page.locator("body").press("p")
        await page.get_by_text("paused", exact=True).wait_for()
        for _ in range(100):
            if system.hooks_in_use is None:
                break
            await page.wait_for_timeout(50)
        assert system.hooks_in_use is None
        await page.locator("body").press("p")
        await page.get_by_text("live", exact=True).wait_for()

        async with page.expect_download() as download:
            await page.locator("body").press("e")
        saved = json.loads(Path(await (await download.value).path()).read_text())
        assert saved["view"] == "actor" and saved["frames"]["actor"]["data"]["actor"]["class"] == "Pricing"

        # Light and dark.
        before = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.locator("body").press("t")
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != before

        # The extension's view, and a phone.
        await page.get_by_role("link", name="Stock").click()
        await page.get_by_text("200 shelves").wait_for()
        await page.set_viewport_size({"width": 400, "height": 800})
        for name in ("stock", "actors", "waits", "failures", "tree", "flow", "actor?path=/shop/pricing"):
            await page.goto(f"{address}#/{name}")
            await page.locator(".view > *").first.wait_for(state="attached")
            assert await page.evaluate("document.documentElement.scrollWidth") <= 400, name
            shown = await page.locator("#menu [aria-current]").evaluate(
                "(link) => [link.getBoundingClientRect().left, innerWidth - link.getBoundingClientRect().right]"
            )
            assert min(shown) >= 0, f"the menu hides the link of {name}"


class Hostile(Actor):
    def on_receive(self, message: Any) -> Any:
        raise ValueError("<script>alert(5)</script>")

    def console_state(self) -> Any:
        return {"<img src=x onerror=alert(6)>": "\u202e<b>\n"}


async def test_names_with_markup_and_control_characters_are_text(page: Any) -> None:
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    name = "<img src=x onerror=alert(1)>\u202egpj\n\x00'\"&amp;"
    async with ActorSystem("<b>shop</b>") as system:
        ref = system.spawn(Hostile, name=name)
        gone = system.spawn(Hostile, name=f"gone{name}")
        await gone.stop(block=False)
        async with serve(system, redact=str) as address:
            await page.goto(address)
            link = page.get_by_role("link", name="onerror=alert(1)")
            await link.wait_for()
            assert (
                (await link.inner_text())
                == "/<img src=x onerror=alert(1)>\u2039U+202E\u203agpj\u2039U+000A\u203a\u2039U+0000\u203a'\"&amp;"
            )
            await link.click()
            await page.get_by_role("heading", name="onerror=alert(1)").wait_for()
            await page.get_by_text("<img src=x onerror=alert(6)>").wait_for()
            gone.notify("<script>alert(2)</script>")
            ref.notify("x")
            for view in (
                "failures",
                "tree",
                "waits",
                "flow",
                f"tree?open={quote('<script>')}",
                "<script>alert(3)</script>",
            ):
                await page.goto(f"{address}#/{view}")
                await page.locator(".view > *").first.wait_for(state="attached")
                assert await page.locator("main img, main script, main b:has-text('shop')").count() <= 1
            await page.goto(f"{address}#/failures")
            gone.notify("<script>alert(2)</script>")
            await page.get_by_text("<script>alert(2)</script>").first.wait_for()
            assert "<b>shop</b>" in await page.title()
    assert not dialogs

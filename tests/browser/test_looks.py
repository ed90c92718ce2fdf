"""What a person sees: on a phone no column is squeezed and no name is cut; texts stand out from what is behind them, in both themes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from actors.console import serve
from tests.browser.test_console import example, page, quiet

__all__ = ["page", "quiet"]

pytestmark = pytest.mark.slow

READABLE = 4.5
"""The contrast that WCAG 2 asks for at level AA, of texts of usual size."""


def luminance(color: str) -> float:
    """The relative luminance of ``rgb(r, g, b)``, as WCAG 2 defines it."""
    parts = [int(each) / 255 for each in re.findall(r"\d+", color)[:3]]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return sum(share * each for share, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


async def test_a_phone_shows_whole_names_and_words(page: Any) -> None:
    await page.set_viewport_size({"width": 400, "height": 800})
    async with example().shop() as system, serve(system) as address:
        await page.goto(f"{address}#/failures")
        events = page.get_by_role("table", name="Events")
        await events.locator("tbody tr td.wrap").first.wait_for()
        widths = await events.locator("td.wrap:not(.path)").evaluate_all(
            "(cells) => cells.map((each) => each.clientWidth)"
        )
        assert min(widths) >= 160, "words are broken"

        await page.goto(f"{address}#/tree?open=%5B%22%2Fshop%22%5D")
        await page.locator(".badge", has_text="oldest waits").first.wait_for()
        cut = await page.locator(".tree-name .path").evaluate_all(
            "(names) => names.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"
        )
        assert cut == []


async def test_texts_have_contrast_in_both_themes(page: Any) -> None:
    async with example().shop() as system, serve(system) as address:
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # no colour is on its way
            await page.goto(f"{address}#/tree?open=%5B%22%2Fshop%22%5D")
            await page.locator("[data-path='/shop'] .faint").wait_for()
            colors = await page.evaluate(
                "() => Object.fromEntries(['.tree', 'body', '.tree-name .faint:not(:empty)', '.hint', '#menu a[aria-current]'].map((each) => {"
                " const style = getComputedStyle(document.querySelector(each)); return [each, [style.color, style.backgroundColor]]; }))"
            )
            on_panel, on_page = colors[".tree"][1], colors["body"][1]
            assert contrast(colors[".tree-name .faint:not(:empty)"][0], on_panel) >= READABLE, theme
            assert contrast(colors[".tree-name .faint:not(:empty)"][0], on_page) >= READABLE, theme
            assert contrast(colors[".hint"][0], on_page) >= READABLE, theme
            assert contrast(*colors["#menu a[aria-current]"]) >= READABLE, theme

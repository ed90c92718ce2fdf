"""The map names files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    ["docs/architecture.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs/packages").glob("*.md"))]
)
_CODE = re.compile(r"`([\w./-]+\.(?:py|yaml|proto))`")
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def folders(page: str) -> list[Path]:
    """The folders that a page's file names are relative to."""
    package = ROOT / "pixy" / Path(page).stem
    return [ROOT, package] if page.startswith("docs/packages/") else [ROOT, *(ROOT / "pixy").glob("**/")]


@pytest.mark.parametrize("page", PAGES)
def test_each_file_that_is_named_exists(page: str) -> None:
    named = set(_CODE.findall((ROOT / page).read_text()))
    assert named, "the page names no file"
    assert [
        name for name in sorted(named) if not any((folder / name).is_file() for folder in folders(page))
    ] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_link_leads_somewhere(page: str) -> None:
    broken = []
    for target, anchor in _LINK.findall((ROOT / page).read_text()):
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.exists():
            broken.append(target)
        elif anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            if anchor not in slugs:
                broken.append(f"{target}#{anchor}")
    assert broken == []


def test_every_package_has_a_page_one_click_away() -> None:
    table = (ROOT / "docs/architecture.md").read_text().split("## Rooms")[1].split("##")[0]
    packages = {path.parent.name for path in (ROOT / "pixy").glob("*/__init__.py")} - {"proto"}
    rows = {name: row for row in table.splitlines() for name in re.findall(r"^\| (.*?) \|", row)}
    missing = [
        package
        for package in sorted(packages)
        if not any(f"`pixy.{package}`" in name and "](" in row for name, row in rows.items())
    ]
    assert missing == []

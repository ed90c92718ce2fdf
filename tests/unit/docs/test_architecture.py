"""The map names files and headings that exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MAP = "docs/architecture.md"
RUNTIME = "docs/packages/actors.md"
PAGES = sorted([MAP, *(str(path.relative_to(ROOT)) for path in (ROOT / "docs/packages").glob("*.md"))])
_UNNAMED = {"__init__.py", "__main__.py"}
"""Files that every package may have; the page of their package speaks of them where they hold more than that."""
_CODE = re.compile(r"`([\w./-]+\.(?:py|yaml|proto))`")
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


@functools.cache
def folders(page: str) -> tuple[str, ...]:
    """The folders below the root that a page's file names are relative to; the root itself is empty."""
    if page == MAP:
        return "", *(f"{path.relative_to(ROOT)}/" for path in (ROOT / "pixy").glob("**/"))
    return "", "actors/" if page == RUNTIME else f"pixy/{Path(page).stem}/"


def page_of(module: str) -> str:
    """The page that has to name a module, given its path below the root."""
    package, folder, *rest = module.split("/")
    if package == "actors":
        return RUNTIME
    return f"docs/packages/{folder}.md" if rest else MAP


@pytest.mark.parametrize("page", PAGES)
def test_each_file_that_is_named_exists(page: str) -> None:
    named = set(_CODE.findall((ROOT / page).read_text()))
    assert named, "the page names no file"
    assert [
        name
        for name in sorted(named)
        if not any((ROOT / (folder + name)).is_file() for folder in folders(page))
    ] == []


def test_each_module_is_named_in_its_page() -> None:
    modules = {
        str(path.relative_to(ROOT))
        for package in ("actors", "pixy")
        for path in (ROOT / package).rglob("*.py")
        if path.name not in _UNNAMED
    }
    pages = {module: page_of(module) for module in modules if not module.startswith("pixy/proto/")}
    assert len(pages) > 500, "the modules are elsewhere"
    for page in PAGES:
        for name in _CODE.findall((ROOT / page).read_text()):
            for module in (folder + name for folder in folders(page)):
                if pages.get(module) == page:
                    del pages[module]
    assert not pages, "\n".join(f"{page} lacks {module}" for module, page in sorted(pages.items()))


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

"""MkDocs hooks: publish the repository's own pages, and the files that pages link to outside of docs/.

README.md becomes the home page, CONTRIBUTING.md and CHANGELOG.md become pages, and a link such as
``../examples/worker.py`` leads to a copy of that file in the site. So the same Markdown works on a
code host and in the site, and ``mkdocs build --strict`` checks every link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_OUTSIDE = "files"
_FENCE_OPTIONS = re.compile(r"^( *```\w+) .*$", re.MULTILINE)
"""Words behind a fence's language are for the tests; with them, the site's Markdown would not see a fence."""


def on_files(files: Files, config: Any) -> Files:
    """Add the repository's pages, and a copy of every file that a page links to."""
    for name, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    linked: set[str] = set()
    for file in files.documentation_pages():
        folder = _folder(file.src_uri)
        for match in _LINK.finditer(file.content_string):
            path = posixpath.normpath(posixpath.join(folder, match[1]))
            if not path.startswith("docs/") and path not in PAGES.values() and (ROOT / path).is_file():
                linked.add(path)
    for path in sorted(linked):
        files.append(File.generated(config, f"{_OUTSIDE}/{path}.txt", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite the links that leave docs/; a link to a folder stays as text."""
    here = page.file.src_uri
    folder = _folder(here)
    pages = {source: name for name, source in PAGES.items()}

    def rewrite(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        if path in pages:
            target = pages[path]
        elif path.startswith("docs/"):
            target = path.removeprefix("docs/")
        elif (ROOT / path).is_file():
            target = f"{_OUTSIDE}/{path}.txt"
        elif (ROOT / path).is_dir():
            return "#"
        else:
            return match[0]  # broken: mkdocs says so
        return posixpath.relpath(target, posixpath.dirname(here) or ".") + (match[2] or "")

    return _FENCE_OPTIONS.sub(r"\1", _LINK.sub(rewrite, markdown))


def _folder(uri: str) -> str:
    """The folder, from the repository's root, that links of a page are relative to."""
    return "" if uri in PAGES else posixpath.join("docs", posixpath.dirname(uri))

"""The console's extension point: more views, JSON sources, styles and links than those of the runtime.

An extension is data. Its views are ES modules that the browser loads from the extension's ``files``; its sources are
coroutine functions that return JSON. The console's own views are made the same way, so an extension can do what they
can: see docs/console.md, "Write a view".
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
"""Names of extensions, views and sources: they become parts of addresses."""

FILE = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*\Z")
"""Names of files below an extension's folder. No part begins with a dot."""

HREF = re.compile(r"(?:https?://|(?![^/?#]*:))[!-~]+\Z")
"""Addresses of links: of no scheme but http and https, so that none of them is a script."""

Query = Mapping[str, str]
"""The parameters of a request for JSON: as in an address, but each name once."""

Source = Callable[[Query], Awaitable[Any]]
"""A coroutine function that returns what ``json.dumps`` accepts. It runs on the loop of the console, must not block it, and has
:data:`actors.console.hub.SOURCE_TIMEOUT` seconds. While pages watch it, it is called once a second for each different
query, however many pages there are; unwatched, it is not called at all."""


class BadQuery(ValueError):
    """A source cannot use its query. The text, one line, is shown to the person."""


@dataclass(frozen=True, slots=True)
class View:
    """A view of the page, at the address ``#/name``.

    Args:
        name: for the address: lower-case letters, digits, dashes. It is unique in the page.
        title: for the menu and the heading.
        module: the ES module's file, relative to the extension's ``files``. Its default export is a function
            ``(context) => ...``; see docs/console.md.
        hint: a line below the title that says which question the view answers.
        hidden: not in the menu, only reached by links such as ``#/name?topic=orders``.
        parent: of a hidden view, the name of the one that the menu marks meanwhile; empty: none.
    """

    name: str
    title: str
    module: str
    hint: str = ""
    hidden: bool = False
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A link in the menu to another page, such as metrics.

    Args:
        title: for the menu.
        href: the address: absolute within the host (``/metrics``), relative to the console, or http(s).
    """

    title: str
    href: str


@dataclass(frozen=True, slots=True)
class Extension:
    """Views, sources, styles and links that belong together.

    Args:
        name: names the extension in addresses: its source ``lag`` is read at ``api/NAME.lag`` and watched in a view by
            ``context.watch("NAME.lag", query, callback)``.
        files: the folder of modules and styles, served at ``ext/NAME/``; None if there are none.
        views: for the menu, after the console's own.
        sources: by name.
        styles: style sheets in ``files``, loaded after the console's.
        links: for the menu's end.
        title: heads the views in the menu; the name by default.
        parts: additions to the headings of views, also of those that are not the extension's own: the ES module by the view's
            name. Its default export is called as a view's is, each time that the view is shown.

    Raises:
        ValueError: a name or a file's name has other characters than an address may have.
    """

    name: str
    files: Path | None = None
    views: Sequence[View] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    styles: Sequence[str] = ()
    links: Sequence[Link] = ()
    title: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parents = (view.parent for view in self.views if view.parent)
        for name in (self.name, *(view.name for view in self.views), *self.sources, *parents, *self.parts):
            if not NAME.match(name):
                raise ValueError(
                    f"{name!r} is no name for a part of the console: lower-case letters, digits, dashes"
                )
        for file in (*(view.module for view in self.views), *self.styles, *self.parts.values()):
            if not FILE.match(file) or self.files is None:
                raise ValueError(f"{file!r} is no file below the folder of the extension {self.name!r}")
        for link in self.links:
            if not HREF.match(link.href):
                raise ValueError(f"{link.href!r} is no link to a page")


__all__ = ["BadQuery", "Extension", "Link", "Query", "Source", "View"]

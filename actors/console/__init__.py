"""A debug console for any actor system: a web page that shows who waits, since when, and why.

``async with serve(system, port=8080) as address: ...`` gives it a port of its own,
``app.add_subapp("/console", application(system))`` mounts it in an aiohttp application. It needs ``aiohttp`` (the extra
``console``), so the runtime does not import it. While no page is open, it does nothing.

:class:`Extension` adds views, JSON sources and links; see docs/console.md.
"""

from __future__ import annotations

from actors.console.app import application, serve
from actors.console.extension import BadQuery, Extension, Link, Query, Source, View

__all__ = ["BadQuery", "Extension", "Link", "Query", "Source", "View", "application", "serve"]

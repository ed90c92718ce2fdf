"""``/``: a page with links to what the admin listener has."""

from __future__ import annotations

import html
from typing import Final

from aiohttp import web

PATHS: Final = (
    ("console/", "the page: findings, groups, un-acked messages, actors"),
    ("findings", "causes of trouble, as JSON"),
    ("metrics", "for Prometheus or OpenMetrics"),
    ("livez", "whether the event loop turns"),
    ("readyz", "whether the daemon can serve, with reasons"),
    ("actions", "what an operator may do; off without admin_actions"),
    ("debug/actors", "all actors"),
    ("debug/dump", "actors, who waits for whom, and failures, as text"),
    ("debug/tasks", "tasks of the event loop, with their stacks"),
    ("debug/threads", "threads, with their stacks"),
    ("debug/profile", "a flame graph"),
    ("debug/heap", "the lines that allocated most"),
    ("debug/log", "levels of loggers"),
)
"""Those that need no parameters. The links are relative, because a proxy may serve this under another path."""
WORKER_PATHS: Final = (("workers", "the workers, and links by number: workers/1/"), *PATHS)
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Kafka-Pixy</title>
<h1>Kafka-Pixy: admin listener</h1>
<ul>
{rows}
</ul>
<p>/trace and /tail take parameters, and /mcp is for assistants: see docs/admin.md.</p>
</html>
"""


def page(paths: tuple[tuple[str, str], ...]) -> web.Response:
    """Answer with links.

    Args:
        paths: each with what it has.
    """
    rows = "\n".join(f'<li><a href="{path}">/{path}</a>: {html.escape(what)}</li>' for path, what in paths)
    return web.Response(text=_PAGE.format(rows=rows), content_type="text/html", charset="utf-8")


__all__ = ["PATHS", "WORKER_PATHS", "page"]

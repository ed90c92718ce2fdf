"""The console as an aiohttp application: to mount in another one, or on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from actors.console.extension import BadQuery, Extension
from actors.console.hub import INTERVAL, Hub, TooMany, Turn, next_turn
from actors.console.page_files import FOLDER, HEADERS, serve_file
from actors.console.sources import BuiltIn
from actors.console.stream import Allowed, query_of, stream
from actors.tracing.protocol import Redact, type_name

if TYPE_CHECKING:
    from actors._system import ActorSystem
    from actors.tracing.crashes import Crashes

HUB: web.AppKey[Hub] = web.AppKey("actors.console.hub", Hub)
"""Where an application keeps its hub."""


def application(
    system: ActorSystem,
    *,
    extensions: Sequence[Extension] = (),
    title: str | None = None,
    redact: Redact = type_name,
    crashes: Crashes | None = None,
    hosts: Collection[str] | None = None,
    interval: float = INTERVAL,
    turn: Turn = next_turn,
    allowed: Allowed = lambda _request: True,
) -> web.Application:
    """Make the console of a system: ``app.add_subapp("/console", application(system))``.

    It has to be served by the loop of the system. It only reads. It asks for no password: whoever reaches it sees the names
    of actors and the types of messages, so mount it behind the identity and the rights of your own application.

    Args:
        system: the system to show.
        extensions: more views, sources and links.
        title: names the system in the page; by default the system's name.
        redact: maps a message or an error to the text that is shown; by default its type's name.
        crashes: the failures to show, if the program collects them already; by default the console collects them from
            its start on.
        hosts: names in the ``Host`` header that are served, without ports; None serves all. It keeps a page that has
            its own name resolve to this host (DNS rebinding) from reading.
        interval: seconds between two frames of a watched topic.
        turn: waits until others have had their turn of the loop; called before a topic is read and before a message of a
            page is handled. By default the loop turns once.
        allowed: tells whether the page whose stream began with a request may still look; called before frames are sent.

    Raises:
        ValueError: two extensions or views have the same name.
    """
    built_in = BuiltIn(system, redact=redact, crashes=crashes, interval=interval)
    sources = dict(built_in.sources)
    _check_names(extensions)
    for extension in extensions:
        sources.update({f"{extension.name}.{name}": each for name, each in extension.sources.items()})
    hub = Hub(
        sources, activities=built_in.activities, on_watched=built_in.watched, interval=interval, turn=turn
    )
    built_in.late = lambda: hub.late
    pages = _Pages(hub, extensions, title or system.name, allowed)
    app = web.Application(middlewares=[_guard(hosts)])
    app[HUB] = hub
    app.router.add_get("/", pages.index)
    app.router.add_get("", pages.redirect)
    app.router.add_get("/boot.json", pages.boot)
    app.router.add_get("/stream", pages.stream)
    app.router.add_get("/api/{source}", pages.read)
    app.router.add_get("/page/{file:.+}", pages.own_file)
    app.router.add_get("/ext/{extension}/{file:.+}", pages.extension_file)

    async def start(_app: web.Application) -> None:
        if asyncio.get_running_loop() is not system.loop:
            raise RuntimeError(
                f"the console of the system {system.name!r} has to run on the system's own loop"
            )
        built_in.start()

    async def shutdown(_app: web.Application) -> None:
        hub.close()

    async def cleanup(_app: web.Application) -> None:
        built_in.stop()

    app.on_startup.append(start)
    app.on_shutdown.append(shutdown)
    app.on_cleanup.append(cleanup)
    return app


@contextlib.asynccontextmanager
async def serve(
    system: ActorSystem,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    extensions: Sequence[Extension] = (),
    title: str | None = None,
    redact: Redact = type_name,
    crashes: Crashes | None = None,
    hosts: Collection[str] | None = None,
) -> AsyncIterator[str]:
    """Serve the console on a port of its own for a block: ``async with serve(system, port=8080) as address: ...``.

    Args:
        system: the system to show.
        host: the address to listen on. Whoever reaches it sees the console: there is no password.
        port: the port; 0 takes a free one.
        extensions: see :func:`application`, as for the others.
        title: names the system in the page.
        redact: maps a message or an error to the text that is shown.
        crashes: the failures to show.
        hosts: names in the ``Host`` header that are served; by default, on a loopback address, only names of it.

    Yields:
        the page's address, such as ``http://127.0.0.1:8080/``.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """
    if hosts is None and _is_loopback(host):
        hosts = {host.lower(), "localhost", "127.0.0.1", "::1"}
    app = application(system, extensions=extensions, title=title, redact=redact, crashes=crashes, hosts=hosts)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound = runner.addresses[0]
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        yield f"http://{name}:{bound[1]}/"
    finally:
        await runner.cleanup()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_names(extensions: Sequence[Extension]) -> None:
    names = [each.name for each in extensions]
    views = [*BuiltIn.VIEWS, *(view.name for each in extensions for view in each.views)]
    for kind, found in (("extensions", names), ("views", views)):
        twice = {name for name in found if found.count(name) > 1}
        if twice:
            raise ValueError(f"two {kind} of the console are named {', '.join(sorted(twice))}")


def _guard(hosts: Collection[str] | None) -> Middleware:
    """Refuse other hosts' names, and pages of other origins."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        name = urlsplit(f"//{request.host}").hostname or ""
        if hosts is not None and name not in hosts:
            raise web.HTTPForbidden(text="this host name is not served\n", headers=HEADERS)
        # A WebSocket is not bound by the same-origin policy, so look: any page may open one.
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="pages of another origin are not served\n", headers=HEADERS)
        return await handler(request)

    return guard


class _Pages:
    """The handlers of the requests."""

    def __init__(self, hub: Hub, extensions: Sequence[Extension], title: str, allowed: Allowed) -> None:
        self._hub = hub
        self._allowed = allowed
        self._files = {each.name: each.files for each in extensions}
        self._boot = {
            "title": title,
            "extensions": [
                {
                    "name": each.name,
                    "title": each.title or each.name,
                    "views": [
                        {
                            "name": view.name,
                            "title": view.title,
                            "hint": view.hint,
                            "hidden": view.hidden,
                            "parent": view.parent,
                            "module": f"ext/{each.name}/{view.module}",
                        }
                        for view in each.views
                    ],
                    "styles": [f"ext/{each.name}/{style}" for style in each.styles],
                    "links": [{"title": link.title, "href": link.href} for link in each.links],
                    "parts": [
                        {"view": view, "module": f"ext/{each.name}/{module}"}
                        for view, module in each.parts.items()
                    ],
                }
                for each in extensions
            ],
        }

    async def redirect(self, request: web.Request) -> web.StreamResponse:
        """Send ``/console`` to ``/console/``: the page's addresses are relative."""
        raise web.HTTPPermanentRedirect(request.path.rpartition("/")[2] + "/")

    async def index(self, request: web.Request) -> web.StreamResponse:
        """Answer with the page."""
        return serve_file(request, FOLDER, "index.html")

    async def own_file(self, request: web.Request) -> web.StreamResponse:
        """Answer with a file of the console's."""
        return serve_file(request, FOLDER, request.match_info["file"])

    async def extension_file(self, request: web.Request) -> web.StreamResponse:
        """Answer with a file of an extension's."""
        folder = self._files.get(request.match_info["extension"])
        if folder is None:
            raise web.HTTPNotFound(text="there is no such extension\n", headers=HEADERS)
        return serve_file(request, folder, request.match_info["file"])

    async def boot(self, _request: web.Request) -> web.StreamResponse:
        """Answer with the title and the extensions."""
        return web.json_response(self._boot, headers={**HEADERS, "Cache-Control": "no-store"})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Serve the page's WebSocket."""
        return await stream(request, self._hub, self._allowed)

    async def read(self, request: web.Request) -> web.StreamResponse:
        """Answer with what a source says now."""
        headers = {**HEADERS, "Cache-Control": "no-store"}
        try:
            text = await self._hub.read(request.match_info["source"], query_of(request.query))
        except BadQuery as wrong:
            raise web.HTTPNotFound(text=f"{wrong}\n", headers=HEADERS) from None
        except TooMany as full:
            raise web.HTTPServiceUnavailable(text=f"{full}\n", headers=HEADERS) from None
        return web.Response(text=text, content_type="application/json", headers=headers)


__all__ = ["HUB", "application", "serve"]

"""Serve the views over HTTP: JSON for scripts, metrics for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from actors import Actor, ActorDeadError, ActorError, ActorRef, Request, Timeout, handles
from pixy.errors import StartError, reason_of
from pixy.escaping import json_text
from pixy.tap.config import Address, show_address
from pixy.tap.messages import GetView, ViewName
from pixy.tap.supervisor import Tap

_TIMEOUT: Final = 10.0
_GRACE: Final = 0.5
PATHS: Final[dict[str, ViewName]] = {
    "/groups": "snapshot",
    "/timeline": "timeline",
    "/clients": "clients",
    "/connections": "connections",
    "/topics": "topics",
    "/latency": "latency",
    "/talkers": "talkers",
    "/errors": "errors",
    "/slow": "slow",
    "/findings": "findings",
}
"""Views by path; ``/groups/NAME`` and ``/timeline?group=NAME`` show one group."""


@dataclass(frozen=True, slots=True)
class Bind(Request[Address]):
    """To the HTTP view: start to serve. The reply is the address, or a StartError."""


class HttpView(Actor):
    """Answer GET requests with views that the observer makes."""

    def __init__(self, address: Address, tap: ActorRef[Tap]) -> None:
        super().__init__()
        self._address, self._tap = address, tap
        self._runner: web.AppRunner | None = None

    @handles(Bind)
    async def _bind(self, _: Bind) -> Address:
        app = web.Application()
        app.router.add_get("/", self._index)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/groups/{group:.+}", self._group)
        for path in PATHS:
            app.router.add_get(path, self._view)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GRACE)
        await self._runner.setup()
        site = web.TCPSite(self._runner, *self._address)
        try:
            await site.start()
        except OSError as error:
            raise StartError(f"cannot listen on {show_address(self._address)}: {reason_of(error)}") from error
        host, port = self._runner.addresses[0][:2]
        return host, port

    async def on_stop(self) -> None:  # type: ignore[override]
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _ask(self, view: ViewName, group: str | None = None) -> Any:
        try:
            return await self._tap.ask(GetView(view, group), block=False, timeout=_TIMEOUT)
        except (ActorDeadError, ActorError, Timeout) as error:
            raise web.HTTPServiceUnavailable(text=f"the tap is behind or stopping: {error}\n")

    async def _index(self, _: web.Request) -> web.Response:
        return _json({"views": ["/metrics", "/healthz", "/groups/<name>", *PATHS]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await self._ask("metrics")
        return web.Response(
            body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _view(self, request: web.Request) -> web.Response:
        return _json(await self._ask(PATHS[request.path], request.query.get("group")))

    async def _group(self, request: web.Request) -> web.Response:
        found = await self._ask("snapshot", request.match_info["group"])
        if not found["groups"]:
            raise web.HTTPNotFound(text=f"no traffic of group {request.match_info['group']!r} was seen\n")
        return _json(found["groups"][0])


def _json(document: Any) -> web.Response:
    return web.Response(text=json_text(document, allow_nan=False) + "\n", content_type="application/json")


__all__ = ["PATHS", "Bind", "HttpView"]

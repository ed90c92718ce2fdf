"""The admin listener's way to one of several workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from pixy.api.admin.workers import WorkersAdmin
from pixy.api.siblings import ADMIN, Sibling, WorkerSockets
from pixy.engine.workers import Worker


async def test_a_worker_is_asked_for_the_path_whose_right_was_checked(tmp_path: Path) -> None:
    """``/workers/1//x/debug/profile`` became ``/debug/profile``: for a caller who may look, and not use what costs much."""
    heard: list[str] = []

    async def worker(request: web.Request) -> web.Response:
        heard.append(request.raw_path)
        return web.Response()

    inner = web.Application()
    inner.router.add_route("*", "/{path:.*}", worker)
    runner = web.AppRunner(inner)
    await runner.setup()
    path = str(tmp_path / "w")
    await web.UnixSite(runner, path + ADMIN).start()
    sockets = WorkerSockets(Worker(1, 1, str(tmp_path), "secret"), path)
    sockets.update([Sibling(1, 1, path)])
    turn: Any = None
    admin = WorkersAdmin(sockets, turn, lambda _request: True)
    outer = web.Application()
    outer.add_routes(admin.routes())
    async with TestClient(TestServer(outer)) as client:
        statuses = {}
        for asked in ("/debug/tasks?n=1", "//x/debug/profile", "/%2Fx/debug/profile", "/debug/pro%66ile"):
            url = URL(f"http://{client.host}:{client.port}/workers/1{asked}", encoded=True)
            async with client.session.get(url) as answer:
                statuses[asked] = answer.status
    await admin.close()
    await runner.cleanup()
    assert statuses["//x/debug/profile"] == 404
    assert heard == ["/debug/tasks?n=1", "/%2Fx/debug/profile", "/debug/pro%66ile"]

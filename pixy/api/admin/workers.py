"""The admin listener of a daemon with workers: what all of them say, and each of them by its number.

=============================  ================================================================================
``/metrics``                   those of all workers, with the label ``worker``
``/readyz``, ``/findings``     of all workers
``/livez``, ``/trace``         of the worker that gets the request
``/workers``                   who there is, as JSON
``/mcp``                       says which address to use instead: ``/workers/N/mcp``
``/workers/N/...``             the admin listener of worker N: ``/workers/2/console/``, ``/workers/2/debug/tasks``
``/console/``                  links to the consoles of all workers
``/console/...``, ``/debug/``  of the first worker
=============================  ================================================================================
"""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from pixy.api.admin import merging
from pixy.api.admin.access import error
from pixy.api.siblings import ADMIN, Sibling, WorkerSockets

logger = logging.getLogger("pixy.api")

_TIMEOUT: Final = 10.0
"""Seconds that a worker may take for one of the answers that are merged."""
_KEPT: Final = frozenset(
    {
        "content-type",
        "cache-control",
        "location",
        "content-security-policy",
        "etag",
        "last-modified",
        "referrer-policy",
        "x-content-type-options",
        "x-frame-options",
        "content-encoding",
    }
)
"""Headers of a worker's answer that its client gets."""


class WorkersAdmin:
    """Answers for all workers.

    Args:
        sockets: connections to them; this one is asked as the others are.
    """

    def __init__(self, sockets: WorkerSockets) -> None:
        self._sockets = sockets
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/", self._index),
            web.get("/metrics", self._metrics),
            web.get("/livez", self._livez),
            web.get("/readyz", self._readyz),
            web.get("/findings", self._findings),
            web.get("/workers", self._list),
            web.route("*", "/mcp", self._no_mcp),
            web.get("/console", self._to_console),
            web.get("/console/", self._consoles),
            web.route("*", r"/workers/{number:[0-9]+}{path:/(?!/).*}", self._one),
            # What `kafka-pixy top` and earlier links ask for, always of the same worker.
            web.route("*", "/console/{path:.+}", self._first),
            web.route("*", "/debug/{path:.*}", self._first),
        ]

    # -- all of them --------------------------------------------------------------------------------

    async def _all(self, path: str, accept: str = "") -> dict[int, tuple[int, bytes, str]]:
        """Ask all workers that serve; return status, body and content type by number."""
        asked = [each for each in self._sockets.everybody if not each.retiring]
        answers = await asyncio.gather(*(self._get(each, path, accept) for each in asked))
        return {
            each.number: answer for each, answer in zip(asked, answers, strict=True) if answer is not None
        }

    async def _get(self, worker: Sibling, path: str, accept: str) -> tuple[int, bytes, str] | None:
        try:
            async with (
                asyncio.timeout(_TIMEOUT),
                self._session(worker).get(f"http://worker{path}", headers={"Accept": accept}) as answer,
            ):
                return answer.status, await answer.read(), answer.headers.get("Content-Type", "")
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            logger.info("worker %d does not answer %s: %s", worker.number, path, problem)
            return None

    async def _documents(self, path: str) -> dict[int, Mapping[str, Any]]:
        answers = await self._all(path)
        return {number: merging.parsed(body) for number, (_, body, _) in answers.items()}

    async def _index(self, _request: web.Request) -> web.Response:
        """List what there is."""
        return web.Response(text=__doc__ or "")

    async def _metrics(self, request: web.Request) -> web.Response:
        answers = await self._all("/metrics", request.headers.get("Accept", ""))
        if not answers:
            return error(503, "no worker answers")
        kind = next(iter(answers.values()))[2]
        text = merging.merge_metrics({number: body.decode() for number, (_, body, _) in answers.items()})
        return web.Response(body=text.encode(), headers={"Content-Type": kind})

    async def _livez(self, request: web.Request) -> web.StreamResponse:
        return await self._own(request)

    async def _readyz(self, _request: web.Request) -> web.Response:
        found = merging.merge_readiness(await self._documents("/readyz"), self._sockets.worker.count)
        return web.json_response(found, status=200 if found["ready"] else 503)

    async def _findings(self, _request: web.Request) -> web.Response:
        return web.json_response(merging.merge_findings(await self._documents("/findings")))

    # -- one of them --------------------------------------------------------------------------------

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "workers": [
                    {"worker": each.number, "pid": each.process, "retiring": each.retiring}
                    for each in self._sockets.everybody
                ]
            }
        )

    async def _no_mcp(self, _request: web.Request) -> web.Response:
        return error(
            404, "this daemon has workers, each with groups of its own: use /workers/1/mcp and so on"
        )

    async def _to_console(self, _request: web.Request) -> web.Response:
        raise web.HTTPFound("/console/")

    async def _consoles(self, _request: web.Request) -> web.Response:
        rows = "".join(
            f'<li><a href="../workers/{each.number}/console/">worker {each.number}</a>, process {each.process}'
            for each in sorted(self._sockets.everybody, key=lambda each: each.number)
            if not each.retiring
        )
        title = html.escape("Kafka-Pixy: the consoles of its workers")
        text = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><h1>{title}</h1><ul>{rows}</ul></html>'
        return web.Response(text=text, content_type="text/html")

    async def _own(self, request: web.Request) -> web.StreamResponse:
        own = next((each for each in self._sockets.everybody if each.path == self._sockets.path), None)
        if own is None:
            return error(503, "the worker is about to serve")
        return await self._pass(request, own, request.rel_url.raw_path_qs)

    async def _first(self, request: web.Request) -> web.StreamResponse:
        serving = [each for each in self._sockets.everybody if not each.retiring]
        if not serving:
            return error(503, "no worker serves")
        return await self._pass(
            request, min(serving, key=lambda each: each.number), request.rel_url.raw_path_qs
        )

    async def _one(self, request: web.Request) -> web.StreamResponse:
        number = int(request.match_info["number"])
        worker = self._sockets.current(number)
        if worker is None:
            known = 1 <= number <= self._sockets.worker.count
            return (
                error(503, f"worker {number} is starting again")
                if known
                else error(404, f"there is no worker {number}")
            )
        path = request.rel_url.raw_path_qs.removeprefix(f"/workers/{request.match_info['number']}")
        return await self._pass(request, worker, path)

    async def _pass(self, request: web.Request, worker: Sibling, target: str) -> web.StreamResponse:
        """Let a worker answer, also with a stream that does not end.

        Args:
            target: path and query, as they were sent: rights were checked for them, so nothing may read them otherwise.
        """
        body = await request.read()
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() in ("accept", "content-type", "last-event-id", "if-none-match")
            or name.lower().startswith("mcp-")
        }
        response: web.StreamResponse | None = None
        try:
            async with self._session(worker).request(
                request.method,
                URL(f"http://worker{target}", encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
            ) as answer:
                kept = CIMultiDict(
                    (name, value) for name, value in answer.headers.items() if name.lower() in _KEPT
                )
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, TimeoutError) as problem:
            if response is not None and response.prepared:
                raise ConnectionError(f"worker {worker.number}: {problem}") from problem
            return error(503, f"worker {worker.number} does not answer")

    def _session(self, worker: Sibling) -> aiohttp.ClientSession:
        session = self._sessions.get(worker.path)
        if session is None:
            known = {each.path for each in self._sockets.everybody}
            for path in [path for path in self._sessions if path not in known]:
                self._closing = asyncio.ensure_future(self._sessions.pop(path).close())
            session = self._sessions[worker.path] = aiohttp.ClientSession(
                auto_decompress=False,
                connector=aiohttp.UnixConnector(worker.path + ADMIN, limit=0),
                timeout=aiohttp.ClientTimeout(total=None, connect=_TIMEOUT),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return session

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()


__all__ = ["WorkersAdmin"]

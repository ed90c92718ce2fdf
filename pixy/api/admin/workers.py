"""The admin listener of a daemon with workers: what all of them say, and each of them by its number.

=============================  ================================================================================
``/metrics``                   those of all workers, with the label ``worker``
``/readyz``, ``/findings``     of all workers
``/livez``                      of the worker that gets the request, as ``/trace`` and ``/tail`` are
``/actions/...``               done by all workers, also where the path names one
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
import json
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from prometheus_client.exposition import choose_encoder
from yarl import URL

from pixy.api.admin import hop, merging
from pixy.api.admin.access import REASONS, error
from pixy.api.admin.index import WORKER_PATHS, page
from pixy.api.admin.shared_answers import SharedAnswers
from pixy.api.siblings import ADMIN, PROVING_HEADER, Sibling, WorkerSockets

logger = logging.getLogger("pixy.api")

_TIMEOUT: Final = 10.0
"""Seconds that a worker may take for one of the answers that are merged."""
_ACTING: Final = 30.0
"""Seconds that a worker may take for an action: a member that leaves waits for acks and its last commit."""
READY: Final = 1.0
"""Seconds that a worker may take to say whether it is ready; one that takes longer is not."""
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
        "retry-after",
    }
)
"""Headers of a worker's answer that its client gets."""


class WorkersAdmin:
    """Answers for all workers.

    Args:
        sockets: connections to them; this one is asked as the others are.
        turn: waits for the turn of a message of the console's page.
        allowed: tells whether the page whose stream began with a request may still look.
    """

    def __init__(
        self,
        sockets: WorkerSockets,
        turn: Callable[[], Awaitable[object]],
        allowed: Callable[[web.Request], bool],
    ) -> None:
        self._sockets = sockets
        self._turn = turn
        self._allowed = allowed
        self._shared = SharedAnswers()
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
            web.get("/actions", self._first),
            web.post(r"/actions/{path:[a-z-]+}", self._act),
            web.post(r"/workers/{number:[0-9]+}/actions/{path:[a-z-]+}", self._act),
            web.get("/console", self._to_console),
            web.get("/console/", self._consoles),
            web.route("*", r"/workers/{number:[0-9]+}{path:/(?!/).*}", self._one),
            # What `kafka-pixy top` and earlier links ask for, always of the same worker.
            web.route("*", "/console/{path:.+}", self._first),
            web.route("*", "/debug/{path:.*}", self._first),
        ]

    # -- all of them --------------------------------------------------------------------------------

    async def _all(
        self, path: str, accept: str = "", within: float = _TIMEOUT
    ) -> tuple[dict[int, tuple[int, bytes, str]], list[int]]:
        """Ask all workers that serve.

        Args:
            path: what for.
            accept: the header.
            within: seconds that they may take.

        Returns:
            status, body and content type by number, and the numbers of those that do not answer in time.
        """
        asked = [each for each in self._sockets.everybody if not each.retiring]
        answers = await asyncio.gather(*(self._get(each, path, accept, within) for each in asked))
        pairs = [(each.number, answer) for each, answer in zip(asked, answers, strict=True)]
        late = [number for number, answer in pairs if isinstance(answer, TimeoutError)]
        return {number: answer for number, answer in pairs if isinstance(answer, tuple)}, late

    async def _get(
        self, worker: Sibling, path: str, accept: str, within: float
    ) -> tuple[int, bytes, str] | TimeoutError | None:
        """Ask a worker; return None if it has gone."""
        try:
            async with (
                asyncio.timeout(within),
                self._session(worker).get(
                    f"http://worker{path}",
                    headers={"Accept": accept, PROVING_HEADER: self._sockets.worker.secret},
                ) as answer,
            ):
                return answer.status, await answer.read(), answer.headers.get("Content-Type", "")
        except TimeoutError as problem:
            logger.warning("worker %d does not answer %s within %g s", worker.number, path, within)
            return problem
        except (aiohttp.ClientError, OSError) as problem:
            logger.info("worker %d does not answer %s: %s", worker.number, path, problem)
            return None

    async def _index(self, _request: web.Request) -> web.Response:
        """List what there is."""
        return page(WORKER_PATHS)

    async def _metrics(self, request: web.Request) -> web.Response:
        _, kind = choose_encoder(request.headers.get("Accept", ""))  # of which there are few
        return await self._merged(("/metrics", kind), lambda: self._merge_metrics(kind))

    async def _merge_metrics(self, kind: str) -> tuple[int, bytes, str]:
        answers, _ = await self._all("/metrics", kind)
        if not answers:
            return 503, b'{"error": "no worker answers"}', "application/json"
        text = merging.merge_metrics({number: body.decode() for number, (_, body, _) in answers.items()})
        return 200, text.encode(), kind

    async def _merged(
        self, key: Hashable, merge: Callable[[], Awaitable[tuple[int, bytes, str]]]
    ) -> web.Response:
        """Answer what is merged once for all who ask at the same time."""
        status, body, kind = await self._shared.get(key, merge)
        return web.Response(status=status, body=body, headers={"Content-Type": kind})

    async def _livez(self, request: web.Request) -> web.StreamResponse:
        return await self._own(request)

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = request.get(REASONS, False)
        return await self._merged(("/readyz", reasons), lambda: self._merge_readiness(reasons))

    async def _merge_readiness(self, reasons: bool) -> tuple[int, bytes, str]:
        answers, late = await self._all("/readyz", within=READY)
        documents = {number: merging.parsed(body) for number, (_, body, _) in answers.items()}
        found = merging.merge_readiness(documents, self._sockets.worker.count, late, READY)
        if not reasons:
            found = {"ready": found["ready"]}
        return 200 if found["ready"] else 503, json.dumps(found).encode(), "application/json"

    async def _findings(self, _request: web.Request) -> web.Response:
        return await self._merged("/findings", self._merge_findings)

    async def _merge_findings(self) -> tuple[int, bytes, str]:
        answers, _ = await self._all("/findings")
        documents = {number: merging.parsed(body) for number, (_, body, _) in answers.items()}
        return 200, json.dumps(merging.merge_findings(documents)).encode(), "application/json"

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

    async def _act(self, request: web.Request) -> web.Response:
        """Have all workers do what an operator wants: a group has a member in each that has had a request for it."""
        target = f"/actions/{request.match_info['path']}?{request.rel_url.raw_query_string}"
        headers = hop.headers_of(request, self._sockets.worker.secret)
        asked = [each for each in self._sockets.everybody if not each.retiring]
        answers = await asyncio.gather(*(self._post(each, target, headers) for each in asked))
        done = {each.number: answer for each, answer in zip(asked, answers, strict=True)}
        status, document = merging.merge_actions(request.match_info["path"], done)
        return web.json_response(document, status=status)

    async def _post(
        self, worker: Sibling, target: str, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        try:
            async with (
                asyncio.timeout(_ACTING),
                self._session(worker).post(
                    URL(f"http://worker{target}", encoded=True), headers=headers
                ) as answer,
            ):
                return answer.status, merging.parsed(await answer.read())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as problem:
            logger.warning("worker %d does not answer %s: %s", worker.number, target, problem)
            return 503, {"error": f"worker {worker.number} does not answer: it may have done it"}

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
        headers = hop.headers_of(request, self._sockets.worker.secret)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._pass_stream(request, worker, target, headers)
        body = await request.read()
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

    async def _pass_stream(
        self, request: web.Request, worker: Sibling, target: str, headers: dict[str, str]
    ) -> web.StreamResponse:
        url = URL(f"http://worker{target}", encoded=True)
        try:
            async with self._session(worker).ws_connect(url, headers=headers, max_msg_size=0) as inner:
                return await hop.pass_stream(request, inner, self._turn, self._allowed)
        except aiohttp.WSServerHandshakeError as refusal:
            return error(refusal.status, f"worker {worker.number} refuses the stream")
        except (aiohttp.ClientError, TimeoutError):
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
                # Otherwise the worker would compress for clients that have not asked for that.
                skip_auto_headers=["Accept-Encoding"],
            )
        return session

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()


__all__ = ["WorkersAdmin"]

"""What the answers of a REST listener hold while their clients do not take them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from pixy.api.edge.budget import Budget
from pixy.api.edge.pace import Pace
from pixy.api.rest import go_json, router, server
from pixy.api.rest.endpoints import Endpoints
from pixy.api.rest.render import to_json
from pixy.api.rest.responses import respond
from pixy.api.rest.server import RestServer
from pixy.api.restv1.app import make_routes
from pixy.api.restv1.routes import Match
from pixy.engine.shares import Shares

LONG = b"x" * 40_000


class Request(dict[Any, Any]):
    """What the listener asks of one."""

    def __init__(self, method: str = "GET") -> None:
        super().__init__()
        self.method = method
        self.raw_path = "/topics"
        self.headers: dict[str, str] = {}


class Slow(web.Response):
    """An answer that its client does not take before ``taken``."""

    taken: asyncio.Event

    async def prepare(self, request: Any) -> None:
        await self.taken.wait()
        self._eof_sent = True


class World:
    """A listener whose endpoints answer ``body``."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.taken = asyncio.Event()
        self.budget = Budget(64 * 1024)
        listener: Any = object.__new__(RestServer)
        listener._shares = Shares(4, total=True)
        listener._edge = SimpleNamespace(budget=self.budget, proxies=SimpleNamespace(any=False))
        listener._engine = SimpleNamespace(diagnostics=SimpleNamespace(traced=False))
        listener._endpoints = SimpleNamespace(serve=self._serve)
        listener._rest_v1 = SimpleNamespace(serve=self._serve, busy=lambda _request: respond(b"", 429))
        self.listener = listener

    async def _serve(self, *_args: Any) -> web.StreamResponse:
        answer = Slow(body=self.body)
        answer.taken = self.taken
        if self.body == b"probe":
            await answer.prepare(None)  # the REST v1/v2 API writes it itself
        return answer

    def ask(self, match: Any, method: str = "GET", caller: str = "a") -> asyncio.Task[web.Response]:
        serve = self.listener._serve_v1 if isinstance(match, Match) else self.listener._serve_pixy
        return asyncio.create_task(serve(cast(Any, Request(method)), match, caller))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["/_ping", "/healthy", "/ready"])
async def test_probes_whose_answers_are_not_taken_hold_up_no_others(path: str) -> None:
    world = World(b"probe")
    match = router.route("GET", path) if path == "/_ping" else make_routes().find("GET", path)
    stuck = [world.ask(match) for _ in range(200)]
    await settle()
    assert not any(task.done() for task in stuck), "none is refused"
    world.taken.set()
    assert {answer.status for answer in await asyncio.gather(*stuck)} == {200}
    assert world.listener._shares.held == 0


async def test_a_long_answer_keeps_its_bytes_and_its_place_until_it_is_taken() -> None:
    world = World(LONG)
    topics = router.route("GET", "/topics")
    first = world.ask(topics)
    await settle()
    assert (world.budget.held, world.listener._shares.held) == (len(LONG), 1)
    second = await world.ask(topics)
    assert second.status == 503 and b"`rest.max_buffered_bytes`" in cast(bytes, second.body)
    changed = world.ask(router.route("POST", "/topics/t/acks"), "POST")
    await settle()
    assert not changed.done() and len(LONG) < world.budget.held < 64 * 1024, "what was done is told"
    world.budget.share("b").take(1)
    world.taken.set()
    assert (await first).status == (await changed).status == 200
    assert (world.budget.held, world.listener._shares.held) == (1, 0)


def test_probes_below_the_prefix_begin_at_once_too() -> None:
    config = SimpleNamespace(max_concurrent_requests=1)
    engine: Any = SimpleNamespace(config=config, guard=None)
    for prefix, more in (("", 0), ("/rest", 3)):
        api: Any = SimpleNamespace(prefix=prefix)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(server, "Endpoints", lambda _engine: None)
            listener = RestServer(engine, "127.0.0.1:0", api, cast(Any, None))
        assert {f"{prefix}{path}" for path in ("/_ping", "/healthy", "/ready")} <= listener._immediate
        assert len(listener._immediate) == 3 + more


async def test_a_short_answer_is_left_to_aiohttp() -> None:
    world = World(b"x" * 1024)
    assert not (await world.ask(router.route("GET", "/topics"))).prepared and world.budget.most == 0


async def test_a_path_that_is_too_long_is_not_looked_at() -> None:
    """Decoding it takes some ten milliseconds, also for callers without credentials."""
    world = World(b"")
    world.listener._edge.pace = Pace(lambda: 0.0)
    world.listener._immediate = frozenset()
    world.listener._match = None
    request: Any = Request()
    request.protocol, request.raw_path = None, "/topics/" + "%FF" * 3000 + "?group=g"
    answer = await world.listener._answer(request)
    assert answer.status == 414 and b"at most 8192 characters" in cast(bytes, answer.body)


async def test_others_have_their_turn_while_offsets_are_converted() -> None:
    turns, taken = 0, list[Any]()

    async def take_turn() -> None:
        nonlocal turns
        turns += 1

    body = to_json([{"partition": at % 4000, "offset": at} for at in range(8000)])

    async def read_body(*_args: Any) -> bytes:
        return body

    async def set_offsets(*args: Any) -> None:
        taken.extend(args[2])

    endpoints: Any = object.__new__(Endpoints)
    endpoints._read_body = read_body
    request: Any = Request("POST")
    request.raw_path, request.protocol = "/topics/t/offsets?group=g", SimpleNamespace(take_turn=take_turn)
    cluster: Any = SimpleNamespace(set_offsets=set_offsets)
    await endpoints._set_offsets(request, router.Match("set_offsets", "", "t"), cluster)
    pieces = -(-len(body) // go_json._PIECE)
    assert pieces > 1, "of its text"
    assert turns == pieces + 8 and taken == [(at, at + 4000, "") for at in range(4000)]

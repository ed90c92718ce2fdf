"""A daemon whose edge can be left out: ``python -m tests.bench.edge.variants CONFIG``.

One process has listeners of each variant, and its parent sends the load to one of them at a time. So process, memory
layout and Kafka are the same, and two periods differ only in what stands between the socket and the handler:

- ``bare``: aiohttp's own protocol and gRPC's own options; no checks of hosts and browsers, no shares, no byte budget;
- ``open``: the edge, with ``auth`` off;
- ``auth``: the edge, with ``auth`` on.

It prints its addresses as a line of JSON. A line ``open`` or ``auth`` on stdin turns the engine's guard off or on; each line is
answered with the processor time that the process has used.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import grpc
import uvloop
from aiohttp import web

from pixy.api.edge.edge import Edge
from pixy.api.grpc.server import SERVICE, GrpcServer, status_of
from pixy.api.handlers import Handlers
from pixy.api.listener import split_address
from pixy.api.rest.server import RestServer, _path
from pixy.api.restv1.app import RestV1
from pixy.cli import serve
from pixy.config import load_file, validate
from pixy.engine.engine import Engine
from pixy.engine.guard import Guard
from pixy.errors import PixyError

ANY = "127.0.0.1:0"


class Seen:
    """An engine as the listeners of a variant see it: each variant pays the same for each of its attributes.

    Args:
        engine: serves all variants.
        guard: the variant's; None while ``auth`` is off.
    """

    def __init__(self, engine: Engine, guard: Guard | None) -> None:
        self._engine = engine
        self.guard = guard

    def __getattr__(self, name: str) -> Any:
        # Kept: a Python call at each use would count as the edge's cost.
        found = self.__dict__[name] = getattr(self._engine, name)
        return found


class BareRest(RestServer):
    """The same endpoints on aiohttp's own protocol."""

    async def _accept(self, listener: Any) -> None:
        self._bare = web.Server(
            self._answer,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
        )
        self._asyncio_server = await asyncio.get_running_loop().create_server(self._bare, sock=listener)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match: Any = self._match(request, _path(request))
        with self._engine.diagnostics.context(request.headers.get("traceparent")):
            return await self._endpoints.serve(request, match)

    def dead(self) -> str:
        return ""

    async def close(self) -> None:
        self._asyncio_server.close()
        await self._bare.shutdown(1.0)


class BareGrpc(GrpcServer):
    """The same methods with gRPC's own options."""

    async def bind(self) -> str:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers = {
            name: _bare(request_class, handler)
            for name, (request_class, handler) in Handlers(self._engine).methods().items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = self._server.add_insecure_port(self._address)
        await self._server.start()
        return f"{split_address(self._address)[0]}:{port}"

    async def drain(self) -> None:
        pass

    async def close(self) -> None:
        await self._server.stop(1.0)


class _Call:
    traceparent = None

    def __init__(self, context: Any) -> None:
        self._context = context

    def deliver(self, delivery: Any) -> None:
        self._context.add_done_callback(lambda _context: delivery.sent())

    def hold(self, size: int) -> None:
        pass

    async def give_way(self) -> None:
        pass

    def trace_context(self) -> tuple[tuple[str, bytes], ...]:
        return ()

    def answer_metadata(self, metadata: Any) -> None:
        pass


def _bare(request_class: Any, handler: Any) -> Any:
    async def behaviour(raw: bytes, context: Any) -> Any:
        try:
            return await handler(request_class.FromString(raw), _Call(context))
        except PixyError as error:
            await context.abort(status_of(error), str(error))

    return grpc.unary_unary_rpc_method_handler(
        behaviour, response_serializer=lambda answer: answer.SerializeToString()
    )


async def run(config: str) -> None:
    """Serve until stdin ends."""
    app = validate(load_file(config))
    engine = Engine(app)
    guard, edge = engine.guard, Edge(app)
    seen_as: dict[str, Any] = {
        "bare": Seen(engine, None),
        "open": Seen(engine, None),
        "auth": Seen(engine, guard),
    }
    specs: list[Any] = []
    for variant, seen in seen_as.items():
        rest, rpc = (BareRest, BareGrpc) if variant == "bare" else (RestServer, GrpcServer)
        rest_v1 = RestV1(seen, edge.proxies)
        specs += [
            (rest, (seen, ANY, rest_v1, edge), f"rest-{variant}"),
            (rpc, (seen, ANY, edge), f"grpc-{variant}"),
        ]
    await engine.start(specs)
    print(json.dumps(engine.addresses), flush=True)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        engine.guard = guard if line.strip() == b"auth" else None
        print(time.process_time(), flush=True)
    await engine.stop()


if __name__ == "__main__":
    serve.tune_process()
    uvloop.run(run(sys.argv[1]))

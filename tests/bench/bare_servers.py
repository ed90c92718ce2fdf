"""Bare servers to compare the daemon with: ``python -m tests.bench.bare_servers grpc|http|asgi PORT``."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import grpc
from aiohttp import web

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyServicer, add_KafkaPixyServicer_to_server

VALUE = b"x" * 100


class Echo(KafkaPixyServicer):
    """Answers with the daemon's messages at once; there is no Kafka behind it."""

    async def Produce(self, request: pb.ProdRq, context: object) -> pb.ProdRs:
        return pb.ProdRs(partition=1, offset=len(request.message))

    async def ConsumeNAck(self, request: pb.ConsNAckRq, context: object) -> pb.ConsRs:
        return pb.ConsRs(partition=1, offset=2, key_undefined=True, message=VALUE)


async def serve_grpc(port: int) -> None:
    server = grpc.aio.server()
    add_KafkaPixyServicer_to_server(Echo(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read(), content_type="application/json")


def serve_http(port: int) -> None:
    app = web.Application()
    app.router.add_post("/topics/{topic}/messages", _echo)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer Produce over ASGI."""
    if scope["type"] == "lifespan":
        raise NotImplementedError
    body, more = b"", True
    while more:
        event = await receive()
        body += event["body"]
        more = event["more_body"]
    request = pb.ProdRq.FromString(body[5:])
    answer = pb.ProdRs(partition=1, offset=len(request.message)).SerializeToString()
    headers = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    await send({"type": "http.response.body", "body": b"\0" + len(answer).to_bytes(4, "big") + answer})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]})


async def serve_asgi(port: int) -> None:
    """Serve :func:`application` behind Envoy."""
    from pyvoy import PyvoyServer

    server = PyvoyServer(
        "tests.bench.bare_servers:application",
        port=port,
        lifespan=False,
        additional_envoy_args=["--concurrency", "1"],
    )
    async with server:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await stopped.wait()


if __name__ == "__main__":
    if sys.argv[1] == "grpc":
        asyncio.run(serve_grpc(int(sys.argv[2])))
    elif sys.argv[1] == "asgi":
        asyncio.run(serve_asgi(int(sys.argv[2])))
    else:
        serve_http(int(sys.argv[2]))

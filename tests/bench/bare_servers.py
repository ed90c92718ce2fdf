"""Bare servers to compare the daemon with: ``python -m tests.bench.bare_servers grpc|http PORT``."""

from __future__ import annotations

import asyncio
import sys

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


if __name__ == "__main__":
    if sys.argv[1] == "grpc":
        asyncio.run(serve_grpc(int(sys.argv[2])))
    else:
        serve_http(int(sys.argv[2]))

"""A gRPC server that retires: it takes no more connections, and those that it has go on."""

from __future__ import annotations

import sys
from typing import Any

import grpc
import pytest

from pixy.api.grpc.retiring import count_connections, stop_listening

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are for Linux")


async def echo(request: bytes, _context: Any) -> bytes:
    return request


async def test_a_retired_server_keeps_its_connections_and_gets_no_more() -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 1)])
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    own = [("grpc.use_local_subchannel_pool", 1)]
    try:
        async with (
            grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=own) as known,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=own) as late,
        ):
            assert count_connections(port) == 0
            assert await known.unary_unary("/S/Echo")(b"a") == b"a"
            # Both ends are in this process; the client's has another port.
            assert count_connections(port) == 1
            assert stop_listening(port)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await late.unary_unary("/S/Echo")(b"b")
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert await known.unary_unary("/S/Echo")(b"c") == b"c"
            assert count_connections(port) == 1
        assert not stop_listening(port)
    finally:
        await server.stop(0)

"""A gRPC server that retires: it takes no more connections, and those that it has go on."""

from __future__ import annotations

import sys
from typing import Any

import grpc
import pytest

from pixy.api.grpc.retiring import count_connections, stop_listening
from pixy.api.grpc.untaken import end_connections

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


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_the_connection_of_a_peer_is_ended_and_no_other(host: str) -> None:
    peers: list[str] = []

    async def note(request: bytes, context: Any) -> bytes:
        peers.append(context.peer())
        return request

    server = grpc.aio.server()
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(note)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", methods),))
    try:
        port = server.add_insecure_port(f"{host}:0")
    except RuntimeError:
        pytest.skip(f"no {host} here")
    await server.start()
    own = [("grpc.use_local_subchannel_pool", 1)]
    try:
        async with (
            grpc.aio.insecure_channel(f"{host}:{port}", options=own) as bad,
            grpc.aio.insecure_channel(f"{host}:{port}", options=own) as good,
        ):
            for each in (bad, good):
                await each.unary_unary("/S/Echo")(b"a")
            assert end_connections(port, [peers[0], "ipv4:10.0.0.1:1"]) == 1
            assert await good.unary_unary("/S/Echo")(b"b") == b"b"
            assert peers[2] == peers[1]
            while bad.get_state() is grpc.ChannelConnectivity.READY:
                await bad.wait_for_state_change(grpc.ChannelConnectivity.READY)
    finally:
        await server.stop(0)

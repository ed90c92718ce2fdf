"""Peers of the tap's benchmark, each a process: brokers with fixed answers, and a bare asyncio forwarder."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from pixy.wire import frames

BULK = 1024 * 1024
"""Bytes of records in a FetchResponse and in a ProduceRequest."""

FETCH, PRODUCE, HEARTBEAT = 1, 0, 12


def fetch_response() -> bytes:
    """Encode a FetchResponse, length included, whose 8 partitions have BULK bytes of records."""
    part = bytes(12) + struct.pack(">i", BULK // 8 - 12) + bytes(4) + b"\2" + bytes(BULK // 8 - 17)
    return frames.encode_response(
        FETCH,
        11,
        0,
        {
            "Responses": [
                {
                    "Topic": "bench",
                    "Partitions": [
                        {"PartitionIndex": i, "HighWatermark": 7, "AbortedTransactions": [], "Records": part}
                        for i in range(8)
                    ],
                }
            ]
        },
    )


def answers() -> dict[int, bytes]:
    """Return the encoded answer by API key."""
    return {
        FETCH: fetch_response(),
        PRODUCE: frames.encode_response(PRODUCE, 7, 0, {"Responses": []}),
        HEARTBEAT: frames.encode_response(HEARTBEAT, 4, 0, {}),
    }


def receive(connection: socket.socket, view: memoryview) -> None:
    """Receive bytes until the view is full.

    Raises:
        EOFError: the peer closed the connection.
    """
    at = 0
    while at < len(view):
        count = connection.recv_into(view[at:])
        if not count:
            raise EOFError
        at += count


def serve(connection: socket.socket) -> None:
    """Answer each request of a connection, in order."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    known = {key: bytearray(frame) for key, frame in answers().items()}
    buffer = memoryview(bytearray(2 * BULK))
    try:
        while True:
            receive(connection, buffer[:12])
            size, key, _, correlation_id = struct.unpack_from(">ihhi", buffer)
            receive(connection, buffer[: size - 8])
            answer = known[key]
            struct.pack_into(">i", answer, 4, correlation_id)
            connection.sendall(answer)
    except (EOFError, OSError):
        connection.close()


def numbered(frame: bytes, numbers: bytes, at: int) -> bytearray:
    """Repeat a frame with the correlation ids in ``numbers``, 4 bytes each, at its offset ``at``."""
    made = bytearray(frame * (len(numbers) // 4))
    for byte in range(4):
        made[at + byte :: len(frame)] = numbers[byte::4]
    return made


def serve_small(connection: socket.socket) -> None:
    """Answer pipelined heartbeats of one size, all of a read at once: faster than whoever forwards them."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answer, held, size = answers()[HEARTBEAT], b"", 0
    try:
        while chunk := connection.recv(256 * 1024):
            held += chunk
            size = size or 4 + int.from_bytes(held[:4], "big")
            whole = len(held) // size * size
            numbers = bytearray(4 * (whole // size))
            for byte in range(4):
                numbers[byte::4] = held[8 + byte : whole : size]
            connection.sendall(numbered(answer, bytes(numbers), 4))
            held = held[whole:]
    except OSError:
        connection.close()


def broker(answer: Callable[[socket.socket], None] = serve) -> None:
    """Print the port, and serve until killed."""
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()


class Half(asyncio.Protocol):
    """One side of the least forwarder on asyncio's transports, with flow control."""

    other: Half
    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self.other.transport.close()


class Front(Half):
    """The client's side, which connects to the broker."""

    port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self.task = asyncio.create_task(self.connect())

    async def connect(self) -> None:
        """Connect to the broker, then read from the client."""
        _, self.other = await asyncio.get_running_loop().create_connection(Half, "127.0.0.1", self.port)
        self.other.other = self
        self.transport.resume_reading()


async def forward(port: int) -> None:
    """Print the port, and forward to the broker on ``port`` until killed."""
    Front.port = port
    server = await asyncio.get_running_loop().create_server(Front, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "broker":
        broker()
    elif sys.argv[1] == "small":
        broker(serve_small)
    else:
        import uvloop

        uvloop.run(forward(int(sys.argv[2])))

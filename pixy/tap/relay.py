"""Move bytes between two sockets: read a chunk, send it at once, observe it afterwards.

All connections share one read buffer. Bytes that the receiver does not accept at once are copied, and nothing more is
read from the sender until the receiver has accepted them. So a slow receiver costs one buffer at most, and the sender
feels the same back-pressure as on a direct connection.

The relay uses sockets and readiness instead of asyncio's transports, because a transport copies the data that a protocol
gives it or keeps a reference to the buffer. Measured processor time for a gigabyte: 0.6 s with a buffer of 256 KiB
(0.4 of it in the kernel), 0.8 s with 64 KiB, 0.75 s with 1 MiB.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from time import thread_time

from pixy.tap.conversation import Conversation
from pixy.tap.stream_tap import Buffer, StreamTap

BUFFER = 256 * 1024
"""Bytes of one read, at most. A direction holds no more than this, except for a response that is being rewritten."""

_MIN_READ = 4 * 1024
_MAX_OBSERVING = 0.002
"""Seconds of processor time for observing one read, beyond which reads become smaller: a full buffer can hold thousands
of tiny frames, and observing them must not keep the other connections waiting."""


class SharedBuffer:
    """The read buffer that all connections of an event loop share."""

    def __init__(self, size: int = BUFFER) -> None:
        self.view = memoryview(bytearray(size))


class Direction:
    """One direction of a connection."""

    __slots__ = (
        "_buffer",
        "_counter",
        "_counts",
        "_ended",
        "_limit",
        "_loop",
        "_pending",
        "_relay",
        "_send_first",
        "_stream",
        "sink",
        "source",
    )

    def __init__(
        self,
        relay: Relay,
        source: socket.socket,
        sink: socket.socket,
        stream: StreamTap,
        send_first: bool,
        counter: str,
    ) -> None:
        self.source, self.sink = source, sink
        self._counts, self._counter = relay.conversation, counter
        self._relay, self._stream = relay, stream
        self._send_first = send_first  # whether bytes are sent before they are observed
        self._loop, self._buffer = relay.loop, relay.buffer.view
        self._limit = BUFFER
        self._pending: list[memoryview] = []
        self._ended = False

    def start(self) -> None:
        """Start to read."""
        self._loop.add_reader(self.source, self._readable)

    @property
    def held(self) -> int:
        """Number of bytes that the receiver has not accepted yet."""
        return sum(map(len, self._pending))

    def _readable(self) -> None:
        try:
            count = self.source.recv_into(self._buffer, self._limit)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._relay.fail(error)
            return
        if not count:
            self._end()
            return
        self._counts.counts[self._counter] += count
        chunk = self._buffer[:count]
        if self._send_first:
            self._send(chunk)
        begun = thread_time()
        parts = self._stream.feed(chunk)
        took = thread_time() - begun
        if not self._send_first:
            for part in parts:
                self._send(part)
        if took > _MAX_OBSERVING:
            self._limit = max(_MIN_READ, self._limit // 2)
        elif self._limit < BUFFER and count == self._limit:
            self._limit *= 2

    def _send(self, data: Buffer) -> None:
        if not self._pending:
            try:
                sent = self.sink.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._relay.fail(error)
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.remove_reader(self.source)
            self._loop.add_writer(self.sink, self._writable)
        self._pending.append(memoryview(bytes(data)))  # a copy, because the next read reuses the buffer

    def _writable(self) -> None:
        while self._pending:
            data = self._pending[0]
            try:
                sent = self.sink.send(data)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._relay.fail(error)
                return
            if sent < len(data):
                self._pending[0] = data[sent:]
                return
            self._pending.pop(0)
        self._loop.remove_writer(self.sink)
        if self._ended:
            self._shut()
        else:
            self._loop.add_reader(self.source, self._readable)

    def _end(self) -> None:
        self._loop.remove_reader(self.source)
        self._ended = True
        for data in self._stream.finish():
            if data:
                self._send(data)
        if not self._pending:
            self._shut()

    def _shut(self) -> None:
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # the receiver has closed its side already
                self._relay.fail(error)
                return
        self._relay.ended()


class Relay:
    """Forward both directions of a connection.

    Args:
        client: the client's socket, non-blocking.
        broker: the broker's socket, non-blocking.
        conversation: observes both directions.
        buffer: the shared read buffer.
        on_close: is called once with the reason, after both sockets are closed.
        rewriting: whether the conversation may change bytes on their way to the client, which are then sent after it
            has seen them.
    """

    def __init__(
        self,
        client: socket.socket,
        broker: socket.socket,
        conversation: Conversation,
        buffer: SharedBuffer,
        on_close: Callable[[str], None],
        *,
        rewriting: bool = False,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = buffer
        self.conversation = conversation
        self._on_close = on_close
        self._ends = 0
        self._closed = False
        self.to_broker = Direction(self, client, broker, conversation.to_broker, True, "bytes_to_broker")
        self.to_client = Direction(
            self, broker, client, conversation.to_client, not rewriting, "bytes_to_client"
        )
        self._sockets = (client, broker)

    def start(self) -> None:
        """Start to forward."""
        self.to_broker.start()
        self.to_client.start()

    def ended(self) -> None:
        """Count a direction that has ended cleanly; the other one may go on (half-closed)."""
        self._ends += 1
        if self._ends == 2:
            self.close("closed")

    def fail(self, error: OSError) -> None:
        """Close the connection because one of its sockets is broken."""
        self.close(error.strerror or str(error))

    def close(self, reason: str) -> None:
        """Stop forwarding and close both sockets."""
        if self._closed:
            return
        self._closed = True
        for each in self._sockets:
            if each.fileno() >= 0:
                self.loop.remove_reader(each)
                self.loop.remove_writer(each)
                each.close()
        self._on_close(reason)

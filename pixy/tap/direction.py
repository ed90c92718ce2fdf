"""Move bytes between two sockets: read a chunk, send it at once, observe it afterwards.

All connections share one read buffer. Bytes that the receiver does not accept at once are copied, and nothing more is
read from the sender until the receiver has accepted them. So a slow receiver costs one buffer at most, and the sender
feels the same back-pressure as on a direct connection.

TLS ends here: the sockets of such a connection encrypt and decrypt, and nothing is spliced. One read takes as many records as
there are, up to the buffer's size.

Bytes that nobody looks at, such as the records of a large Produce or Fetch, do not enter the process: ``splice`` moves them
through a pipe inside the kernel.

The relay uses sockets and readiness instead of asyncio's transports, because a transport copies the data that a protocol
gives it or keeps a reference to the buffer. Measured processor time for a gigabyte: 0.6 s with a buffer of 256 KiB
(0.4 of it in the kernel), 0.8 s with 64 KiB, 0.75 s with 1 MiB.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from time import thread_time
from typing import TYPE_CHECKING

from pixy.tap.pipes import BUFFER, Pipe
from pixy.tap.stream_tap import Buffer, StreamTap
from pixy.tap.tls import NOT_READY

if TYPE_CHECKING:
    from pixy.tap.relay import Relay

_FLAGS = getattr(os, "SPLICE_F_NONBLOCK", 0) | getattr(os, "SPLICE_F_MOVE", 0)
_MIN_READ = 4 * 1024
_MAX_OBSERVING = 0.002
"""Seconds of processor time for observing one read, beyond which reads become smaller: a full buffer can hold thousands
of tiny frames, and observing them must not keep the other connections waiting."""


_SPLICE_FROM = BUFFER
_SPLICE_ON = 8 * 1024
"""Bytes that nobody looks at from which a splice begins, and goes on. Measured processor time for a gigabyte of 1 MiB requests:
0.35 s with splices, 0.45 s without. Pieces of 128 KiB take less of this process with them, and as much more of its peers: docs/tap.md has
the figures."""


class Direction:
    """One direction of a connection."""

    __slots__ = (
        "_arrived",
        "_buffer",
        "_counter",
        "_counts",
        "_ended",
        "_first_held",
        "_forth",
        "_held_since",
        "_limit",
        "_loop",
        "_pending",
        "_pipe",
        "_piped",
        "_pipes",
        "_plain",
        "_relay",
        "_secure_sink",
        "_secure_source",
        "_send_first",
        "_splicing",
        "_stream",
        "_turns",
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
        self._turns, self._arrived = relay.buffer.turns, 0.0
        self._forth = counter == "bytes_to_broker"
        self._held_since, self._first_held = 0.0, 0
        self._limit = BUFFER
        self._pipes = relay.buffer
        self._pipe: Pipe | None = None
        self._piped = 0  # bytes in the pipe
        self._splicing = False
        self._secure_source = isinstance(source, ssl.SSLSocket)
        self._secure_sink = isinstance(sink, ssl.SSLSocket)
        self._plain = not (self._secure_source or self._secure_sink)  # the kernel can move what it can read
        self._pending: list[memoryview] = []
        self._ended = False

    def start(self) -> None:
        """Start to read."""
        self._resume()

    def _resume(self) -> None:
        self._loop.add_reader(self.source, self._readable)
        self._read_on()

    def _read_on(self) -> None:
        """Come back for what OpenSSL has decrypted already: the socket does not become readable for it."""
        if isinstance(self.source, ssl.SSLSocket) and self.source.pending():
            self._loop.call_soon(self._again)

    def _again(self) -> None:
        if not (self._relay.closed or self._ended or self._pending):
            self._readable()

    @property
    def held(self) -> int:
        """Number of bytes that the receiver has not accepted yet."""
        return sum(map(len, self._pending)) + self._piped

    def _readable(self) -> None:
        self._arrived = self._turns.began(self._counts.clock())
        unread = self._stream.unread if self._plain else 0
        if unread >= (_SPLICE_ON if self._splicing else _SPLICE_FROM):
            pipe = self._pipes.take_pipe()
            if pipe is not None:
                self._splice(pipe, unread)
                return
        elif self._splicing:
            # Another large frame comes probably: read its head, and splice the rest.
            self._splicing, self._limit = False, _MIN_READ
        self._copy()

    def _splice(self, pipe: Pipe, unread: int) -> None:
        """Move bytes that nobody looks at into the pipe and on to the receiver."""
        try:
            count = os.splice(self.source.fileno(), pipe[1], min(unread, BUFFER), flags=_FLAGS)
        except (BlockingIOError, InterruptedError):
            self._pipes.give_pipe(pipe, empty=True)
            return
        except OSError as error:
            self._pipes.give_pipe(pipe, empty=True)
            if error.errno == errno.EINVAL:
                self._pipes.refuse_pipes()
                self._copy()
            else:
                self._relay.fail(error)
            return
        if not count:
            self._pipes.give_pipe(pipe, empty=True)
            self._end()
            return
        self._splicing = True
        self._counts.counts[self._counter] += count
        self._pipe, self._piped = pipe, count
        self._stream.passed(count)
        if not self._drain() and not self._relay.closed:
            self._hold(self._counts.number)
            self._loop.remove_reader(self.source)
            self._loop.add_writer(self.sink, self._writable)

    def _drain(self) -> bool:
        """Move what is in the pipe to the receiver; return whether all of it has gone."""
        while self._pipe is not None and self._piped:
            try:
                self._piped -= os.splice(self._pipe[0], self.sink.fileno(), self._piped, flags=_FLAGS)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                self._relay.fail(error)
                return False
        self.release()
        return True

    def release(self) -> None:
        """Give the pipe back."""
        if self._pipe is not None:
            self._pipes.give_pipe(self._pipe, empty=not self._piped)
            self._pipe, self._piped = None, 0

    def _copy(self) -> None:
        try:
            count = self.source.recv_into(self._buffer, self._limit)
        except NOT_READY:
            return
        except OSError as error:
            self._relay.fail(error)
            return
        ended = not count
        if self._secure_source and count:
            count, ended = self._fill(count)
        if count:
            self._forward(count)
        if self._relay.closed:
            return
        if ended:
            self._end()
        elif self._secure_source and not self._pending:
            self._read_on()

    def _fill(self, count: int) -> tuple[int, bool]:
        """Read on after the first TLS record: each read returns one, of 16 KiB at most.

        Returns:
            The number of bytes in the buffer, and whether they are the last ones.
        """
        while count < self._limit:
            try:
                more = self.source.recv_into(self._buffer[count:], self._limit - count)
            except NOT_READY:
                return count, False
            except OSError:  # nothing that can be decrypted follows
                more = 0
            if not more:
                return count, True
            count += more
        return count, False

    def _forward(self, count: int) -> None:
        self._counts.counts[self._counter] += count
        chunk = self._buffer[:count]
        talk, known = self._counts, self._counts.number
        if self._send_first:
            self._send(chunk)
        if self._forth:
            talk.queueing.asked, talk.queueing.sent = self._arrived, talk.clock()
        else:
            talk.queueing.answered = self._arrived
        begun = thread_time() if count >= _MIN_READ else 0.0
        parts = self._stream.feed(chunk)
        took = thread_time() - begun if begun else 0.0
        if not self._send_first:
            for part in parts:
                self._send(part)
        if self._pending:
            self._hold(known + 1)
        if took > _MAX_OBSERVING:
            self._limit = max(_MIN_READ, self._limit // 2)
        elif self._limit < BUFFER and count == self._limit:
            self._limit *= 2

    def _send(self, data: Buffer) -> None:
        if not self._pending:
            left = self._write(data)
            if not len(left) or self._relay.closed:
                return
            data = left
            self._loop.remove_reader(self.source)
            self._loop.add_writer(self.sink, self._writable)
        self._pending.append(memoryview(bytes(data)))  # a copy, because the next read reuses the buffer

    def _write(self, data: Buffer) -> Buffer:
        """Send what the receiver accepts now; return the rest."""
        while len(data):
            try:
                sent = self.sink.send(data)
            except NOT_READY:
                break
            except OSError as error:
                self._relay.fail(error)
                break
            data = data[sent:]
            if (
                not self._secure_sink
            ):  # one that has not taken all takes nothing more; TLS sends a record at a time
                break
        return data

    def _writable(self) -> None:
        if not self._drain():
            return
        while self._pending:
            left = self._write(self._pending[0])
            if self._relay.closed:
                return
            if len(left):
                self._pending[0] = memoryview(left)
                return
            self._pending.pop(0)
        self._loop.remove_writer(self.sink)
        self._release_hold()
        if self._ended:
            self._shut()
        else:
            self._resume()

    def _hold(self, first: int) -> None:
        """Note that the receiver does not accept bytes; ``first`` is the number of the first request among them."""
        self._held_since, self._first_held = self._counts.clock(), first

    def _release_hold(self) -> None:
        if not self._held_since:
            return
        took, self._held_since = max(0.0, self._counts.clock() - self._held_since), 0.0
        queueing = self._counts.queueing
        queueing.held[0 if self._forth else 1] += took
        if self._forth:
            queueing.delayed(self._first_held, self._counts.number, took)

    def _end(self) -> None:
        self._loop.remove_reader(self.source)
        self._ended = True
        for data in self._stream.finish():
            if data:
                self._send(data)
        if not self._pending:
            self._shut()

    def _shut(self) -> None:
        if not self._plain:
            # Nobody reads on after the end of the other direction, as TLS 1.2 has it.
            self._relay.close("closed")
            return
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # the receiver has closed its side already
                self._relay.fail(error)
                return
        self._relay.ended()


__all__ = ["Direction"]

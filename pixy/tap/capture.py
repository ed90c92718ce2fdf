"""Observe a capture file (pcap, pcapng) as if its connections passed through the tap.

The file is read once, packet by packet. TCP segments are put in order for each direction; the bytes go to the same
conversations and observer that a live tap has, with the packets' times as the clock. A connection whose beginning is not
in the file is taken up at the first segment that begins with a request. A connection with lost packets ends there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pixy.tap import events
from pixy.tap.apis import MAX_FRAME, known, load_tables
from pixy.tap.config import TapConfig, show_address
from pixy.tap.conversation import Conversation, FrameSink
from pixy.tap.lru import LruDict
from pixy.tap.observer import Observer

_WAITING: Final = 1_000
"""Segments of one direction that wait for an earlier one; with more, that one is lost."""
_TICK: Final = 1.0
_SEQUENCES: Final = 1 << 32
_HALF: Final = 1 << 31
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16

Side = tuple[str, int]


class Segment(NamedTuple):
    """A TCP segment."""

    at: float
    """The packet's time, in seconds since the epoch."""
    source: Side
    target: Side
    sequence: int
    flags: int
    data: bytes


@dataclass(slots=True)
class _Direction:
    """One direction of a connection, in order."""

    following: int | None = None
    """The sequence number of the next byte; None before the first."""
    waiting: dict[int, bytes] = field(default_factory=dict)
    ended: bool = False

    def add(self, sequence: int, data: bytes) -> list[bytes] | None:
        """Take a segment; return what is in order now, None if a segment is lost."""
        if self.following is None:
            self.following = sequence
        self.waiting[sequence] = max(data, self.waiting.get(sequence, b""), key=len)
        found = []
        while True:
            ready = next((each for each in self.waiting if self._ahead(each) <= 0), None)
            if ready is None:
                break
            known = -self._ahead(ready)  # bytes that an earlier segment brought
            fresh = self.waiting.pop(ready)[known:]
            if fresh:
                found.append(fresh)
                self.following = (self.following + len(fresh)) % _SEQUENCES
        return None if len(self.waiting) > _WAITING else found

    def _ahead(self, sequence: int) -> int:
        assert self.following is not None
        return (sequence - self.following + _HALF) % _SEQUENCES - _HALF


class _Connection:
    def __init__(self, number: int, client: Side, broker: Side, conversation: Conversation) -> None:
        self.number, self.client, self.broker, self.conversation = number, client, broker, conversation
        self.to_broker, self.to_client = _Direction(), _Direction()


class Capture:
    """Observe segments.

    Args:
        config: limits; its brokers and addresses are not used.
        observer: receives the events.
        dump: receives all frames; None for no dump.
    """

    def __init__(self, config: TapConfig, observer: Observer, dump: FrameSink | None = None) -> None:
        self._config, self._observer, self._dump = config, observer, dump
        self.now = 0.0
        """The time of the last segment, in seconds since the epoch."""
        self.segments = 0
        """Number of TCP segments."""
        self._ticked = 0.0
        self._number = 0
        self._open: LruDict[tuple[Side, Side], _Connection] = LruDict(config.bounds.connections)
        load_tables()

    # -- the conversations' sink -------------------------------------------------------------------

    def put(self, event: events.Event) -> None:
        """See :class:`pixy.tap.conversation.Sink`."""
        self._observer.take(event)
        if self._dump is not None and isinstance(event, events.Opened | events.Closed):
            self._dump.put(event)

    def reserve(self, size: int) -> bool:
        """See :class:`pixy.tap.conversation.Sink`: nothing waits, so there is always room."""
        return size >= 0

    def unreserve(self, size: int) -> None:
        """See :class:`pixy.tap.conversation.Sink`."""

    # -- segments ----------------------------------------------------------------------------------

    def take(self, segment: Segment) -> None:
        """Observe a segment."""
        self.segments += 1
        self.now = max(self.now, segment.at)
        if self.now - self._ticked >= _TICK:
            self._tick()
        if segment.flags & _SYN:
            if not segment.flags & _ACK:
                self._begin(segment.source, segment.target).to_broker.following = _next(segment)
            elif (known := self._open.get((segment.target, segment.source))) is not None:
                known.to_client.following = _next(segment)
            return
        connection = self._connection(segment)
        if connection is None:
            return
        forth = segment.source == connection.client
        direction = connection.to_broker if forth else connection.to_client
        stream = connection.conversation.to_broker if forth else connection.conversation.to_client
        found = direction.add(segment.sequence, segment.data) if segment.data else []
        if found is None:
            self._end(connection, "packets are missing in the capture")
            return
        for data in found:
            counter = "bytes_to_broker" if forth else "bytes_to_client"
            connection.conversation.counts[counter] += len(data)
            stream.feed(memoryview(bytearray(data)))
        direction.ended = direction.ended or bool(segment.flags & _FIN)
        if segment.flags & _RST or (connection.to_broker.ended and connection.to_client.ended):
            self._end(connection, "reset" if segment.flags & _RST else "closed")

    def finish(self) -> None:
        """Count what is left at the end of the file."""
        self._tick()

    def _connection(self, segment: Segment) -> _Connection | None:
        for pair in ((segment.source, segment.target), (segment.target, segment.source)):
            found = self._open.get(pair)
            if found is not None:
                return found
        if begins_request(segment.data):
            return self._begin(segment.source, segment.target)
        return None

    def _begin(self, client: Side, broker: Side) -> _Connection:
        known = self._open.get((client, broker))
        if known is not None:
            self._end(known, "its ports were used again")
        self._number += 1
        bounds, slow = self._config.bounds, self._config.slow
        conversation = Conversation(self._number, self, lambda: self.now, bounds, slow=slow, dump=self._dump)
        made = _Connection(self._number, client, broker, conversation)
        self._open[client, broker] = made
        self.put(events.Opened(self._number, self.now, show_address(client), show_address(broker)))
        if self._dump is not None:
            self._dump.put(events.Connected(self._number, self.now, client, broker))
        return made

    def _end(self, connection: _Connection, reason: str) -> None:
        self._tally(connection)
        self._open.pop((connection.client, connection.broker))
        self.put(events.Closed(connection.number, self.now, reason))

    def _tick(self) -> None:
        self._ticked = self.now
        for connection in self._open.values():
            self._tally(connection)
        self._observer.tick(self.now)

    def _tally(self, connection: _Connection) -> None:
        found = connection.conversation.tally()
        if found is not None:
            self.put(found)


def begins_request(data: bytes) -> bool:
    """Tell whether bytes begin with the header of a request of a known API and version."""
    if len(data) < 12:
        return False
    size, key, version, _ = struct.unpack_from(">ihhi", data)
    return 8 <= size <= MAX_FRAME and known(key, version)


def _next(segment: Segment) -> int:
    return (segment.sequence + 1) % _SEQUENCES


__all__ = ["Capture", "Segment", "begins_request"]

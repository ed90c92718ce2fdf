"""Pass small frames on at the cost of their header: whole frames in one read that need not be decoded one by one.

A reader of :mod:`pixy.tap.conversation` is a chain of generators, and an event costs the observer's thread as much again:
60 us a request together. Clients that pipeline small requests send hundreds in one read, so the stream tap asks here first at
each boundary of frames. Runs of equal frames are compared as a whole (see :func:`repeated`).

Two kinds of frames are taken:

- **Repeats**: heartbeats whose request and response are the same, but for the correlation id, as the last ones that the
  observer has seen, less than :data:`REPEAT_FOR` ago. They say nothing new but the time.
- **Sampled**: requests that change no group (:data:`SAMPLED`) beyond the rate of :class:`Sampler`. They are counted by API,
  version and time, and as ``sampled``; the observer does not see their contents.

All others are left to the reader.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pixy.tap import events
from pixy.tap.in_flight import InFlight, Passed, Repeated, Run
from pixy.tap.partial_decoders import ProduceSummary

if TYPE_CHECKING:
    from pixy.tap.conversation import Conversation

REPEAT_FOR: Final = 1.0
"""Seconds for which the repeats of a heartbeat are only counted; sessions time out after several seconds."""
_MAX_REPEAT: Final = 1_024
"""Bytes of a heartbeat, at most, to be compared with the one before."""
HEARTBEATS: Final = frozenset({12, 68, 76, 88})
"""Heartbeat, ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat."""
PRODUCE: Final = 0
SAMPLED: Final = frozenset({PRODUCE, 1, 2, 3, 9, 10, 15, 16, 23, 29, 32, 60, 61, 69, 75, 77, 78, 79})
"""API keys whose frames change no group's members, generation or commits: Produce, Fetch, ListOffsets, Metadata, OffsetFetch,
FindCoordinator, and those that describe."""

_ALWAYS_REWRITTEN: Final = frozenset({3, 10, 60})
_NAME_BROKERS: Final = frozenset({PRODUCE, 1, 78, 79}) | _ALWAYS_REWRITTEN
"""API keys whose responses name brokers, the latter in every one."""

_REQUEST: Final = struct.Struct(">ihhi")
_RESPONSE: Final = struct.Struct(">ii")
_LARGEST: Final = 16 * 1024
"""Bytes of a sampled request, at most: reading a larger one costs little beside forwarding it."""
_NOTHING: Final = ProduceSummary(-1, (), (), False)
"""The summary of requests that were not read: the observer forgets the sequences that it expects."""


class Sampler:
    """A token bucket for all connections of a tap: how many frames that could be left out are decoded.

    Args:
        rate: frames a second, and at once after a quiet second.
    """

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._left = float(rate)
        self._at = 0.0

    def takes(self, now: float) -> bool:
        """Tell whether the next frame is to be decoded.

        Args:
            now: the time in seconds; a clock that steps back refills nothing.
        """
        if now != self._at:
            self._left = min(self.rate, self._left + max(0.0, now - self._at) * self.rate)
            self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class FastPath:
    """The gates of one connection's two directions, see :class:`pixy.tap.stream_tap.StreamTap`.

    Args:
        conversation: has the connection's counters.
        in_flight: the connection's requests that wait for a response.
        clock: tells the time in seconds since the epoch.
        sampler: shared by all connections; None decodes all that is no repeat.
        rewriting: whether responses that name brokers are changed, and so must be read.
        known: tells whether an API key has a version.
    """

    def __init__(
        self,
        conversation: Conversation,
        in_flight: InFlight,
        clock: Callable[[], float],
        sampler: Sampler | None,
        rewriting: bool,
        known: Callable[[int, int], bool],
    ) -> None:
        self._conversation, self._in_flight, self._clock = conversation, in_flight, clock
        self._sampler, self._known = sampler, known
        self._named = _NAME_BROKERS if rewriting else frozenset()
        self._sampled = SAMPLED - _ALWAYS_REWRITTEN if rewriting else SAMPLED
        self._last: Repeated | None = None
        self._gap_told = False

    def saw(self, event: events.RequestCaptured | events.ResponseCaptured) -> None:
        """Remember a heartbeat that the observer gets whole."""
        if event.key not in HEARTBEATS or len(event.frame) > _MAX_REPEAT:
            return
        last = self._last
        if isinstance(event, events.ResponseCaptured):
            if last is not None and event.number >= last.first:
                last.response = event.frame[4:]
            return
        request = event.frame[8:]
        if last is not None and (last.key, last.version, last.request) == (event.key, event.version, request):
            last.at = event.at
        else:
            self._last = Repeated(event.key, event.version, request, event.at, event.number)

    def read_produce(self) -> None:
        """Note that the observer gets a Produce request: the next one that it does not get is a gap again."""
        self._gap_told = False

    def requests(self, chunk: memoryview, pos: int, size: int) -> int:
        """Take whole requests at the beginning of ``chunk[pos:size]``; return where the first other one begins."""
        conversation = self._conversation
        now, waited = conversation.asked_at(), conversation.queueing.waited
        while size - pos >= _REQUEST.size:
            length, key, version, correlation_id = _REQUEST.unpack_from(chunk, pos)
            end = pos + 4 + length
            if end > size or length < 8:
                break
            repeats, answered = None, True
            if key in HEARTBEATS:
                repeats = self._repeated(key, version, now)
                if repeats is None or chunk[pos + 12 : end] != repeats.request:
                    break
                count = repeated(chunk, pos, size, end - pos, 8)
                if count > 1:
                    self._add_run(chunk[pos : pos + count * (end - pos)], end - pos, repeats, now)
                    pos += count * (end - pos)
                    continue
            else:
                if not self._leaves_out(key, version, length, now):
                    break
                if key == PRODUCE:
                    acks = _acks(chunk, pos + 12, end, version)
                    if acks is None:
                        break
                    answered = acks != 0
                    self._tell_gap(now)
                conversation.sampled[key] += 1
                conversation.counts["sampled"] += 1
            number = conversation.count_requests(key, version)
            if answered:
                request = Passed(key, version, correlation_id, number, now, waited)
                request.repeats = repeats
                self._in_flight.add(request, conversation.counts)
            pos = end
        return pos

    def responses(self, chunk: memoryview, pos: int, size: int) -> int:
        """Take whole responses to requests that were taken; return where the first other one begins."""
        conversation = self._conversation
        pending = self._in_flight.pending
        now, taken = self._clock(), 0
        while pending and size - pos >= _RESPONSE.size:
            request = pending[0]
            if type(request) is Run:
                taken_here = self._take_run(request, chunk, pos, size, now)
                if taken_here:
                    pos += taken_here
                    continue
                self._in_flight.split()
                request = pending[0]
            if type(request) is not Passed:
                break
            length, correlation_id = _RESPONSE.unpack_from(chunk, pos)
            end = pos + 4 + length
            if end > size or correlation_id != request.correlation_id or length < 4:
                break
            repeats = request.repeats
            if repeats is not None:
                if bytes(chunk[pos + 8 : end]) != repeats.response:
                    break
            elif request.key in self._named:
                break
            pending.popleft()
            conversation.time_response(request, now)
            taken += 1
            pos = end
        if taken:
            conversation.counts["responses"] += taken
        return pos

    def _leaves_out(self, key: int, version: int, length: int, now: float) -> bool:
        return (
            self._sampler is not None
            and key in self._sampled
            and length <= _LARGEST
            and self._known(key, version)
            and not self._sampler.takes(now)
        )

    def _tell_gap(self, now: float) -> None:
        if not self._gap_told:
            self._gap_told = True
            self._conversation.put(events.ProduceSeen(self._conversation.connection, now, "", _NOTHING))

    def passes(self, request: Passed) -> bool:
        """Tell whether the response to a request that was taken need not be read.

        If it must be, because it differs from the last one or is not whole, the observer gets the request now.
        """
        if request.repeats is None:
            return request.key not in self._named
        head = struct.pack(">hhi", request.key, request.version, request.correlation_id)
        self._conversation.capture_request(request, head + request.repeats.request)
        return False

    def _repeated(self, key: int, version: int, now: float) -> Repeated | None:
        last = self._last
        if (
            last is None
            or last.response is None
            or last.key != key
            or last.version != version
            or not 0 <= now - last.at < REPEAT_FOR
        ):
            return None
        return last

    def _add_run(self, frames: memoryview, size: int, repeats: Repeated, now: float) -> None:
        count = len(frames) // size
        numbers = bytearray(4 * count)
        for byte in range(4):
            numbers[byte::4] = frames[8 + byte :: size]
        number = self._conversation.count_requests(repeats.key, repeats.version, count)
        self._in_flight.add_run(
            Run(repeats, now, number - count + 1, bytes(numbers), self._conversation.queueing.waited),
            self._conversation.counts,
        )

    def _take_run(self, run: Run, chunk: memoryview, pos: int, size: int, now: float) -> int:
        """Take the responses to a run of equal requests; return their bytes, 0 if the next one is to be looked at alone."""
        assert run.repeats.response is not None
        frame = _RESPONSE.pack(4 + len(run.repeats.response), 0) + run.repeats.response
        count = min((size - pos) // len(frame), len(run))
        while count > 1:
            expected = bytearray(frame * count)
            for byte in range(4):
                expected[4 + byte :: len(frame)] = run.numbers[byte : 4 * count : 4]
            if expected == chunk[pos : pos + len(expected)]:
                self._conversation.time_response(run, now, count)
                self._conversation.counts["responses"] += count
                self._in_flight.drop(count)
                return len(expected)
            count //= 8
        return 0


def repeated(chunk: memoryview, pos: int, size: int, frame: int, at: int) -> int:
    """Return how many frames in a row equal the first one, but for four bytes: that many, or fewer.

    The comparison is one of memory, with the correlation ids of the frames written into copies of the first. It costs 0.1 us a
    frame where looking at each costs 2.

    Args:
        chunk: the bytes read.
        pos: where the first frame begins.
        size: where the bytes end.
        frame: bytes of the first frame, its length included.
        at: offset of the correlation id in a frame.
    """
    count = (size - pos) // frame
    first = bytes(chunk[pos : pos + frame])
    while count > 1:
        found = chunk[pos : pos + count * frame]
        expected = bytearray(first * count)
        for byte in range(at, at + 4):
            expected[byte::frame] = found[byte::frame]
        if expected == found:
            return count
        count //= 8
    return 1


def _acks(chunk: memoryview, pos: int, end: int, version: int) -> int | None:
    """Return the acks of a Produce request in its plain form; None if it has another one, or ends before.

    Args:
        chunk: the bytes read.
        pos: the header's byte behind the correlation id.
        end: the byte after the frame.
        version: the request's version.
    """
    if end - pos < 6:
        return None
    pos += 2 + max(int.from_bytes(chunk[pos : pos + 2], "big", signed=True), 0)
    if version >= 9:
        if pos + 2 > end or chunk[pos] or chunk[pos + 1] >= 0x80:  # tagged fields, or a long transactional id
            return None
        pos += 1 + max(chunk[pos + 1], 1)
    elif version >= 3:
        pos += 2 + max(int.from_bytes(chunk[pos : pos + 2], "big", signed=True), 0)
    return int.from_bytes(chunk[pos : pos + 2], "big", signed=True) if pos + 2 <= end else None


__all__ = ["HEARTBEATS", "REPEAT_FOR", "SAMPLED", "FastPath", "Sampler"]

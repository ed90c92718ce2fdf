"""Frames survive any cutting of the stream; what cannot be pickled is one clear error."""

from __future__ import annotations

import asyncio
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from actors import NotPicklable
from actors.process.frames import HEADER, SCRATCH, Frame, FrameReader, Kind, decode, encode
from actors.process.main import _Reader
from actors.process.worker import WorkerProcess
from tests.unit.actors.process.kinds import Unloadable

LIMIT = 1 << 24


class Transport:
    aborted = False

    def abort(self) -> None:
        self.aborted = True


def read(data: bytes, cuts: list[int], limit: int = LIMIT) -> tuple[list[Frame], Transport]:
    frames: list[Frame] = []
    reader = FrameReader(frames.append, lambda: None, limit)
    transport = Transport()
    reader.transport = transport  # type: ignore[assignment]
    position = 0
    sizes = iter(cuts)
    while position < len(data) and not transport.aborted:
        room = reader.get_buffer(-1)
        assert len(room) > 0, "no room to read into"
        size = min(len(room), next(sizes, len(data)), len(data) - position)
        room[:size] = data[position : position + size]
        reader.buffer_updated(size)
        position += size
    return frames, transport


def test_a_transport_is_whatever_the_loop_has() -> None:
    transport: Any = Transport()  # as uvloop's, which is no asyncio.Transport
    reader = FrameReader(lambda _: None, lambda: None, LIMIT)
    reader.connection_made(transport)
    data = HEADER.pack(Kind.CALL, 1, 0, LIMIT + 1)
    reader.get_buffer(-1)[: len(data)] = data
    reader.buffer_updated(len(data))
    assert transport.aborted


def wire(kind: Kind, call: int, value: Any) -> bytes:
    return b"".join(bytes(part) for part in encode(kind, call, value, "it", LIMIT))


@given(
    values=st.lists(
        st.one_of(
            st.binary(max_size=100),
            st.integers(SCRATCH - 60, SCRATCH + 60).map(bytes),
            st.integers(1, 3 * SCRATCH).map(lambda size: pickle.PickleBuffer(bytearray(size))),
        ),
        max_size=6,
    ),
    cuts=st.lists(st.one_of(st.integers(1, 50), st.integers(1, 2 * SCRATCH)), max_size=60),
)
def test_frames_survive_any_cutting(values: list[Any], cuts: list[int]) -> None:
    data = b"".join(wire(Kind.CALL, number, value) for number, value in enumerate(values))
    frames, _ = read(data, cuts)
    assert [frame.call for frame in frames] == list(range(len(values)))
    for frame, value in zip(frames, values, strict=True):
        got = decode(frame, "it")
        sent = value.raw() if isinstance(value, pickle.PickleBuffer) else value
        assert bytes(got) == bytes(sent)


def test_buffers_are_not_copied_into_the_pickle_nor_out_of_the_frame() -> None:
    data = bytearray(b"x" * 100_000)
    parts = encode(Kind.CALL, 1, [pickle.PickleBuffer(data), pickle.PickleBuffer(b"read only")], "it", LIMIT)
    assert len(parts[0]) < 200, "the buffer is in the pickle"
    assert isinstance(parts[1], memoryview) and parts[1].obj is data, "a copy"
    frames, _ = read(b"".join(bytes(part) for part in parts), [])
    first, second = decode(frames[0], "it")
    assert first.obj is frames[0].body.obj, "a copy"
    first[0] = 0
    assert second.readonly and bytes(second) == b"read only"


def test_a_worker_that_has_no_room_to_read_a_message_says_so() -> None:
    said: list[str] = []
    link: Any = SimpleNamespace(out_of_memory=lambda: said.append("out of memory"))
    reader = _Reader(link, said.append, lambda: None, 1 << 62)
    header = HEADER.pack(Kind.CALL, 1, 0, 1 << 60)
    reader.get_buffer(-1)[: len(header)] = header
    with pytest.raises(MemoryError):
        reader.buffer_updated(len(header))
    assert said == ["out of memory"]


def test_a_frame_beyond_the_limit_ends_the_stream() -> None:
    frames, transport = read(HEADER.pack(Kind.CALL, 1, 0, 101) + bytes(101), [], limit=100)
    assert frames == [] and transport.aborted


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [
        (lambda: None, LIMIT, "the message cannot be pickled: "),
        (bytes(2000), 1000, r"the message has \d+ bytes when pickled, more than max_message \(1000\)"),
        (pickle.PickleBuffer(memoryview(bytes(10))[::2]), LIMIT, "the message cannot be pickled: "),
    ],
)
def test_what_cannot_be_sent_is_named(value: Any, limit: int, text: str) -> None:
    with pytest.raises(NotPicklable, match=text):
        encode(Kind.CALL, 1, value, "the message", limit)


def test_what_cannot_be_read_is_named() -> None:
    frames, _ = read(wire(Kind.CALL, 3, Unloadable()), [])
    with pytest.raises(NotPicklable, match="the reply cannot be unpickled: ValueError: not today"):
        decode(frames[0], "the reply")


def test_ctrl_c_in_the_handling_of_a_frame_neither_repeats_it_nor_holds_up_those_behind_it() -> None:
    seen: list[int] = []

    def handle(frame: Frame) -> None:
        seen.append(frame.call)
        if frame.call in (2, 3, 5):
            raise KeyboardInterrupt

    reader = FrameReader(handle, lambda: None, LIMIT)
    loop = asyncio.new_event_loop()

    def struck(data: bytes) -> int:
        """Read in the loop; return how often Ctrl-C has left it, as a user might have it run again."""
        left = 0
        loop.call_soon(feed, reader, data)
        for _ in range(5):
            loop.call_soon(loop.stop)
            try:
                loop.run_forever()
            except KeyboardInterrupt:
                left += 1
        return left

    try:
        large = wire(Kind.DONE, 5, bytes(SCRATCH))
        small = b"".join(wire(Kind.DONE, call, "reply") for call in (1, 2, 3, 4))
        assert struck(small + large[:1000]) == 2
        assert seen == [1, 2, 3, 4], "no other frame comes before these are answered"
        assert struck(large[1000:]) == 1
        assert struck(wire(Kind.DONE, 6, "reply")) == 0
        assert seen == [1, 2, 3, 4, 5, 6]
    finally:
        loop.close()


class Raises:
    """Raises an error when it is unpickled."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return raise_error, (self.error,)


def raise_error(error: type[BaseException]) -> None:
    raise error


def feed(reader: FrameReader, data: bytes, error: type[BaseException] | None = None) -> None:
    reader.get_buffer(-1)[: len(data)] = data
    if error is None:
        reader.buffer_updated(len(data))
        return
    with pytest.raises(error):
        reader.buffer_updated(len(data))


def half() -> tuple[WorkerProcess, FrameReader]:
    """The parent's half of a process actor that has made two calls."""
    nothing: Any = None
    loop = asyncio.get_running_loop()
    worker = WorkerProcess(
        loop, "/a", LIMIT, on_taken=nothing, on_failed=nothing, on_died=nothing, on_leave=nothing
    )
    worker._calls.update({1: loop.create_future(), 2: loop.create_future()})
    return worker, FrameReader(worker._read, lambda: None, LIMIT)


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.FAILED])
def test_a_call_whose_answer_ctrl_c_hits_is_answered_and_so_is_the_next_one(kind: Kind) -> None:
    loop = asyncio.new_event_loop()
    made: list[Any] = []

    async def begin() -> None:
        worker, reader = half()
        made.extend(worker._calls.values())
        data = wire(kind, 1, Raises(KeyboardInterrupt)) + wire(Kind.DONE, 2, "next")
        loop.call_soon(feed, reader, data)
        await asyncio.wait(made, timeout=5)
        await asyncio.sleep(0)

    async def end() -> None:
        first, second = made
        assert first.done() and second.done(), "a call waits for ever"
        with pytest.raises(NotPicklable, match="KeyboardInterrupt"):
            await first
        assert await second == "next"

    try:
        begun = loop.create_task(begin())
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        loop.run_until_complete(begun)
        loop.run_until_complete(end())
    finally:
        loop.close()


async def test_a_call_whose_answer_finds_no_memory_ends_with_its_process() -> None:
    worker, reader = half()
    feed(reader, wire(Kind.DONE, 1, Raises(MemoryError)), MemoryError)
    assert 1 in worker._calls, "the end of the process would not answer it"

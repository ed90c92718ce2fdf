"""The worker's end of the connection: what is too large or cannot be pickled harms neither its call nor the worker."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from actors.process.frames import Frame, FrameReader, Kind, decode
from actors.process.link import Link, LogHandler, Reply, cut
from tests.unit.actors.process.kinds import OddError


class Wire:
    """The parent's end of a link: collects frames."""

    def __init__(self, limit: int) -> None:
        ours, self._theirs = socket.socketpair()
        ours.setblocking(False)
        self.frames: list[Frame] = []
        self._ours, self._limit = ours, limit
        self.link = Link(self._theirs.fileno())
        self.link.limit = limit
        self.ended = False

    def read(self) -> list[Any]:
        """The frames so far: kind, call and value."""
        reader = FrameReader(self.frames.append, lambda: None, self._limit)
        with contextlib.suppress(BlockingIOError):
            while size := self._ours.recv_into(reader.get_buffer(-1)):
                reader.buffer_updated(size)
        return [(each.kind, each.call, decode(each, "it")) for each in self.frames]

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire(500)
    yield made
    made.close()


@pytest.mark.parametrize(
    "error", [ValueError("x" * 1000), ValueError("€" * 1000), OSError(lambda: 1, "x" * 10_000)]
)
@pytest.mark.parametrize("kind", [Kind.FAILED, Kind.DIED])
def test_an_error_that_is_too_large_arrives_in_words(wire: Wire, error: BaseException, kind: Kind) -> None:
    if kind == Kind.FAILED:
        assert Reply(wire.link, 7, wanted=True).try_fail(error)
    else:
        wire.link.fail(kind, 7, error)
    ((found, call, words),) = wire.read()
    assert (found, call) == (kind, 7)
    assert words.startswith(f"{type(error).__name__}, which ") and "[...]" in words


def test_an_error_for_which_there_is_no_room_at_all_still_ends_its_call() -> None:
    wire = Wire(20)
    assert Reply(wire.link, 7, wanted=True).try_fail(ValueError("x" * 1000))
    assert [each[:2] for each in wire.read()] == [(Kind.FAILED, 7)]
    wire.close()


def test_memory_that_runs_out_while_a_reply_is_pickled_is_its_error(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.process.link.memory_limited", lambda: False)  # else the worker ends

    class Huge:
        def __reduce__(self) -> Any:
            raise MemoryError("no room")

    assert Reply(wire.link, 7, wanted=True).try_set(Huge())
    ((kind, _, error),) = wire.read()
    assert kind == Kind.FAILED and isinstance(error, (MemoryError, str)) and "MemoryError" in repr(error)


def test_a_text_is_cut_in_its_middle() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("a" * 20 + "z" * 20, 13) == "aaa\n[...]\nzzz"
    assert cut("abc", 1) == "\n[...]\n"


# -- log records ----------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, Wire]]:
    wire = Wire(3000)
    logger = logging.Logger(
        "tests.worker"
    )  # of no other logger's tree, whose handlers would format the records, too
    logger.addHandler(LogHandler(wire.link))
    yield logger, wire
    wire.close()


def test_a_record_that_cannot_be_sent_harms_nobody(
    log: tuple[logging.Logger, Wire], capsys: pytest.CaptureFixture[str]
) -> None:
    logger, wire = log
    logger.warning("%d", "three")
    assert "--- Logging error ---" in capsys.readouterr().err, "as other handlers report it"
    logger.warning("odd", extra={"error": OddError("a", "b"), "number": 7})
    logger.warning("x" * 10_000)
    odd, long = (value for kind, _, value in wire.read() if kind == Kind.LOG)
    assert (odd["msg"], odd["number"]) == ("odd", 7) and "error" not in odd
    assert "[...]" in long["msg"] and long["msg"].startswith("x")

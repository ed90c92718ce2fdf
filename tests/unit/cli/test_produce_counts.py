"""What ``kafka-pixy produce`` says is written, wherever a signal strikes or a failure happens."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import CallError, DaemonGone, ShellError
from pixy.cli.shell.output import Output
from pixy.cli.shell.produce import Writer
from pixy.cli.shell.produce_input import ReadAhead, Shape
from pixy.cli.shell.progress import Bar
from pixy.cli.shell.session import Session, Settings
from tests.unit.cli.produce_daemon import Daemon, failure, read, write


@pytest.mark.parametrize(
    ("status", "details", "unsure"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "d:1 did not answer ProduceMany", True),
        (
            grpc.StatusCode.UNAVAILABLE,
            "the topic's producer has failed, the message may or may not be written",
            True,
        ),
        (grpc.StatusCode.UNAVAILABLE, "GOAWAY received", True),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2", True),
        (grpc.StatusCode.UNKNOWN, "it broke", True),
        (grpc.StatusCode.CANCELLED, "Cancelling all calls", True),
        (grpc.StatusCode.INVALID_ARGUMENT, "bad topic", False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many requests", False),
        (grpc.StatusCode.PERMISSION_DENIED, "may not produce", False),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_a_call_that_failed_may_have_written_unless_the_daemon_refused_it(
    status: grpc.StatusCode, details: str, unsure: bool, before: int
) -> None:
    """A producer that failed in the middle of a batch was counted as if it had written nothing."""
    daemon = Daemon(answers={1 + before // 2: CallError(status, details)})
    shown = failure(daemon, [b"x"] * before + [b"a", b"b"], most=2)
    more = ", 2 more may have been" * unsure
    count = f"; stopped: {before} messages written to foo{more}; go on with --skip {before}"
    assert shown == f"{status.name}: {details}{count if before or unsure else ''}"


REFUSED = CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many requests")
GONE = DaemonGone(grpc.StatusCode.UNAVAILABLE, "no daemon answers at d:1")


@pytest.mark.parametrize(
    ("answers", "shown"),
    [
        (
            {2: REFUSED},
            "not written: message 2: RESOURCE_EXHAUSTED: Too many requests; --skip leaves them out, so write them by themselves; "
            "stopped: 3 messages written to foo; go on with --skip 4",
        ),
        ({4: REFUSED}, "RESOURCE_EXHAUSTED: Too many requests; stopped: 3 messages written to foo; go on with --skip 3"),
        (
            {2: GONE, 3: GONE, 4: GONE},
            "UNAVAILABLE: no daemon answers at d:1; stopped: 1 message written to foo, 3 more may have been; go on with --skip 1",
        ),
        (
            {2: REFUSED, 3: GONE},
            "perhaps not written: messages 2, 3: RESOURCE_EXHAUSTED: Too many requests; --skip leaves them out, so write them by "
            "themselves; stopped: 2 messages written to foo, 1 more may have been; go on with --skip 4",
        ),
    ],
)  # fmt: skip
def test_async_counts_all_calls_that_have_begun(answers: dict[int, Any], shown: str) -> None:
    """It counted up to the first that failed, so --skip wrote those behind it twice."""
    daemon = Daemon(answers=answers)
    assert failure(daemon, [b"a", b"b", b"c", b"d"], asynchronous=True) == shown
    assert len(daemon.requests) == 4


def test_async_counts_all_calls_that_have_begun_at_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    assert write(Daemon(answers={2: KeyboardInterrupt()}), [b"a", b"b", b"c", b"d"], asynchronous=True) == 130
    assert capsys.readouterr().err == "interrupted: 4 messages written to foo; go on with --skip 4\n"


@pytest.mark.usefixtures("signals")
def test_async_begins_no_more_calls_after_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    class Struck(Daemon):
        def begin(self, method: str, request: Any) -> Any:
            if len(self.requests) == 2:
                signal.raise_signal(signal.SIGINT)
            return super().begin(method, request)

    daemon = Struck()
    assert write(daemon, [b"a", b"b", b"c", b"d"], asynchronous=True) == 130 and len(daemon.requests) == 2
    assert capsys.readouterr().err == "interrupted: 2 messages written to foo; go on with --skip 2\n"


def test_a_second_ctrl_c_waits_for_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """Only answers that are there count: a thousand calls are not asked one after the other."""

    class Waiting(Daemon):
        def __init__(self) -> None:
            super().__init__(answers={2: KeyboardInterrupt(), 3: KeyboardInterrupt()})
            self.within: list[float | None] = []

        def answer(self, request: Any, method: str, **more: Any) -> Any:
            self.within.append(more["within"])
            return super().answer(request, method, **more)

    daemon = Waiting()
    assert write(daemon, [b"a", b"b", b"c"], asynchronous=True) == 130
    first, second, third, *rest = daemon.within
    assert first is second is None and third is not None and 0 < third <= 5 and rest == [0.0, 0.0]
    assert capsys.readouterr().err == "interrupted: 3 messages written to foo; go on with --skip 3\n"


@pytest.mark.parametrize("within", [0.0, 0.001])
def test_an_answer_is_awaited_no_longer_than_said(within: float) -> None:
    class Pending:
        def __init__(self) -> None:
            self.asked: list[float] = []

        def result(self, timeout: float) -> Any:
            self.asked.append(timeout)
            raise grpc.FutureTimeoutError

    pending = Pending()
    with Session(Settings("127.0.0.1:1")) as session, pytest.raises(CallError, match="did not answer Prod"):
        session.answer(pending, "Produce", within=within)
    assert max(pending.asked) <= within


@pytest.mark.parametrize("asynchronous", [False, True])
def test_ctrl_c_while_no_answer_comes_is_no_failure(
    asynchronous: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with 1 after the five seconds, so a supervisor saw a failure and not its own signal."""
    late = CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "d:1 did not answer")
    daemon = Daemon(answers={1: KeyboardInterrupt(), 2: late, 3: late})
    assert write(daemon, [b"a", b"b"], asynchronous=asynchronous) == 130
    err = capsys.readouterr().err
    assert err == "interrupted: 0 messages written to foo, 2 more may have been; go on with --skip 0\n"


@pytest.mark.usefixtures("signals")
def test_a_signal_together_with_an_answer_sends_no_further_batch(capsys: pytest.CaptureFixture[str]) -> None:
    """The batch after it counted as one that may have been written, although it was never sent."""
    daemon = Daemon(answers={2: signal.SIGINT})
    assert write(daemon, [b"a", b"b", b"c"], most=1) == 130 and len(daemon.requests) == 2
    assert capsys.readouterr().err == "interrupted: 2 messages written to foo; go on with --skip 2\n"


@pytest.mark.usefixtures("signals")
def test_a_signal_together_with_an_answer_ends_the_wait_for_input(capsys: pytest.CaptureFixture[str]) -> None:
    """It was forgotten until the next line came."""
    over, gave_up = threading.Event(), []

    def quiet() -> Iterator[bytes]:
        yield b"a\n"
        gave_up.append(not over.wait(10))

    with Bar("producing", prints=True) as bar:
        writer = Writer(Daemon(answers={1: signal.SIGINT}), "foo", Shape(), bar)  # type: ignore[arg-type]
        code = writer.run(ReadAhead(quiet()), 1, 0)
    assert code == 130 and not gave_up
    over.set()
    assert capsys.readouterr().err == "interrupted: 1 message written to foo; go on with --skip 1\n"


@pytest.mark.usefixtures("signals")
def test_a_signal_while_an_answer_is_counted_leaves_the_whole_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Results(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            signal.raise_signal(signal.SIGINT)
            return super().__iter__()

    class Counting(Daemon):
        def answer(self, request: Any, method: str, **more: Any) -> Any:
            answer = super().answer(request, method, **more)
            return SimpleNamespace(results=Results(answer.results)) if len(self.requests) == 2 else answer

    assert write(Counting(), [b"a", b"b", b"c", b"d", b"e", b"f"], most=2) == 130
    assert capsys.readouterr().err == "interrupted: 4 messages written to foo; go on with --skip 4\n"


def test_an_input_that_fails_leaves_the_count() -> None:
    def failing() -> Iterator[bytes]:
        yield b"a\n"
        yield b"b\n"
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Bar("producing", prints=True) as bar:
        writer = Writer(Daemon(), "foo", Shape(), bar)  # type: ignore[arg-type]
        with pytest.raises(ShellError) as caught:
            writer.run(ReadAhead(failing(), 1, "--lines a.txt"), 1, 1)
    assert caught.value.code == 1 and str(caught.value) == (
        "--lines a.txt: Input/output error; stopped: 1 message written to foo; go on with --skip 2"
    )


class Full(Output):
    """Standard output on a full disk."""

    def document(self, document: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("struck", "documents"), [(1, 2), (2, 1)])
def test_documents_of_a_batch_are_all_printed_unless_a_second_signal_comes(
    struck: int, documents: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Struck(Output):
        printed = 0

        def document(self, document: Any) -> None:
            self.printed += 1
            for _ in range(struck * (self.printed == 1)):
                signal.raise_signal(signal.SIGINT)

    daemon = Daemon()
    daemon.out = out = Struck("json")
    assert write(daemon, [b"a", b"b", b"c"], most=2) == 130 and out.printed == documents
    assert capsys.readouterr().err == "interrupted: 2 messages written to foo; go on with --skip 2\n"


def test_an_output_that_fails_leaves_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages that were not written are named all the same."""
    daemon = Daemon({b"bad": "it broke"})
    daemon.out = Full("json")
    with pytest.raises(OSError, match="No space left"):
        write(daemon, [b"a", b"b", b"c"], most=2)
    assert capsys.readouterr().err == "stopped: 2 messages written to foo; go on with --skip 2\n"
    assert failure(daemon, [b"a", b"bad"]) == (
        "not written: message 2: it broke; stopped: 1 message written to foo; go on with --skip 1"
    )


@pytest.mark.parametrize(
    ("number", "usual", "code"),
    [(signal.SIGINT, signal.default_int_handler, 130), (signal.SIGTERM, signal.SIG_DFL, 143)],
)
def test_ctrl_c_and_sigterm_leave_the_count(
    number: signal.Signals, usual: Any, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM ended the program without a word, so nobody knew where to go on."""

    def update(count: int, _size: int = 0) -> None:
        if count == 2:
            signal.raise_signal(number)

    before = signal.signal(number, usual)
    try:
        with interrupts.remembered(), Bar("producing", prints=True) as bar:
            assert signal.getsignal(number) is not usual, "it would end the tests"
            bar.update = update  # type: ignore[method-assign]
            writer = Writer(Daemon(), "foo", Shape(), bar)  # type: ignore[arg-type]
            assert writer.run(read([b"a", b"b", b"c"]), 1, 5) == code
    finally:
        signal.signal(number, before)
    assert capsys.readouterr().err == "interrupted: 2 messages written to foo; go on with --skip 7\n"

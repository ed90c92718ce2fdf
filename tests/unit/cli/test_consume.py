"""``kafka-pixy consume`` without a daemon: what ends it, what it waits for, and what it says about the end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from pixy.cli.shell import consume as command, interrupts
from pixy.cli.shell.consume import _close, _ending, _Loop
from pixy.cli.shell.errors import CallError, DaemonGone, WrongServer
from pixy.cli.shell.message_format import Message, formatter
from pixy.cli.shell.output import Output
from pixy.cli.shell.progress import Bar
from pixy.cli.shell.readers import GroupReader, Reader
from pixy.proto import kafkapixy_pb2 as pb

MESSAGE = Message("foo", 0, 7, None, b"m", (), 0)
UNAVAILABLE = CallError(grpc.StatusCode.UNAVAILABLE, "group bar is restarting, try again")
NO_BROKER = CallError(
    grpc.StatusCode.INTERNAL,
    "kafka: client has run out of available brokers to talk to (Is your cluster reachable?)",
)


class Session:
    """A session whose calls a test answers; it writes down their deadlines."""

    def __init__(self, answers: dict[str, Any] | None = None, timeout: float = 90.0) -> None:
        self.server, self.cluster, self.timeout, self.out = "d:1", "", timeout, Output("table")
        self._answers = answers or {}
        self.deadlines: list[tuple[str, float]] = []

    def begin(self, method: str, request: Any) -> Any:
        return request

    def answer(self, request: Any, method: str, **_: Any) -> Any:
        return self.call(method, request)

    def call(self, method: str, _request: Any, timeout: float | None = None) -> Any:
        self.deadlines.append((method, self.timeout if timeout is None else timeout))
        answer = self._answers[method]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Script:
    """A reader that does what a test wrote down: a message, None, or an error to raise."""

    def __init__(
        self, *steps: Message | CallError | None, closes: CallError | None = None, left: int = 0
    ) -> None:
        self._steps, self._closes, self._left = list(steps), closes, left
        self.acknowledged: list[int] = []

    def next(self) -> Message | None:
        step = self._steps.pop(0)
        if isinstance(step, CallError):
            raise step
        return step

    def done(self, message: Message) -> None:
        self.acknowledged.append(message.offset)

    def finished(self) -> bool:
        return not self._left

    def behind(self) -> int:
        return self._left

    def out(self) -> int:
        return 0

    def close(self) -> None:
        if self._closes is not None:
            raise self._closes


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(command.time, "sleep", waited.append)
    return waited


def loop(open_reader: Callable[[], Reader]) -> _Loop:
    return _Loop(Session(), open_reader, formatter(r"%s\n"), Bar("consuming", prints=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [5.0, 300.0])
def test_the_deadline_of_a_long_poll_is_that_of_timeout(given: float) -> None:
    found = pb.ConsRs(partition=0, offset=7, message=b"m")
    session = Session({"GetOffsets": pb.GetOffsetsRs(), "ConsumeNAck": found}, timeout=given)
    reader = GroupReader(session, "foo", "bar", "explicit", from_beginning=False)  # type: ignore[arg-type]
    message = reader.next()
    assert message is not None and message.offset == 7
    assert session.deadlines[-1] == ("ConsumeNAck", given)


@pytest.mark.parametrize(
    ("error", "back"),
    [
        (UNAVAILABLE, "serves again"),
        (NO_BROKER, "serves again"),
        (CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests"), "serves again"),
        (
            CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "d:1 did not answer ConsumeNAck in time"),
            "serves again",
        ),
        (DaemonGone(grpc.StatusCode.UNAVAILABLE, "no daemon answers at d:1"), "is back"),
    ],
)
@pytest.mark.parametrize("opening", [True, False])
def test_follow_goes_on_after_what_passes(
    error: CallError, back: str, opening: bool, pauses: list[float], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """While a message is awaited, and before there was any."""
    reader = Script(MESSAGE) if opening else Script(error, error, MESSAGE)
    failures = [error, error] if opening else []

    def open_reader() -> Reader:
        if failures:
            raise failures.pop()
        return reader

    assert loop(open_reader).run(1, follow=True, until_end=False) == 1
    assert pauses == [0.5, 1.0]
    out, err = capfdbinary.readouterr()
    assert out == b"m\n"
    assert err.decode() == f"{error.details}; trying again until Ctrl-C\nthe daemon at d:1 {back}\n"


@pytest.mark.parametrize(
    "error",
    [
        CallError(grpc.StatusCode.UNAVAILABLE, "service is disabled by configuration"),
        CallError(grpc.StatusCode.NOT_FOUND, "topic 'foo' does not exist"),
        CallError(grpc.StatusCode.PERMISSION_DENIED, "may not consume"),
        CallError(grpc.StatusCode.INTERNAL, "it broke"),
        WrongServer(grpc.StatusCode.UNAVAILABLE, "the certificate of d:1 is not trusted"),
    ],
)
def test_follow_ends_at_what_does_not_pass(error: CallError, pauses: list[float]) -> None:
    with pytest.raises(CallError, match=error.details):
        loop(lambda: Script(error)).run(0, follow=True, until_end=False)
    assert pauses == []


def test_without_follow_an_error_ends_it(pauses: list[float]) -> None:
    with pytest.raises(CallError, match="is restarting"):
        loop(lambda: Script(UNAVAILABLE)).run(1, follow=False, until_end=False)
    assert pauses == []


def test_a_last_acknowledgement_that_is_refused_is_explained() -> None:
    refused = CallError(grpc.StatusCode.FAILED_PRECONDITION, "acks channel missing")
    with pytest.raises(
        CallError, match="the last message was not acknowledged, so it comes again: acks channel"
    ):
        loop(lambda: Script(MESSAGE, closes=refused)).run(1, follow=True, until_end=False)


@pytest.mark.parametrize(("left", "code"), [(0, 0), (1, 4), (2, 4)])
def test_until_end_that_has_not_seen_the_end_says_so(
    left: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = loop(lambda: Script(MESSAGE, None, left=left))
    got = reading.run(0, follow=False, until_end=True)
    assert _ending(reading.reader, got, 0, until_end=True) == code
    err = capsys.readouterr().err
    assert err.startswith(f"the end of {left} partition{'s' * (left > 1)} was not seen: ") is bool(left)


def test_until_end_that_has_seen_the_end_asks_for_no_more_messages() -> None:
    """The help said 4, whatever --until-end has seen."""
    reading = loop(lambda: Script(MESSAGE, None))
    assert _ending(reading._open(), 1, 10, until_end=True) == 0
    assert _ending(reading._open(), 1, 10, until_end=False) == 4
    assert "unless --until-end has reached the end" in command.consume.exits[4]


def of_group(sparse: str = "", offset: int = 0, end: int = 6) -> pb.GetOffsetsRs:
    """A group's offsets in a partition."""
    found = pb.PartitionOffset(partition=0, begin=0, end=end, offset=offset, sparse_acks=sparse)
    return pb.GetOffsetsRs(offsets=[found])


def consumed(*offsets: int) -> list[Any]:
    nothing = CallError(grpc.StatusCode.NOT_FOUND, "no message")
    return [*(pb.ConsRs(partition=0, offset=at, message=b"m") for at in offsets), nothing]


OUT = "is out with other clients; unless they are acknowledged, they come again after ack_timeout"


@pytest.mark.parametrize(
    ("offsets", "messages", "code", "shown"),
    [
        # Another client has message 0.
        ([of_group(), of_group("1-6")], consumed(1, 2, 3, 4, 5), 4, f"1 message {OUT}"),
        # The same from the beginning on: the end was seen by somebody.
        ([of_group("1-6")], consumed(), 4, f"1 message {OUT}"),
        # It has come again meanwhile, or was committed late.
        ([of_group("1-6")], consumed(0), 0, ""),
        ([of_group(), of_group(), of_group("", 6)], consumed(1, 2, 3, 4, 5), 0, ""),
        ([of_group("", 6)], consumed(), 0, ""),
        # Nobody has seen the end.
        ([of_group("", 3)], consumed(3, 4), 4, "the end of 1 partition was not seen: nothing came for a while. Messages that are out "),
    ],
)  # fmt: skip
def test_until_end_of_a_group_counts_what_is_out(
    offsets: list[Any], messages: list[Any], code: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with 0 although messages were missing, and with 4 for an end that others had acknowledged."""
    session = Session({"GetOffsets": offsets, "ConsumeNAck": messages, "Ack": pb.AckRs()})
    reading = loop(lambda: GroupReader(session, "foo", "bar", "explicit", from_beginning=False))  # type: ignore[arg-type]
    got = reading.run(0, follow=False, until_end=True)
    assert _ending(reading.reader, got, 0, until_end=True) == code
    assert capsys.readouterr().err.startswith(shown) and bool(shown) is bool(code)


NEW = "no messages; a new group begins at the end of a topic, "


@pytest.mark.parametrize(
    ("offsets", "messages", "got", "code", "shown"),
    [
        # initial_offset: oldest. The group's messages come, the last of them ends it.
        ([of_group("", -1, 2)], consumed(0, 1), 2, 0, ""),
        # newest. The daemon commits the end as the beginning.
        ([of_group("", -1, 2), of_group("", 2, 2)], consumed(), 0, 0, NEW),
        # Others have written meanwhile, or it has not joined yet.
        ([of_group("", -1, 2), of_group("", 2, 3)], consumed(2), 1, 0, ""),
        ([of_group("", -1, 2)], consumed(), 0, 4, "the end of 1 partition was not seen: "),
        # There is nothing that it could read.
        ([of_group("", -1, 0)], consumed(), 0, 0, ""),
    ],
)
def test_until_end_of_a_new_group_asks_where_it_begins(
    offsets: list[Any],
    messages: list[Any],
    got: int,
    code: int,
    shown: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It took -1 for the end: nothing was read, whatever consumer.initial_offset says."""
    session = Session({"GetOffsets": offsets, "ConsumeNAck": messages, "Ack": pb.AckRs()})
    reading = loop(lambda: GroupReader(session, "foo", "bar", "explicit", from_beginning=False))  # type: ignore[arg-type]
    assert reading.run(0, follow=False, until_end=True) == got
    assert _ending(reading.reader, got, 0, until_end=True) == code
    err = capsys.readouterr().err
    assert err.startswith(shown) and bool(shown) is bool(err)


class Answering(Session):
    """A session in which a signal comes while the first message is awaited."""

    def __init__(self, message: pb.ConsRs | CallError) -> None:
        super().__init__({"GetOffsets": of_group(), "ConsumeNAck": message, "Ack": pb.AckRs()})
        self.cancelled = False

    def begin(self, method: str, request: Any) -> Any:
        interrupts.check()
        return self

    def answer(self, request: Any, method: str, **_: Any) -> Any:
        if not any(made == "interrupted" for made, _ in self.deadlines):
            self.deadlines.append(("interrupted", 0.0))
            raise KeyboardInterrupt
        return self.call(method, request)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("structured", [False, True])
def test_a_message_that_is_being_printed_at_ctrl_c_is_printed_and_acknowledged(
    structured: bool, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Between its arrival and its acknowledgement it was lost with ``--ack auto``, and came again otherwise."""

    class Struck(Message):
        def view(self) -> dict[str, Any]:
            signal.raise_signal(signal.SIGINT)
            return {"value": "m"}

    def shape(_message: Message) -> bytes:
        signal.raise_signal(signal.SIGINT)
        return b"m\n"

    reader = Script(Struck("foo", 0, 7, None, b"m", (), 0), UNAVAILABLE)
    session = Session()
    session.out = Output("json" if structured else "table")
    reading = _Loop(session, lambda: reader, shape, Bar("consuming", prints=True))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        reading.run(0, follow=True, until_end=False)
    assert capfdbinary.readouterr().out == (b'{"value": "m"}\n' if structured else b"m\n")
    assert reader.acknowledged == [7]


@pytest.mark.usefixtures("signals")
def test_a_second_ctrl_c_ends_the_wait_for_a_reader_that_does_not_read() -> None:
    def blocked(_message: Message) -> bytes:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it waits on")

    reader = Script(MESSAGE)
    reading = _Loop(Session(), lambda: reader, blocked, Bar("consuming", prints=True))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        reading.run(0, follow=True, until_end=False)
    assert reader.acknowledged == []


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("at", ["with the message", "with the acknowledgement"])
def test_the_last_message_is_acknowledged_at_ctrl_c(
    at: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """``consume`` without ``-n`` reads one: the signal ended its acknowledgement, which nobody made again."""

    class Struck(Session):
        def call(self, method: str, request: Any, timeout: float | None = None) -> Any:
            interrupts.check()
            if method == "Ack" and at == "with the acknowledgement" and not self.deadlines[2:]:
                self.deadlines.append(("cancelled", 0.0))
                raise KeyboardInterrupt
            answer = super().call(method, request, timeout)
            if method == "ConsumeNAck" and at == "with the message":
                signal.raise_signal(signal.SIGINT)
            return answer

    message = pb.ConsRs(partition=0, offset=0, message=b"m")
    session = Struck({"GetOffsets": of_group(), "ConsumeNAck": message, "Ack": pb.AckRs()})
    reading = loop(lambda: GroupReader(session, "foo", "bar", "explicit", from_beginning=False))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        reading.run(1, follow=False, until_end=False)
    interrupts.handled()
    assert reading.reader is not None and capfdbinary.readouterr().out == b"m\n"
    _close(reading.reader)
    _close(reading.reader)
    assert [method for method, _ in session.deadlines].count("Ack") == 1


@pytest.mark.parametrize("comes", [True, False])
def test_a_message_that_is_on_its_way_at_ctrl_c_is_printed_and_acknowledged(
    comes: bool, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It was out with a client that had gone, until ack_timeout; a call without one is cancelled."""
    late = CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "d:1 did not answer ConsumeNAck")
    session = Answering(pb.ConsRs(partition=0, offset=0, message=b"m") if comes else late)
    reading = loop(lambda: GroupReader(session, "foo", "bar", "explicit", from_beginning=False))  # type: ignore[arg-type]
    try:
        with pytest.raises(KeyboardInterrupt):
            reading.run(0, follow=True, until_end=False)
    finally:
        interrupts.handled()
    assert capfdbinary.readouterr().out == b"m\n" * comes and session.cancelled is not comes
    assert reading.reader is not None
    reading.reader.close()
    assert [method for method, _ in session.deadlines].count("Ack") == comes

"""``kafka-pixy consume`` without a group, while the topic changes: made again, shorter, or with more partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from pixy.cli.shell import readers
from pixy.cli.shell.errors import CallError
from pixy.cli.shell.output import Output
from pixy.cli.shell.places import BEGIN
from pixy.cli.shell.readers import PartitionReader
from pixy.proto import kafkapixy_pb2 as pb

MADE_AGAIN = "topic foo was made again, or has lost its end: it is read from its oldest message on\n"


class Logs:
    """A session with a topic whose logs a test writes.

    Attributes:
        logs: values by partition; the offset of a value is its place.
        topic_id: empty as before Kafka 2.8.
        fails_at: the time of ``FindOffsets`` that is not answered.

    Args:
        logs: the first ones.
        markers: of transactions, at the end of partition 0.
    """

    def __init__(self, logs: dict[int, str], markers: int = 0) -> None:
        self.server, self.cluster, self.timeout, self.out = "d:1", "", 90.0, Output("table")
        self.logs = logs
        self.topic_id = ""
        self.fails_at: int | None = None
        self._markers = markers

    def call(self, method: str, request: Any) -> Any:
        if method == "Fetch":
            values = self.logs[request.partition][request.offset :]
            return pb.FetchRs(
                records=[
                    pb.Record(offset=request.offset + at, value=value.encode(), key_undefined=True)
                    for at, value in enumerate(values)
                ]
            )
        if request.time == self.fails_at:
            raise CallError(grpc.StatusCode.UNAVAILABLE, "gone")
        places = {number: 0 if request.time == BEGIN else len(values) for number, values in self.logs.items()}
        if request.time != BEGIN:
            places[0] += self._markers
        return pb.FindOffsetsRs(
            offsets=[pb.PartitionOffset(partition=number, offset=at) for number, at in places.items()],
            topic_id=self.topic_id,
        )


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The readers' time: it passes while they sleep."""
    made = SimpleNamespace(now=100.0, monotonic=lambda: made.now)

    def sleep(seconds: float) -> None:
        made.now += seconds

    made.sleep = sleep
    monkeypatch.setattr(readers, "time", made)
    return made


def read(reader: PartitionReader, waits: int = 3) -> list[str]:
    """Return what comes until nothing has come for some waits."""
    found: list[str] = []
    while waits:
        message = reader.next()
        if message is None:
            waits -= 1
        else:
            found.append(f"{message.partition}:{(message.value or b'').decode()}")
    return found


def reader_of(session: Logs, *partitions: int) -> PartitionReader:
    return PartitionReader(session, "foo", partitions, BEGIN)  # type: ignore[arg-type]


@pytest.mark.parametrize("logs", [{0: "xy"}, {0: ""}, {0: "x", 1: "yz"}])
def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    logs: dict[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was written to it never came, and nobody said so."""
    session = Logs({0: "abcde"})
    reader = reader_of(session)
    assert read(reader) == [f"0:{each}" for each in "abcde"]
    session.logs = logs
    assert sorted(read(reader)) == [f"{number}:{each}" for number, log in logs.items() for each in log]
    assert capsys.readouterr().err == MADE_AGAIN
    session.logs = {number: f"{log}!" for number, log in logs.items()}
    assert sorted(read(reader)) == [f"{number}:!" for number in logs]
    assert capsys.readouterr().err == ""


def test_a_log_that_is_shorter_for_a_moment_is_not_read_again(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """A leader that has just been elected may not know its end."""
    session = Logs({0: "abc"})
    reader = reader_of(session)
    assert read(reader) == ["0:a", "0:b", "0:c"]
    session.logs = {0: "ab"}

    def grow(seconds: float) -> None:
        clock.now += seconds
        session.logs = {0: "abcd"}

    clock.sleep = grow
    assert read(reader) == ["0:d"] and capsys.readouterr().err == ""


@pytest.mark.parametrize("chosen", [(), (0,)])
def test_partitions_that_are_added_are_read_unless_some_are_chosen(chosen: tuple[int, ...]) -> None:
    session = Logs({0: "a"})
    reader = reader_of(session, *chosen)
    assert read(reader) == ["0:a"]
    session.logs = {0: "a", 1: "b"}
    assert read(reader) == ["1:b"] * (not chosen)


def test_a_log_that_ends_with_a_marker_does_not_keep_other_partitions_from_being_read() -> None:
    """Their ends were not looked at again: no read of the first one reaches its end."""
    session = Logs({0: "ab", 1: ""}, markers=1)
    reader = reader_of(session)
    assert read(reader) == ["0:a", "0:b"]
    session.logs = {0: "ab", 1: "c", 2: "d"}
    assert read(reader) == ["1:c", "2:d"]


# -- topic ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("logs", [{0: "uvwxyz"}, {0: "uvw"}, {0: "uvw", 1: "xyz"}, {0: ""}])
def test_another_topic_of_that_name_is_read_from_its_beginning(
    logs: dict[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One that had already grown past the place that was read up to lost its first messages, in silence."""
    session = Logs({0: "abc"})
    session.topic_id = "one"
    reader = reader_of(session)
    assert read(reader) == ["0:a", "0:b", "0:c"]
    session.logs, session.topic_id = logs, "two"
    assert sorted(read(reader)) == [f"{number}:{each}" for number, log in logs.items() for each in log]
    assert capsys.readouterr().err == "topic foo was made again: it is read from its oldest message on\n"
    session.logs = {number: f"{log}!" for number, log in logs.items()}
    assert sorted(read(reader)) == [f"{number}:!" for number in logs]
    assert capsys.readouterr().err == ""


def test_an_id_that_is_not_told_for_a_while_is_no_other_one(capsys: pytest.CaptureFixture[str]) -> None:
    session = Logs({0: "a"})
    session.topic_id = "one"
    reader = reader_of(session)
    assert read(reader) == ["0:a"]
    for session.topic_id in ("", "one"):
        session.logs = {0: session.logs[0] + "b"}
        assert read(reader) == ["0:b"]
    assert capsys.readouterr().err == ""


def test_a_daemon_that_fails_while_a_topic_begins_anew_is_asked_again() -> None:
    """``--follow`` reads on with the same reader once the daemon is back."""
    session = Logs({0: "ab"})
    session.topic_id = "one"
    reader = reader_of(session)
    assert read(reader) == ["0:a", "0:b"]
    session.logs, session.topic_id = {0: "xyz"}, "two"
    session.fails_at = BEGIN
    with pytest.raises(CallError):
        reader.next()
    session.fails_at = None
    assert read(reader) == ["0:x", "0:y", "0:z"]

"""``kafka-pixy produce`` without a daemon: what a call holds, and how to go on after messages that were not written."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import CallError, ShellError
from pixy.cli.shell.output import Output
from pixy.cli.shell.produce import Writer
from pixy.cli.shell.produce_input import ReadAhead, Shape, to_record
from pixy.cli.shell.progress import Bar
from pixy.proto import kafkapixy_pb2 as pb

MEGABYTE = 1024 * 1024
"""What each daemon receives in one call."""


class Daemon:
    """A session whose daemon answers what a test wants.

    Args:
        errors: of the messages with these texts.
        refuses: the error of every call.
    """

    def __init__(self, errors: dict[bytes, str] | None = None, refuses: CallError | None = None) -> None:
        self.server, self.cluster, self.timeout, self.out = "d:1", "", 1.0, Output("table")
        self._errors, self._refuses = errors or {}, refuses
        self.requests: list[Any] = []

    def begin(self, _method: str, request: Any) -> Any:
        self.requests.append(request)
        return request

    def answer(self, request: Any, method: str, **_: Any) -> Any:
        if self._refuses is not None:
            raise self._refuses
        if method == "Produce":
            return pb.ProdRs(partition=-1, offset=-1)
        results = [pb.ProdResult(error=self._errors.get(each.value, "")) for each in request.records]
        return SimpleNamespace(results=results)


def write(daemon: Daemon, lines: list[bytes], *, skip: int = 0, most: int = 1000, **shape: Any) -> int:
    """Write lines that have all been read before the first call."""
    asynchronous = shape.pop("asynchronous", False)
    with Bar("producing", prints=True) as bar:
        writer = Writer(daemon, "foo", Shape(**shape), bar, asynchronous=asynchronous)  # type: ignore[arg-type]
        return writer.run(read(lines, skip), most, skip)


def read(lines: list[bytes], skip: int = 0) -> ReadAhead:
    ended = threading.Event()

    def source() -> Iterator[bytes]:
        yield from (line + b"\n" for line in lines)
        ended.set()

    made = ReadAhead(source(), skip)
    assert ended.wait(30)
    return made


def failure(daemon: Daemon, lines: list[bytes], **options: Any) -> str:
    with pytest.raises(ShellError) as caught:
        write(daemon, lines, **options)
    assert caught.value.code == 1
    return str(caught.value)


@pytest.mark.parametrize(
    ("lines", "skip", "shown"),
    [
        # Not a prefix: the one that failed is named, and nothing is written twice.
        (
            [b"a", b"bad", b"c"],
            0,
            "not written: message 2: it broke; --skip leaves them out, so write them by themselves; "
            "stopped: 2 messages written to foo; go on with --skip 3",
        ),
        ([b"a", b"b", b"bad"], 0, "not written: message 3: it broke; stopped: 2 messages written to foo; go on with --skip 2"),
        ([b"x", b"y", b"a", b"bad"], 2, "not written: message 4: it broke; stopped: 1 message written to foo; go on with --skip 3"),
        ([b"bad"] * 7, 0, "not written: messages 1, 2, 3, 4, 5 and 2 more: it broke; stopped: 0 messages written to foo; go on with --skip 0"),
    ],
)  # fmt: skip
def test_where_to_go_on_after_a_message_that_was_not_written(
    lines: list[bytes], skip: int, shown: str
) -> None:
    assert failure(Daemon({b"bad": "it broke"}), lines, skip=skip) == shown


def test_a_line_that_is_not_json_has_the_same_number() -> None:
    lines = [b"{}", b'{"value": "a"}', b"{"]
    shown = failure(Daemon(), lines, skip=1, most=1, json_lines=True)
    assert shown.startswith("line 3: not JSON: ") and shown.endswith(
        "1 message written to foo; go on with --skip 2"
    )


@pytest.mark.parametrize("status", [grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL])
def test_a_call_without_an_answer_may_have_written(status: grpc.StatusCode) -> None:
    daemon = Daemon(refuses=CallError(status, "d:1 did not answer"))
    with pytest.raises(ShellError) as caught:
        write(daemon, [b"a", b"b"])
    assert ("0 messages written to foo, 2 more may have been; go on with --skip 0" in str(caught.value)) is (
        status is grpc.StatusCode.DEADLINE_EXCEEDED
    )


def test_a_batch_leaves_out_the_line_that_has_no_room() -> None:
    source, shape = read([b"x" * 13_000] * 20 + [b"y" * 900_000] + [b"z"]), Shape()
    found = []
    while records := source.batch(1000, 262_144, lambda line, number: to_record(line, number, shape))[0]:
        found.append((len(records), records[0].value[:1]))
        assert len(records) == 1 or sum(each.ByteSize() for each in records) < 262_144
    assert found == [(20, b"x"), (1, b"y"), (1, b"z")]


@pytest.mark.parametrize(
    "shape", [{"headers": (("trace", b"t" * 1100),)}, {"key": b"k" * 1100}, {"json_lines": True}]
)
def test_keys_and_headers_count_for_the_size_of_a_call(shape: dict[str, Any]) -> None:
    daemon, line = Daemon(), b'{"value": 1}'
    assert (
        write(daemon, [line] * 2000 + [b'"' + b"x" * 300_000 + b'"'] * ("json_lines" not in shape), **shape)
        == 0
    )
    assert sum(len(each.records) for each in daemon.requests) >= 2000
    assert all(each.ByteSize() < MEGABYTE // 2 for each in daemon.requests)


def test_a_message_that_is_too_large_alone_says_so() -> None:
    daemon = Daemon(refuses=CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max"))
    with pytest.raises(ShellError, match=r"message 3 has \d+ bytes with key and headers: producer\.max_mess"):
        write(daemon, [b"a", b"b", b"c" * 2_000_000], skip=2)


@pytest.mark.parametrize("line", [{"partition": 1}, {"partition": 0}, {"timestamp": 5}, {"value": None}])
def test_async_takes_nothing_that_it_would_drop(line: dict[str, Any]) -> None:
    """``consume --json`` prints partition and timestamp: they must not be lost without a word."""
    daemon, lines = Daemon(), [json.dumps({"value": "x", **line}).encode()]
    with pytest.raises(
        ShellError, match="--async takes neither partitions nor timestamps nor tombst"
    ) as caught:
        write(daemon, lines, json_lines=True, asynchronous=True)
    assert caught.value.code == 2 and daemon.requests == []
    assert write(daemon, [b'{"value": "x"}'], json_lines=True, asynchronous=True) == 0


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

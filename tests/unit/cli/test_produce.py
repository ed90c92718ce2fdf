"""``kafka-pixy produce`` without a daemon: what a call holds, and how to go on after messages that were not written."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from pixy.cli.shell.errors import CallError, DaemonGone, ShellError, of_call
from pixy.cli.shell.produce_input import ReadAhead, Shape, to_record
from tests.unit.cli.produce_daemon import Daemon, failure, read, write

NO_BROKER = "kafka: client has run out of available brokers to talk to (Is your cluster reachable?)"
MEGABYTE = 1024 * 1024
"""What each daemon receives in one call."""


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


@pytest.mark.parametrize(
    ("name", "messages"),
    [("standard input", [b"x\r", b"", b"", b"y\n"]), ("", [b"x\r\r\n", b"\r\n", b"\n", b"y\n\r"])],
)
def test_a_line_loses_its_end_and_a_whole_message_nothing(name: str, messages: list[bytes]) -> None:
    """A file that is a message lost its last bytes if they were line ends."""
    source, shape = ReadAhead([b"x\r\r\n", b"\r\n", b"\n", b"y\n\r"], 0, name), Shape()
    written: list[bytes] = []
    while records := source.batch(9, 999, lambda line, number: to_record(line, number, shape))[0]:
        written += [each.value for each in records]
    assert written == messages


NO_CONNECTION = {
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: "
    "Connection refused": "connection refused",
    "DNS resolution failed for d:1: C-ares status is not ARES_SUCCESS": "no such host",
}


@pytest.mark.parametrize("details", NO_CONNECTION)
def test_a_call_without_a_connection_has_not_written(details: str) -> None:
    """After a first call that went well, too: only an answer that is lost leaves a doubt."""

    class Failed:
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.UNAVAILABLE

        def details(self) -> str:
            return details

    gone = of_call(Failed(), "d:1", "ProduceMany")
    text = (
        f"UNAVAILABLE: no daemon answers at d:1: {NO_CONNECTION[details]}; start one (kafka-pixy --sandbox), "
    )
    text += "or name another with --server or KAFKA_PIXY_SERVER"
    assert failure(Daemon(refuses=gone), [b"a", b"b"]) == text
    daemon = Daemon(answers={2: gone})
    assert failure(daemon, [b"a", b"b", b"c"], most=1) == (
        f"{text}; stopped: 1 message written to foo; go on with --skip 1"
    )


STATUS = "; kafka-pixy status shows whether the daemon reaches Kafka"


@pytest.mark.parametrize(
    ("code", "details", "method", "text"),
    [
        (grpc.StatusCode.INTERNAL, NO_BROKER, "Produce", f"INTERNAL: {NO_BROKER}{STATUS}"),
        (grpc.StatusCode.INTERNAL, "Local: Message timed out", "Produce", f"INTERNAL: Local: Message timed out{STATUS}"),
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "",
            "Produce",
            f"DEADLINE_EXCEEDED: d:1 did not answer Produce in time; --timeout sets the seconds to wait{STATUS}",
        ),
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "",
            "GetStatus",
            "DEADLINE_EXCEEDED: d:1 did not answer GetStatus in time; --timeout sets the seconds to wait",
        ),
        (grpc.StatusCode.INTERNAL, "it broke", "Produce", "INTERNAL: it broke"),
    ],
)  # fmt: skip
def test_an_error_of_a_kafka_that_is_away_says_where_to_look(
    code: grpc.StatusCode, details: str, method: str, text: str
) -> None:
    error = SimpleNamespace(code=lambda: code, details=lambda: details)
    assert str(of_call(error, "d:1", method)) == text


def test_a_message_that_kafka_did_not_take_in_time_says_where_to_look() -> None:
    daemon = Daemon(errors={b"a": "Local: Message timed out"})
    assert failure(daemon, [b"a"]).startswith(
        f"not written: message 1: Local: Message timed out{STATUS}; stopped: 0 messages"
    )


def test_a_connection_that_breaks_leaves_a_doubt() -> None:
    lost = DaemonGone(grpc.StatusCode.UNAVAILABLE, "no daemon answers at d:1: it closed the connection")
    assert failure(Daemon(answers={2: lost}), [b"a", b"b"], most=1).endswith(
        "; stopped: 1 message written to foo, 1 more may have been; go on with --skip 1"
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


def test_a_partition_that_the_topic_lacks_is_named() -> None:
    text = "kafka server: Request was for a topic or partition that does not exist on this broker."
    daemon = Daemon(errors={b"a": text})
    daemon.topic = lambda *_, **__: SimpleNamespace(partitions=[0, 1, 2, 3])  # type: ignore[attr-defined]
    assert failure(daemon, [b"a"]).startswith(
        "not written: message 1: topic foo has no such partition: it has 0 to 3; stopped: 0 messages"
    )

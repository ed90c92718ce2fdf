"""Rows: protocol messages decoded and encoded, against kafka-python's codecs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.protocol.consumer.group import JoinGroupRequest, JoinGroupResponse
from kafka.protocol.metadata import MetadataResponse

from pixy.wire import consumer_protocol, frames, messages
from tests.bench.report import Report
from tests.bench.wire.timing import in_turn

_METADATA = consumer_protocol.encode_subscription(3, {"Topics": ["orders", "payments"], "GenerationId": 7})
_MEMBER = "rdkafka-6f0d3c1e-52f4-4b7e-9d4a-0a5d3a1f6c2b"
BODIES: dict[tuple[str, int], dict[str, Any]] = {
    ("JoinGroupRequest", 7): {
        "GroupId": "checkout",
        "SessionTimeoutMs": 45_000,
        "RebalanceTimeoutMs": 300_000,
        "MemberId": _MEMBER,
        "ProtocolType": "consumer",
        "Protocols": [
            {"Name": "range", "Metadata": _METADATA},
            {"Name": "cooperative-sticky", "Metadata": _METADATA},
        ],
    },
    ("JoinGroupResponse", 7): {
        "GenerationId": 7,
        "ProtocolType": "consumer",
        "ProtocolName": "range",
        "Leader": _MEMBER,
        "MemberId": _MEMBER,
        "Members": [{"MemberId": f"{_MEMBER}-{number}", "Metadata": _METADATA} for number in range(3)],
    },
    ("MetadataResponse", 12): {
        "Brokers": [{"NodeId": node, "Host": f"kafka-{node}.example.com", "Port": 9092} for node in range(3)],
        "Topics": [
            {
                "Name": f"topic-{number}",
                "Partitions": [
                    {
                        "PartitionIndex": index,
                        "LeaderId": index % 3,
                        "ReplicaNodes": [0, 1, 2],
                        "IsrNodes": [0, 1, 2],
                    }
                    for index in range(12)
                ],
            }
            for number in range(20)
        ],
    },
}
_THEIRS = {
    "JoinGroupRequest": JoinGroupRequest,
    "JoinGroupResponse": JoinGroupResponse,
    "MetadataResponse": MetadataResponse,
}
CALLS = 200
"""Calls per measured function: a loop around the call costs less than a lambda per call."""


def _loop(function: Callable[..., object], *arguments: object) -> Callable[[], object]:
    def run() -> None:
        for _ in range(CALLS):
            function(*arguments)

    return run


def decode(report: Report) -> None:
    """Measure decoding bytes to values."""
    for (name, version), body in BODIES.items():
        data = messages.encode(name, version, body)
        theirs = _THEIRS[name]
        found = theirs.decode(data, version=version)
        assert found.encode() == data, "the decoders disagree"
        rates = in_turn(
            [_loop(messages.decode, name, version, data), _loop(theirs.decode, data, version)], CALLS
        )
        _add_row(report, f"{name} v{version} decode, {len(data):,} bytes", 1.0, rates)


def encode(report: Report) -> None:
    """Measure encoding values to bytes."""
    for (name, version), body in BODIES.items():
        data = messages.encode(name, version, body)
        full = messages.decode(name, version, data)
        made = _THEIRS[name].decode(data, version=version)
        rates = in_turn([_loop(messages.encode, name, version, full), _loop(made.encode)], CALLS)
        _add_row(report, f"{name} v{version} encode, {len(data):,} bytes", 1.0, rates)


def split(report: Report) -> None:
    """Measure splitting a stream into frames, without and with decoding their headers."""
    stream = b"".join(
        frames.encode_request("Heartbeat", 4, number, "client", {"GroupId": "checkout", "MemberId": _MEMBER})
        for number in range(1000)
    )
    splitter = frames.FrameSplitter()

    def cut() -> None:
        for _ in splitter.feed(stream):
            pass

    def read() -> None:
        for each in splitter.feed(stream):
            frames.decode_request_header(each)

    (cutting, reading) = in_turn([cut, read], 1000)
    for what, rates, limit in (
        ("split off a stream", cutting, 1.0),
        ("split off a stream, its header decoded", reading, 5.0),
    ):
        micros = 1e6 / sorted(rates)[len(rates) // 2]
        report.add(
            f"a frame of {len(stream) // 1000} B {what}",
            f"{micros:.2f} us",
            f"<= {limit:g} us",
            micros <= limit,
            "",
        )


def _add_row(report: Report, what: str, target: float, rates: list[list[float]]) -> None:
    ours, theirs = rates
    middle = sorted(ours)[len(ours) // 2]
    report.times(f"{what}, against kafka-python", target, ours, theirs, f"{1e6 / middle:.2f} us")

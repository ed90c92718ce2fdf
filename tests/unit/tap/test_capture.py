"""Capture files: segments in any order, connections that began earlier, lost packets; the command line."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import dpkt
import pytest

from pixy.cli.tap import run
from pixy.errors import StartError
from pixy.tap.capture import Capture
from pixy.tap.capture_file import segments
from pixy.tap.config import TapConfig
from pixy.tap.observer import Observer
from pixy.wire import frames

CLIENT, BROKER = (b"\x0a\x00\x00\x01", 50001), (b"\x0a\x00\x00\x02", 9092)
CONFIG = TapConfig((("capture", 9092),))


class Talk:
    """The packets of one connection."""

    def __init__(self) -> None:
        self.packets: list[tuple[float, bytes]] = []
        self.now = 1_000_000.0
        self.sent = {CLIENT: 4_294_967_290, BROKER: 70}  # the client's sequence numbers begin before the wrap
        self.number = 0

    def packet(self, source: Any, data: bytes, flags: int = 16) -> None:
        target = BROKER if source is CLIENT else CLIENT
        tcp = dpkt.tcp.TCP(sport=source[1], dport=target[1], seq=self.sent[source], flags=flags, data=data)
        ip = dpkt.ip.IP(src=source[0], dst=target[0], p=6, data=tcp)
        self.packets.append((self.now, bytes(dpkt.ethernet.Ethernet(data=ip, type=0x0800))))
        self.sent[source] = (self.sent[source] + len(data) + bool(flags & 3)) % (1 << 32)
        self.now += 0.01

    def open(self) -> Talk:
        self.packet(CLIENT, b"", 2)
        self.packet(BROKER, b"", 18)
        return self

    def call(self, api: str, version: int, request: Any, response: Any, cut: int = 7) -> None:
        self.number += 1
        for source, data in (
            (CLIENT, frames.encode_request(api, version, self.number, "app", request)),
            (BROKER, frames.encode_response(api, version, self.number, response)),
        ):
            for at in range(0, len(data), cut):
                self.packet(source, data[at : at + cut])

    def commit(self, offset: int) -> None:
        partitions = [{"PartitionIndex": 0, "CommittedOffset": offset}]
        self.call(
            "OffsetCommit",
            7,
            {"GroupId": "g", "MemberId": "", "Topics": [{"Name": "t", "Partitions": partitions}]},
            {"Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0}]}]},
            cut=1_000,
        )

    def file(self, *, ng: bool = False) -> io.BytesIO:
        made = io.BytesIO()
        writer = dpkt.pcapng.Writer(made) if ng else dpkt.pcap.Writer(made)
        for at, packet in self.packets:
            writer.writepkt(packet, at)
        made.seek(0)
        return made


def observed(file: io.BytesIO) -> tuple[Observer, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    observer = Observer(CONFIG, events.append)
    capture = Capture(CONFIG, observer)
    for segment in segments(file):
        capture.take(segment)
    capture.finish()
    return observer, events


def offsets(observer: Observer) -> list[int]:
    return [each["committed"] for group in observer.snapshot(0.0)["groups"] for each in group["offsets"]]


@pytest.mark.parametrize("ng", [False, True])
def test_a_capture_is_read_as_if_it_passed_through(ng: bool) -> None:
    talk = Talk().open()
    talk.call(
        "ApiVersions",
        3,
        {"ClientSoftwareName": "librdkafka", "ClientSoftwareVersion": "2.16.0"},
        {"ApiKeys": []},
    )
    for offset in (5, 6, 7):
        talk.commit(offset)
    talk.packet(CLIENT, b"", 17)
    talk.packet(BROKER, b"", 17)
    observer, events = observed(talk.file(ng=ng))
    assert offsets(observer) == [7] and not observer.counts["undecodable"]
    assert [each["event"] for each in events] == ["connection.opened", "client", "connection.closed"]
    assert events[0]["broker"] == "10.0.0.2:9092" and events[0]["time"] == 1_000_000.0


@pytest.mark.parametrize("seed", range(5))
def test_segments_that_come_late_or_twice(seed: int) -> None:
    chance = random.Random(seed)
    talk = Talk().open()
    talk.call("Metadata", 5, {"Topics": []}, {"Brokers": [], "Topics": []})
    talk.commit(9)
    first, rest = talk.packets[:2], talk.packets[2:]
    mixed = []
    for at in range(0, len(rest), 4):  # a few packets change places, and some are sent again
        some = rest[at : at + 4]
        requests = [each for each in some if each[1][26:30] == CLIENT[0]]
        responses = [each for each in some if each[1][26:30] != CLIENT[0]]
        for each in (requests, responses):
            chance.shuffle(each)
        mixed += requests + responses + [chance.choice(some)]
    talk.packets = first + mixed
    observer, _ = observed(talk.file())
    assert offsets(observer) == [9] and observer.counts["requests"] == 2 == observer.counts["responses"]


def test_a_connection_that_began_before_the_capture_is_taken_up_at_a_request() -> None:
    talk = Talk()
    talk.packet(BROKER, b"the end of a response")
    talk.packet(CLIENT, b"the end of a request")
    talk.commit(5)
    observer, _ = observed(talk.file())
    assert offsets(observer) == [5]


def test_a_connection_with_lost_packets_ends_there() -> None:
    talk = Talk().open()
    talk.commit(5)
    talk.sent[CLIENT] += 100
    for _ in range(1_001):
        talk.packet(CLIENT, b"x")
    observer, events = observed(talk.file())
    assert offsets(observer) == [5]
    assert events[-1]["reason"] == "packets are missing in the capture"


def test_a_file_that_is_no_capture_and_one_that_is_cut_off() -> None:
    with pytest.raises(StartError, match="not a capture file"):
        list(segments(io.BytesIO(b"GET / HTTP/1.1" * 10)))
    talk = Talk().open()
    talk.commit(5)
    talk.commit(6)
    whole = talk.file().getvalue()
    assert offsets(observed(io.BytesIO(whole[:-10]))[0]) == [5]


@pytest.mark.parametrize("length", [0, 4, 8, 13, 0xFFFFFFFF])
@pytest.mark.parametrize("block", [0, 1, 3])
def test_a_block_of_an_impossible_length_is_one_line(
    block: int, length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Talk().open()
    talk.commit(5)
    data = bytearray(talk.file(ng=True).getvalue())
    at = 0
    for _ in range(block):
        at += int.from_bytes(data[at + 4 : at + 8], "little")
    data[at + 4 : at + 8] = length.to_bytes(4, "little")
    file = tmp_path / "k.pcapng"
    file.write_bytes(data)
    assert run(["--pcap", str(file), "--output", "json"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith(f"kafka-pixy tap: {file}: "), said
    assert f"at byte {at} " in said, said


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk().open()
    talk.commit(5)
    file = tmp_path / "k.pcap"
    file.write_bytes(talk.file().getvalue())
    assert run(["--pcap", str(file), "--output", "json"]) == 0
    *_, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert last["event"] == "snapshot" and last["groups"][0]["offsets"][0]["committed"] == 5
    assert run(["--pcap", str(file), "--output", "table"]) == 0
    assert "kafka-pixy tap" in capsys.readouterr().out
    file.write_bytes(b"")
    for arguments in (["--pcap", str(file)], ["--pcap", str(tmp_path / "none")]):
        assert run(arguments) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and said.startswith("kafka-pixy tap: "), said
    assert run(["--pcap", str(file), "--rewrite"]) == 2

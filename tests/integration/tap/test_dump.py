"""A dump of real clients' traffic: JSON lines with a filter, and packets that Wireshark's dissector understands, also of TLS."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pixy.tap.capture import Capture
from pixy.tap.capture_file import segments
from pixy.tap.config import TapConfig
from pixy.tap.dump_actor import DumpTarget
from pixy.tap.dump_filter import parse_filter
from pixy.tap.dump_writers import JsonDump, Limited, PcapngDump
from pixy.tap.observer import Observer
from pixy.tap.service import TapService
from tests.integration.tap.test_tls import make_config, produce_and_consume, settings
from tests.kafka.cluster import PASSWORD, Cluster


async def dumped(kafka: Cluster, name: str, path: Path, *filters: str) -> None:
    """Produce and consume through a tap with TLS and SASL on both sides, and dump what passes."""
    kafka.create_topic(name)
    config, ended = make_config(kafka, name, "SASL_SSL"), list[Exception]()
    file = Limited(path.open("wb"), config.bounds.dump)
    writer = PcapngDump(file, config.bounds) if path.suffix == ".pcapng" else JsonDump(file)
    async with TapService(config, dump=DumpTarget(parse_filter(filters), writer, ended.append)) as tap:
        options = settings(kafka, tap, name, "SASL_SSL")
        assert len(await asyncio.to_thread(produce_and_consume, options, name)) == 100
    assert not ended


async def test_json_lines_of_one_topic(secure_kafka: Cluster, name: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    await dumped(secure_kafka, name, path, f"topic={name}", "api=Produce,Fetch,OffsetCommit,JoinGroup")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {each["api"] for each in lines} == {"Produce", "Fetch", "OffsetCommit", "JoinGroup"}
    assert all(name in each["topics"] for each in lines if each["event"] == "response")
    written = [
        batch["records"]
        for line in lines
        if line["api"] == "Produce" and line["event"] == "request"
        for topic in line["body"]["TopicData"]
        for partition in topic["PartitionData"]
        for batch in partition["Records"]["batches"]
    ]
    assert sum(written) == 100
    asked = {(each["connection"], each["number"]) for each in lines if each["event"] == "request"}
    assert {(each["connection"], each["number"]) for each in lines} == asked, "each response has its request"
    assert PASSWORD not in path.read_text() and "value-1" not in path.read_text()


@pytest.mark.parametrize("filters", [[], ["client=*", "api=Produce,Fetch,Metadata,OffsetCommit"]])
async def test_packets(secure_kafka: Cluster, name: str, tmp_path: Path, filters: list[str]) -> None:
    path = tmp_path / "dump.pcapng"
    await dumped(secure_kafka, name, path, *filters)
    config = TapConfig((("kafka", 9092),))
    observer = Observer(config)
    capture = Capture(config, observer)
    with path.open("rb") as file:
        for segment in segments(file):
            capture.take(segment)
    capture.finish()
    assert observer.counts["requests"] > 5 and not observer.counts["undecodable"]
    offsets = [each for group in observer.snapshot(0.0)["groups"] for each in group["offsets"]]
    assert [each["committed"] for each in offsets if each["topic"] == name] == [100]
    assert PASSWORD.encode() not in path.read_bytes()
    if shutil.which("tshark") is not None:
        port = secure_kafka.ports[1]["SASL_SSL"]
        found = await asyncio.to_thread(dissected, path, port)
        apis = {int(key) for each in found for key in each["kafka.api_key"].split(",") if key}
        assert apis >= {0, 1, 3, 8} and (filters or apis >= {10, 11, 14, 17, 18, 36})
        topics = ",".join(each["kafka.topic_name"] for each in found)
        assert name in topics
        # Responses have no API of their own: the dissector finds their requests, if it knows the requests' versions.
        answered = {each["kafka.api_key"] for each in found if each["kafka.request_frame"]}
        assert answered >= ({"8"} if filters else {"8", "10", "11", "13", "14", "17", "18", "36"})
        assert {each["kafka.client_id"] for each in found if each["tcp.dstport"] == str(port)} <= {name, ""}
        assert not [each for each in found if each["tcp.analysis.lost_segment"]]


def dissected(path: Path, port: int) -> list[dict[str, Any]]:
    """Let Wireshark's Kafka dissector read a file; return some fields of each packet that it takes for Kafka's."""
    fields = [
        *("kafka.api_key", "kafka.topic_name", "kafka.client_id"),
        *("kafka.request_frame", "tcp.dstport", "tcp.analysis.lost_segment"),
    ]
    done = subprocess.run(
        [
            *("tshark", "-n", "-r", str(path), "-d", f"tcp.port=={port},kafka", "-Y", "kafka"),
            *("-T", "fields", "-E", "separator=|"),
            *(part for field in fields for part in ("-e", field)),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return [dict(zip(fields, line.split("|"), strict=True)) for line in done.stdout.splitlines()]

"""``kafka-pixy tap`` as a process in front of real Kafka."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from pixy.cli.main import main
from pixy.tap.config import Bounds
from tests.in_process import run_in_process
from tests.kafka.cluster import Cluster, free_port
from tests.support import ROOT


class Running:
    """The running program: ``address`` is its address for the first broker, ``url`` that of its views."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pixy.cli.main", "tap", *args],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stderr is not None
        self.address = self.url = ""
        while not self.address or ("--metrics" in args and not self.url):
            line = self.process.stderr.readline()
            assert line, self.process.communicate()
            if found := re.match(r"(\S+) -> \S+", line):
                self.address = self.address or found[1]
            elif found := re.match(r"views: (\S+)", line):
                self.url = found[1]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            text = answer.read().decode()
        return json.loads(text) if "json" in answer.headers["Content-Type"] else text

    def wait(self, path: str, wanted: Any, within: float = 40) -> Any:
        deadline = time.monotonic() + within
        while True:
            try:
                found = self.get(path)
                if wanted(found):
                    return found
            except urllib.error.HTTPError as error:
                found = error.code
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Any]:
    started: list[Running] = []

    def begin(*args: str) -> Running:
        started.append(Running(*args))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def test_every_view_shows_a_producer_and_a_consumer(kafka: Cluster, name: str, start: Any) -> None:
    kafka.create_topic(name, 4)
    tap = start(
        "--broker",
        kafka.bootstrap()[0],
        "--listen",
        "127.0.0.1:0",
        "--rewrite",
        "--output",
        "json",
        "--interval",
        "0.5",
        "--metrics",
        "127.0.0.1:0",
    )
    producer = Producer({"bootstrap.servers": tap.address, "client.id": "writer", "enable.idempotence": True})
    for i in range(200):
        producer.produce(name, b"value-%d" % i, partition=i % 4)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": tap.address,
            "group.id": name,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    got: list[Any] = []
    while len(got) < 200:
        got += [each for each in consumer.consume(200, 1.0) if each.error() is None]
    consumer.commit(got[99], asynchronous=False)

    group = tap.wait(f"groups/{name}", lambda found: found["state"] == "Stable" and found["offsets"])
    assert group["members"][0]["client_id"] == "reader" and group["members"][0]["partitions"] == {
        name: [0, 1, 2, 3]
    }
    offset = group["offsets"][0]
    assert offset["end"] == 50 and offset["lag"] == 50 - offset["committed"] and group["lag"] == offset["lag"]
    assert [each["group"] for each in tap.get("groups")["groups"]] == [name]
    times = {each["api"]: each for each in tap.get("latency")["apis"]}
    for api in ("Produce", "Fetch", "OffsetCommit"):
        assert times[api]["count"] == times[api]["tap"]["count"] > 0 and times[api]["tap"]["mean"] > 0
    assert tap.get(f"timeline?group={name}")[0]["trigger"] == "new member"
    topic = next(each for each in tap.get("topics") if each["topic"] == name)
    assert [each["client_id"] for each in topic["readers"] + topic["writers"]] == ["reader", "writer"]
    clients = {client: each for each in tap.wait("clients", bool) for client in each["client_ids"]}
    assert (
        clients["reader"]["software"] == "confluent-kafka-python"
        and not clients["reader"]["breaks_on_kafka_4"]
    )
    assert any(each["client_id"] == "reader" and each["fetching"] for each in tap.get("connections"))
    metrics = tap.get("metrics")
    assert f'kafka_tap_group_members{{group="{name}"}} 1.0' in metrics
    assert f'kafka_tap_group_lag{{group="{name}",topic="{name}"}} {float(group["lag"])}' in metrics
    assert "kafka_tap_sequence_gaps_total 0.0" in metrics and tap.get("healthz") == "ok\n"
    batches = tap.get("groups")["counts"]["batches"]
    assert batches > 0, "the tap has seen idempotent batches"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        tap.get("groups/nobody")
    consumer.close()
    tap.wait(f"groups/{name}", lambda found: found["state"] == "Empty")
    code, out, _ = tap.stop()
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    kinds = [each["event"] for each in events]
    assert {
        "connection.opened",
        "client",
        "rebalance.started",
        "member.joined",
        "assignment",
        "rebalance.finished",
        "member.gone",
        "snapshot",
    } <= set(kinds)
    assert not {"undecodable", "defect", "lost"} & set(kinds)
    assert not {"undecodable", "unmatched", "defects"} & tap_counts(events).keys()


def tap_counts(events: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = [each for each in events if each["event"] == "snapshot"][-1]["counts"]
    return found


def test_without_rewrite_responses_are_unchanged(kafka: Cluster, name: str, start: Any) -> None:
    kafka.create_topic(name)
    tap = start(
        "--broker",
        kafka.bootstrap()[0],
        "--listen",
        "127.0.0.1:0",
        "--output",
        "none",
        "--metrics",
        "127.0.0.1:0",
    )
    producer = Producer({"bootstrap.servers": tap.address})
    producer.produce(name, b"x")
    assert producer.flush(30) == 0
    counts = tap.wait("groups", lambda found: found["counts"].get("requests"))["counts"]
    assert "rewritten" not in counts and "rewrite_failed" not in counts


def test_clients_reach_three_brokers_through_one_address(kafka3: Cluster, name: str, start: Any) -> None:
    kafka3.create_topic(name, 6)
    tap = start(
        "--broker",
        kafka3.bootstrap()[0],
        "--listen",
        "127.0.0.1:0",
        "--rewrite",
        "--output",
        "none",
        "--metrics",
        "127.0.0.1:0",
    )
    producer = Producer({"bootstrap.servers": tap.address})
    for partition in range(6):
        producer.produce(name, b"x", partition=partition)
    assert producer.flush(60) == 0
    brokers = {each["broker"] for each in tap.get("connections")}
    assert brokers >= {address.replace("127.0.0.1", "localhost") for address in kafka3.bootstrap()}, brokers
    consumer = KafkaConsumer(
        name,
        bootstrap_servers=tap.address,
        group_id=name,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    got = [next(consumer) for _ in range(6)]
    assert {each.partition for each in got} == set(range(6))
    assert all(
        str(node.port) not in {a.split(":")[1] for a in kafka3.bootstrap()}
        for node in consumer._client.cluster.brokers()
    )
    consumer.close()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "--broker"),
        (["--broker", ","], "--broker names no broker"),
        (["--broker", "h:x"], "bad address 'h:x'"),
        (["--broker", "h:0"], "port 0 is not a broker's port"),
        (["--broker", "h", "--listen", "nonsense"], "bad address 'nonsense'"),
        (["--broker", "127.0.0.1:19093"], "the tap would connect to itself"),
        (["--broker", "h,h"], "names a broker twice"),
        (["--broker", "h", "--ports", "9-1"], "--rewrite"),
        (["--broker", "h", "--rewrite", "--ports", "9-1"], "bad port range '9-1'"),
        (["--broker", "h", "--max-groups", "0"], "--max-groups"),
        (["--broker", "h", "--interval", "nan"], "--interval"),
        (["--broker", "h", "--metrics", "9464"], "bad address '9464'"),
    ],
)
def test_a_bad_command_line_names_what_is_wrong(args: list[str], text: str) -> None:
    """In this process; the tests below start the program."""
    done = run_in_process(lambda: main(["tap", *args]))
    told = done.stderr.decode()
    assert done.returncode == 2 and text in told and "Traceback" not in told


def test_an_address_in_use(kafka: Cluster) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pixy.cli.main",
            "tap",
            "--broker",
            "somewhere:1",
            "--listen",
            f"127.0.0.1:{kafka.ports[1]['PLAINTEXT']}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "address already in use" in done.stderr and "Traceback" not in done.stderr


def test_the_help_names_every_limit() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pixy.cli.main", "tap", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    for name in Bounds.__dataclass_fields__:
        assert f"--max-{name.replace('_', '-')}" in done.stdout


def test_the_tap_goes_on_when_nobody_reads_its_output_any_more(start: Any) -> None:
    """As in ``kafka-pixy tap --output json | head -2``: the clients' connections do not depend on the reader."""
    with socket.create_server(("127.0.0.1", 0)) as broker:
        tap = start(
            "--broker",
            f"127.0.0.1:{broker.getsockname()[1]}",
            "--listen",
            "127.0.0.1:0",
            "--output",
            "json",
            "--interval",
            "0.1",
        )
        host, port = tap.address.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as client:
            behind, _ = broker.accept()
            assert json.loads(tap.process.stdout.readline())["event"] == "connection.opened"
            tap.process.stdout.close()
            told = tap.process.stderr.readline()
            while "note:" in told:
                told = tap.process.stderr.readline()
            assert "nobody reads it any more; the tap goes on" in told
            for end, other in ((client, behind), (behind, client)):
                end.sendall(b"still forwarded")
                other.settimeout(20)
                assert other.recv(100) == b"still forwarded"
            behind.close()
        tap.process.send_signal(signal.SIGTERM)
        assert tap.process.wait(20) == 0
        assert "Traceback" not in tap.process.stderr.read()
    tap.process.stdout = None


@pytest.mark.parametrize("output", ["json", "table"])
def test_a_full_standard_output_is_one_line_and_an_exit_code(output: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker, open("/dev/full", "w") as full:
        command = [
            sys.executable,
            "-m",
            "pixy.cli.main",
            "tap",
            "--listen",
            "127.0.0.1:0",
            "--interval",
            "0.1",
        ]
        process = subprocess.Popen(
            [*command, "--broker", f"127.0.0.1:{broker.getsockname()[1]}", "--output", output],
            cwd=ROOT,
            text=True,
            stdout=full,
            stderr=subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            host, port = process.stderr.readline().split(" ->")[0].rsplit(":", 1)
            with socket.create_connection((host, int(port))) as client:
                behind, _ = broker.accept()
                client.sendall(b"forwarded")
                assert behind.recv(100) == b"forwarded"
                behind.close()
            if output == "json":
                while "the tap goes on without it" not in (told := process.stderr.readline()):
                    assert told
            process.send_signal(signal.SIGTERM)
            err = (told if output == "json" else "") + process.communicate(timeout=20)[1]
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 1 and "Traceback" not in err
    assert err.count("kafka-pixy tap: standard output: No space left on device") == 1, err


def test_the_table_on_a_terminal() -> None:
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pixy.cli.main",
            "tap",
            "--broker",
            f"127.0.0.1:{free_port()}",
            "--listen",
            "127.0.0.1:0",
        ],
        cwd=ROOT,
        stdin=child,
        stdout=child,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "160", "LINES": "40", "TERM": "xterm"},
    )
    os.close(child)
    text = b""
    try:
        wanted = (b"kafka-pixy tap", b"no group yet", b"Ctrl-C ends the tap")
        while not all(each in text for each in wanted):  # drawn in parts
            text += os.read(parent, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def test_a_dump_of_the_program_and_one_that_cannot_be_written(
    kafka: Cluster, name: str, start: Any, tmp_path: Any
) -> None:
    kafka.create_topic(name)
    path = tmp_path / "dump.json"
    options = ("--broker", kafka.bootstrap()[0], "--listen", "127.0.0.1:0", "--rewrite", "--output", "none")
    for file in (str(path), "/dev/full"):
        tap = start(*options, "--dump", file, "--filter", f"topic={name},api=Produce")
        producer = Producer({"bootstrap.servers": tap.address, "client.id": "writer"})
        for value in (b"one", b"two"):
            producer.produce(name, value)
            assert producer.flush(30) == 0, "the tap goes on"
        code, out, err = tap.stop()
        assert code == 0 and not out
        told = "the dump has ended: no space left on device; the tap goes on without it"
        assert (told in err) == (file == "/dev/full"), err
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["event"] for each in lines] == ["request", "response"] * 2
    assert all(each["topics"] == [name] and each["client_id"] == "writer" for each in lines)


def test_a_dump_to_standard_output_is_all_that_is_there(kafka: Cluster, name: str, start: Any) -> None:
    kafka.create_topic(name)
    tap = start(
        *("--broker", kafka.bootstrap()[0], "--listen", "127.0.0.1:0", "--rewrite"),
        *("--dump", "-", "--filter", "api=Metadata"),
    )
    producer = Producer({"bootstrap.servers": tap.address})
    assert name in producer.list_topics(name, 20).topics
    code, out, _ = tap.stop()
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and {each["api"] for each in lines} == {"Metadata"}

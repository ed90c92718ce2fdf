"""Diagnostics of a running daemon: a dump on SIGUSR1, and traces of its clients' requests."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path

import grpc

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.integration.test_program import Running, http
from tests.kafka.cluster import Cluster

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_sigusr1_logs_every_actor_and_the_daemon_continues(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    with Running(kafka) as daemon:
        assert http(daemon.tcp, f"/topics/{name}/messages?sync", b"x")[0] == 200
        daemon.signal(signal.SIGUSR1)
        assert http(daemon.tcp, f"/topics/{name}/messages?sync", b"x")[0] == 200
        daemon.signal(signal.SIGTERM)
        code, output = daemon.program.wait()
    assert code == 0, output
    for path in ("/service", "/service/default", f"/service/default/{name}.producer", "/service/rest"):
        assert f"{path} (" in output, path
    assert "asks under way:" in output and "kinds of failures: 0" in output


def test_a_clients_trace_includes_the_actors(kafka: Cluster, name: str, tmp_path: Path) -> None:
    kafka.create_topic(name)
    config = tmp_path / "c.yaml"
    config.write_text(
        "diagnostics: {trace: true, trace_slow: 0s}\nlogging: [{name: json, severity: info}]\n"
        "proxies: {default: {}}\n"
    )
    with Running(kafka, f"--config={config}") as daemon:
        request = urllib.request.Request(
            f"http://127.0.0.1:{daemon.tcp}/topics/{name}/messages?sync",
            b"x",
            {"Content-Type": "text/plain", "traceparent": TRACEPARENT},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        with grpc.insecure_channel(f"127.0.0.1:{daemon.grpc}") as channel:
            KafkaPixyStub(channel).Produce(  # type: ignore[no-untyped-call]
                pb.ProdRq(topic=name, message=b"y"),
                timeout=30,
                metadata=(("traceparent", TRACEPARENT.replace("0af7", "1bf8")),),
            )
        http(daemon.tcp, f"/topics/{name}/messages?sync", b"not traced")
        daemon.signal(signal.SIGTERM)
        code, output = daemon.program.wait()
    assert code == 0, output
    traces = [
        json.loads(entry["message"])
        for entry in map(json.loads, filter(lambda line: line.startswith("{"), output.splitlines()))
        if '"spans"' in entry.get("message", "")
    ]
    # A trace is logged when it pauses: what its request sends afterwards is another line.
    spans: dict[str, list[dict[str, object]]] = {}
    for trace in traces:
        spans.setdefault(trace["trace"], []).extend(trace["spans"])
    assert set(spans) == {TRACE, TRACE.replace("0af7", "1bf8")}
    for found in spans.values():
        assert found[0]["parent"] == "b7ad6b7169203331"
        assert f"/service/default/{name}.producer" in {span["path"] for span in found}
        assert all(span["error"] is None for span in found)

"""Run the quick start and the program of docs/tap.md, and check the flags, paths, metrics and events that it names."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from typing import Any

import pytest

from pixy.cli.tap_flags import make_parser
from pixy.tap.config import Bounds, TapConfig
from pixy.tap.http_view import PATHS
from pixy.tap.metrics import exposition
from pixy.tap.observer import Observer
from tests.in_process import run_source
from tests.support import ROOT
from tests.unit.tap.stage import Joiner, Stage, assignment, settle

PAGE = (ROOT / "docs/tap.md").read_text()
TERMINALS = re.findall(r"^```sh terminal\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
STEPS = re.findall(r"^```sh\n(?!# Not tested: )(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


@pytest.mark.slow
def test_the_quick_start() -> None:
    """Run the page's commands unchanged except for free ports."""
    tap, views, grpc, rest = free_ports(4)
    assert len(TERMINALS) == 2 and len(STEPS) == 1
    swap = {
        "127.0.0.1:19093": f"127.0.0.1:{tap}",
        "127.0.0.1:9464": f"127.0.0.1:{views}",
        "localhost:9464": f"127.0.0.1:{views}",
        "localhost:19092": f"127.0.0.1:{rest}",
        "tap --sandbox": f"tap --sandbox --listen 127.0.0.1:{tap}",
        "kafka-pixy --kafkaPeers": f"kafka-pixy --grpcAddr 127.0.0.1:{grpc} --tcpAddr 127.0.0.1:{rest} --kafkaPeers",
    }

    def paste(text: str) -> str:
        for old, new in swap.items():
            text = text.replace(old, new)
        return f'kafka-pixy() {{ exec "{sys.executable}" -m pixy.cli.main "$@"; }}\n{text}'

    started: list[subprocess.Popen[bytes]] = []
    try:
        for text, url in zip(
            TERMINALS, (f"http://127.0.0.1:{views}/healthz", f"http://127.0.0.1:{rest}/_ping"), strict=True
        ):
            started.append(
                subprocess.Popen(
                    ["bash", "-c", paste(text)],
                    cwd=ROOT,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            wait_for(url)
        done = subprocess.run(
            ["bash", "-c", paste(STEPS[0])], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        group = json.loads(done.stdout[done.stdout.rindex('{"group"') :])
        assert group["group"] == "bar" and group["state"] == "Stable"
        assert group["members"][0]["partitions"] == {"foo": [0, 1, 2, 3]}
        with urllib.request.urlopen(f"http://127.0.0.1:{views}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        assert "\nkafka_tap_undecodable_total 0.0\n" in metrics
        assert "\nkafka_tap_rewrite_failed_total 0.0\n" in metrics
        assert "kafka_tap_findings{" not in metrics
    finally:
        for each in reversed(started):
            each.send_signal(signal.SIGTERM)
            each.wait(60)


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline, url
            time.sleep(0.05)


def test_the_program() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (expected,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    done = run_source(program)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    assert sorted(done.stdout.decode().splitlines()) == sorted(expected.splitlines())


def test_it_names_every_flag_bound_path_and_event() -> None:
    flags = {
        option
        for action in make_parser()._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    named = set(re.findall(r"--[a-z][a-z-]+", PAGE)) - {"--kafkaPeers", "--kafka"}
    assert named <= flags, named - flags
    bounds = dict(re.findall(r"^\| `--max-([a-z-]+)` \| ([\d,]+) \|", PAGE, re.MULTILINE))
    assert bounds == {
        field.name.replace("_", "-"): f"{field.default:,}" for field in dataclasses.fields(Bounds)
    }
    for path in (*PATHS, "/metrics", "/healthz"):
        assert f"`{path}`" in PAGE
    text = exposition(Observer(TapConfig((("h", 1),))), 0, 0.0)
    metrics = set(re.findall(r"^# TYPE (kafka_tap_\w+) ", text, re.MULTILINE))
    for metric in re.findall(r"`(kafka_tap_\w+)`", PAGE):
        assert metric in metrics, metric


def test_the_example_of_an_event_has_the_fields_of_a_real_one() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    stage = Stage()
    member = Joiner(stage.client())
    settle(1, {member: ("m", assignment(t=[0]))})
    real: dict[str, Any] = stage.told("rebalance.finished")[0]
    assert list(json.loads(example)) == list(real)
    told = {event["event"] for event in stage.events}
    documented = set(
        re.findall(
            r"`((?:connection|member|rebalance|anomaly|sequence)[a-z.]*|client|opaque|assignment|lost|snapshot)`",
            PAGE,
        )
    )
    assert told <= documented, told - documented
    assert Observer(TapConfig((("h", 1),))).snapshot(0.0)["groups"] == [] and os.path.exists(
        ROOT / "docs/tap.md"
    )

"""What clients and brokers write is shown, never obeyed."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from pixy.cli.shell import app as client
from pixy.config import App
from pixy.proto import kafkapixy_pb2 as pb
from pixy.tap.table import render
from tests.support import serving


async def test_markup_and_control_characters_in_metadata_are_shown(
    config: App, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    async with serving(config) as daemon:
        await daemon.produce(name, b"x")
        evil = "[/nope][bold]\x1b[2J\x9b31m\u202e"
        offsets = [pb.PartitionOffset(partition=0, offset=0, metadata=evil)]
        await daemon.stub.SetOffsets(pb.SetOffsetsRq(topic=name, group="g", offsets=offsets))
        for more in ([], ["--json"]):
            command = ["offsets", name, "--group", "g", "--server", daemon.engine.addresses["grpc"], *more]
            assert await asyncio.to_thread(client.run, command) == 0
            out = capsys.readouterr().out
            assert "[/nope][bold]\\u001b[2J\\u009b31m\\u202e" in out
            assert not set(out) & set("\x1b\x9b\u202e")
        command = ["topics", "[/nope]\x1b", "--server", daemon.engine.addresses["grpc"]]
        assert await asyncio.to_thread(client.run, command) == 1
        assert "\x1b" not in capsys.readouterr().err


def test_the_taps_table_shows_markup() -> None:
    evil = "[/nope] [red]\x1b[2J"
    member = {
        "member": evil,
        "client_id": evil,
        "host": evil,
        "software": evil,
        "status": "joining",
        "partitions": {evil: [0]},
        "path": "learnt",
    }
    anomaly = {"kind": "without owner", "detail": evil}
    group = {
        "group": evil,
        "state": "Stable",
        "generation": 1,
        "protocol_name": evil,
        "kind": "classic",
        "lag": None,
        "members": [member],
        "anomalies": [anomaly],
    }
    rebalance = {
        "number": 1,
        "group": evil,
        "started": 1.0,
        "finished": None,
        "seconds": 1.0,
        "generation_before": 1,
        "generation": 2,
        "trigger": "new member",
        "member": evil,
        "client_id": evil,
        "reason": evil,
    }
    client = {"software": evil, "version": evil, "breaks_on_kafka_4": [evil]}
    snapshot = {
        "counts": {"open_connections": 1},
        "groups": [group],
        "clients": [client],
        "timeline": [rebalance],
    }
    for width in (80, 250):
        console = Console(record=True, force_terminal=False, width=width, height=50, file=io.StringIO())
        console.print(render(snapshot, console, [evil]))
        shown = console.export_text()
        assert "\x1b" not in shown
        whole = " ".join(shown.split())
        assert whole.count("[/nope] [red]\\u001b[2J") >= 8, shown

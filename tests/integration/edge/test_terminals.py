"""What clients and brokers write is shown, never obeyed."""

from __future__ import annotations

import asyncio

import pytest
from rich.console import Console

from pixy.cli.shell import app as client
from pixy.config import App
from pixy.proto import kafkapixy_pb2 as pb
from pixy.tap.table import escape
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
    console = Console(record=True, force_terminal=False)
    console.print(escape("[/nope] [red]\x1b[2J"))
    assert console.export_text().strip() == "[/nope] [red]\\u001b[2J"

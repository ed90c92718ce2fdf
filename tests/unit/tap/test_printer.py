"""Output is a guest of the tap: it may be slow, closed, unable to encode or defective, and events go on."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
from typing import Any

import pytest

from actors import ActorSystem
from pixy.tap.config import TapConfig
from pixy.tap.printer import MAX_WAITING, JsonOutput, JsonPrinter, Show, TablePrinter
from pixy.tap.service import TapService
from tests.support import eventually
from tests.unit.tap.stage import Joiner, Stage, assignment, settle

EVIL = "grüp\x1b]0;owned\x07\x9b31m\u202e"


class Closed(io.StringIO):
    """Standard output whose reader has gone."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


class Strict(io.StringIO):
    """A terminal that claims UTF-8 and takes only ASCII."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        text.encode("ascii")
        return super().write(text)


def snapshot(name: str) -> dict[str, Any]:
    """Return a table's view of a group whose members, topic and software have this name, too."""
    stage = Stage()
    member = Joiner(stage.client(name, software=(name, "1")), group=name)
    settle(1, {member: (name, assignment(**{name: [0]}))})
    return {
        **stage.observer.snapshot(stage.now),
        "timeline": stage.observer.registry.timeline.to_json(stage.now),
        "clients": stage.observer.inventory.to_json(),
    }


@pytest.mark.parametrize("document", [{"event": "x", "group": EVIL}, {"event": "x", "group": {1, 2}}])
async def test_json_lines_to_a_broken_output(document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Closed())
    system, told = ActorSystem("t"), []
    printer = system.spawn(JsonPrinter, told.append)
    for _ in range(3):
        printer.tell(document)
    await printer.ask(Show(snapshot("g")), block=False)
    assert len(told) == 1 and printer.is_alive(), "told once, and alive"
    await system.stop(1)


async def test_a_terminal_that_cannot_encode_what_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Strict()
    monkeypatch.setattr(sys, "stdout", stream)
    system, told = ActorSystem("t"), []
    printer = system.spawn(JsonPrinter, told.append)
    printer.tell({"event": "x", "group": EVIL})
    await printer.ask(Show(snapshot(EVIL)), block=False)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert not told and lines[0]["group"] == lines[1]["groups"][0]["group"] == EVIL
    await system.stop(1)


@pytest.mark.parametrize("stream", [Closed, Strict])
async def test_a_table_on_a_broken_terminal(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    system, told = ActorSystem("t"), []
    printer = system.spawn(TablePrinter, ["h:1 -> k:2"], (), told.append)
    for _ in range(2):
        await printer.ask(Show(snapshot("grüp")), block=False)
    assert len(told) == 1 and printer.is_alive()
    assert (await system.stop(1)).clean


async def test_nothing_that_clients_send_commands_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    system, told = ActorSystem("t"), []
    json_lines = system.spawn(JsonPrinter, told.append)
    json_lines.tell({"event": "x", "group": EVIL})
    await json_lines.ask(Show(snapshot(EVIL)), block=False)
    table = system.spawn(TablePrinter, ["h:1 -> k:2"], (), told.append)
    await table.ask(Show(snapshot(EVIL)), block=False)
    await system.stop(1)
    shown = stream.getvalue()
    assert "owned" in shown and not told
    assert not set(shown) & set("\x1b\x07\x9b\u202e")


async def test_a_reader_that_does_not_read_loses_documents_and_is_told_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free, stream = threading.Event(), io.StringIO()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            free.wait(30)
            return stream.write(text)

    monkeypatch.setattr(sys, "stdout", Stuck())
    system = ActorSystem("t")
    output = JsonOutput(system.spawn(JsonPrinter, lambda _error: None), lambda: 7.0)
    for number in range(MAX_WAITING + 60):
        output({"event": "x", "number": number})
    lost = output.lost
    assert 50 <= lost <= 60, "bounded"
    free.set()
    lines: list[Any] = []

    async def told() -> bool:
        output({"event": "later"})
        lines[:] = [json.loads(line) for line in stream.getvalue().splitlines()]
        return any(each["event"] == "output.lost" for each in lines)

    await eventually(told)
    found = next(each for each in lines if each["event"] == "output.lost")
    assert found["events"] >= lost and found["time"] == 7.0 and not output.lost
    await system.stop(1)


async def test_an_output_that_fails_is_dropped_and_the_tap_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    found: list[str] = []

    def fail(_document: dict[str, Any]) -> None:
        raise UnicodeEncodeError("ascii", "ü", 0, 1, "no")

    service = TapService(TapConfig((("127.0.0.1", 1),), ("127.0.0.1", 0), connect_timeout=1))
    service.add_output(fail)
    service.add_output(lambda document: found.append(document["event"]))
    async with service as tap:
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*tap.listening[0][0])
            assert await reader.read() == b"", "nobody listens there"
            writer.close()

        async def closed() -> bool:
            return found.count("connection.closed") == 2

        await eventually(closed)
    assert caplog.text.count("an output failed") == 1

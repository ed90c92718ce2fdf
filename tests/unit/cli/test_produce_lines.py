"""What ``kafka-pixy produce`` reads ahead: never a line without end, and never more than a bound."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from pixy.cli.shell import produce, produce_lines
from pixy.cli.shell.errors import ShellError
from pixy.cli.shell.produce import Writer
from pixy.cli.shell.produce_input import ReadAhead, Shape
from pixy.cli.shell.produce_lines import TOO_LONG, Lines
from pixy.cli.shell.progress import Bar
from tests.unit.cli.answers import Shell
from tests.unit.cli.produce_daemon import Daemon


class Endless(io.RawIOBase):
    """Two lines, and then one that has no end, as of /dev/zero."""

    def __init__(self) -> None:
        self._lines = [b"a\n", b"b\n"]

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None and size > 0, "it would read for ever"
        return self._lines.pop(0) if self._lines else bytes(size)


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_line_without_end_is_refused_and_the_count_is_said(
    json_lines: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with a MemoryError, and nobody knew what was written."""
    monkeypatch.setattr(produce_lines, "MAX_MESSAGE", 1000)
    source = Endless()
    if json_lines:
        source._lines = [b"{}\n", b"{}\n"]
    with Bar("producing", prints=True) as bar:
        writer = Writer(Daemon(), "foo", Shape(json_lines=json_lines), bar)  # type: ignore[arg-type]
        with pytest.raises(ShellError) as caught:
            writer.run(ReadAhead(source, 0, "--lines a"), 1, 0)  # type: ignore[arg-type]
    assert (str(caught.value), caught.value.code) == (
        f"--lines a: line 3: {TOO_LONG}; stopped: 2 messages written to foo; go on with --skip 2",
        1,
    )


def test_a_file_that_is_no_message_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "MAX_MESSAGE", 10)
    (tmp_path / "f").write_bytes(bytes(11))
    shell = Shell(monkeypatch, {})
    assert shell.run("produce", "orders", "-f", str(tmp_path / "f")) == (
        1,
        "",
        f"kafka-pixy produce: --file {tmp_path}/f: {TOO_LONG}\n",
    )
    assert "128 MiB" in TOO_LONG


def test_long_lines_are_read_ahead_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand lines of a megabyte were."""
    monkeypatch.setattr(produce_lines, "_AHEAD_BYTES", 100)
    given = 0

    def source() -> Iterator[bytes]:
        nonlocal given
        for _ in range(5000):
            given += 1
            yield b"x" * 49 + b"\n"

    lines, taken = Lines(source()), 0
    while lines.next(block=True):
        taken += 1
        assert given - taken <= 4, "two that are held, and two on their way"
    assert taken == 5000

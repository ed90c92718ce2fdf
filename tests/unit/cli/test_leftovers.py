"""The files of a daemon that ends at once, and a dump as one record."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pixy.cli.leftovers import Leftovers
from pixy.cli.logs import ConsoleFormatter
from pixy.cli.pid_file import PidFile


def test_a_process_removes_its_own_files_and_no_others(tmp_path: Path) -> None:
    pid, socket = tmp_path / "pid", tmp_path / "socket"
    written = PidFile(str(pid))
    files = Leftovers(written, str(socket))
    pid.write_text(str(os.getpid()))
    socket.write_text("")
    files.remove()
    assert pid.exists(), "it was not this process's yet"
    written.write()
    files.made()
    other = tmp_path / "other"
    other.write_text("another daemon's")
    other.rename(socket)
    files.remove()
    assert not pid.exists() and socket.read_text() == "another daemon's"


def test_a_block_follows_its_record_and_forges_no_line() -> None:
    record = logging.LogRecord("pixy", logging.WARNING, "f", 1, "dump", (), None)
    record.block = "/service (idle)\n  /service/default (idle)\x1b[2J"
    head, *block = ConsoleFormatter().format(record).splitlines()
    assert head.endswith('warning <pixy> "dump"')
    assert block == ["  /service (idle)", "    /service/default (idle)\\u001b[2J"]

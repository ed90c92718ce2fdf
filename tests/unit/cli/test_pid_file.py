"""The pid file, in a folder where others write, too."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pixy.cli import serve
from pixy.cli.pid_file import PidFile
from pixy.config import App
from pixy.errors import ConfigError, StartError


def test_it_holds_the_process_id_and_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text("4194305\n")  # of a process that was killed; no id is that large
    file = PidFile(str(path))
    file.check()
    assert path.read_text() == "4194305\n", "to check is not to write"
    file.write()
    assert path.read_text() == str(os.getpid()) and path.stat().st_mode & 0o777 == 0o644
    file.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["precious\n", "1 2", "12x", "-1", "9" * 100])
def test_a_file_that_is_no_pid_file_stays(tmp_path: Path, content: str) -> None:
    path = tmp_path / "pid"
    path.write_text(content)
    file = PidFile(str(path))
    for step in (file.check, file.write):
        with pytest.raises(ConfigError, match=r"holds no process id: remove it, or choose another path\Z"):
            step()
    file.remove()
    assert path.read_text() == content and len(list(tmp_path.iterdir())) == 1


def test_what_is_no_regular_file_stays(tmp_path: Path) -> None:
    victim, link, pipe, folder = (tmp_path / name for name in ("victim", "link", "pipe", "folder"))
    victim.write_text("1")
    link.symlink_to(victim)
    os.mkfifo(pipe)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for path in (link, pipe, folder, tmp_path / "socket"):
            with pytest.raises(ConfigError, match="no regular file is there: choose another path"):
                PidFile(str(path)).write()
            PidFile(str(path)).remove()
    assert link.is_symlink() and victim.read_text() == "1" and pipe.is_fifo() and folder.is_dir()


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["/opt/bin/kafka-pixy", "--sandbox"], True),
        (["kafka-pixy"], True),
        (["-m", "pixy.cli.main", "serve"], True),
        (["kafka-pixy", "consume", "orders"], False),
        (["/opt/bin/other"], False),
    ],
)
def test_the_file_of_a_daemon_that_runs_stays(tmp_path: Path, words: list[str], refused: bool) -> None:
    """Of another program, which has got a dead daemon's process id, it is replaced."""
    path = tmp_path / "pid"
    # `python -c CODE WORDS...` shows its words in /proc, as the interpreter of a script does.
    with subprocess.Popen(
        [sys.executable, "-Ic", "print('up', flush=True); input()", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"up\n"
        path.write_text(str(other.pid))
        file = PidFile(str(path))
        if refused:
            with pytest.raises(ConfigError, match=f"another daemon runs with it, process {other.pid}: stop"):
                file.write()
            assert path.read_text() == str(other.pid)
        else:
            file.write()
            assert path.read_text() == str(os.getpid())
        other.communicate(b"\n")


def test_a_thread_is_no_daemon(tmp_path: Path) -> None:
    """A container that was killed did not start again: its pid file named a thread of the new daemon."""
    path = tmp_path / "pid"
    code = (
        "import threading; waits = threading.Event(); "
        "thread = threading.Thread(target=waits.wait); thread.start(); "
        "print(thread.native_id, flush=True); input(); waits.set()"
    )
    with subprocess.Popen(
        [sys.executable, "-Ic", code, "kafka-pixy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        thread = int(other.stdout.readline())
        assert thread != other.pid and Path(f"/proc/{thread}/cmdline").exists()
        path.write_text(str(thread))
        try:
            PidFile(str(path)).write()
        finally:
            other.communicate(b"\n")
    assert path.read_text() == str(os.getpid())


@pytest.mark.parametrize("in_place", [True, False])
def test_a_file_that_is_no_longer_ours_stays(tmp_path: Path, in_place: bool) -> None:
    path = tmp_path / "pid"
    file = PidFile(str(path))
    file.write()
    other = path if in_place else tmp_path / "other"
    other.write_text("77")
    other.rename(path)
    file.remove()
    assert path.read_text() == "77"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no" / "pid"
    with pytest.raises(ConfigError) as failed:
        PidFile(str(path)).check()
    assert str(failed.value) == (
        f"pidFile {path}: the directory {path.parent} does not exist: create it, or choose another path"
    )


def test_a_daemon_that_fails_to_start_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pid"
    path.write_text("4194305")

    class Engine:
        def __init__(self, _app: App) -> None: ...

        async def start(self, _listeners: object) -> None:
            assert path.read_text() == "4194305"
            raise StartError("address already in use")

    monkeypatch.setattr(serve, "Engine", Engine)
    monkeypatch.setattr(serve, "listeners", lambda *_: [])
    file = PidFile(str(path))
    daemon = serve.Daemon(App(), lambda _code: None, _Reloader(), pid_file=file)  # type: ignore[arg-type]
    with pytest.raises(StartError):
        asyncio.run(daemon.run())
    file.remove()
    assert path.read_text() == "4194305"


class _Reloader:
    def request(self) -> None: ...

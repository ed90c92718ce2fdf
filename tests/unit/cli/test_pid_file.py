"""The pid file, in a folder where others write, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pixy.cli.pid_file import pid_file


def test_it_holds_the_process_id_and_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text("99999")  # of a process that was killed
    with pid_file(str(path)):
        assert path.read_text() == str(os.getpid()) and path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "pid"
    victim.write_text("mine")
    victim.chmod(0o600)
    path.symlink_to(victim)
    with pid_file(str(path)):
        assert path.read_text() == str(os.getpid()) and not path.is_symlink()
    assert victim.read_text() == "mine" and victim.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_longer_ours_stays(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with pid_file(str(path)):
        other = tmp_path / "other"
        other.write_text("another daemon")
        other.rename(path)
    assert path.read_text() == "another daemon"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="cannot write the pid file: No such file") as failed,
        pid_file(str(tmp_path / "no" / "pid")),
    ):
        pass
    assert failed.value.filename == str(tmp_path / "no" / "pid")

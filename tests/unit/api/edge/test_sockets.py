"""The unix socket's file: its mode from the first moment, and links in its place."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pixy.api.edge import sockets


@pytest.mark.parametrize("mode", [0o660, 0o600, 0o777])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_its_mode_is_the_configured_one(
    tmp_path: Path, mode: int, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    first: list[int] = []
    monkeypatch.setattr(
        sockets,
        "_set_mode",
        lambda at, mode, real=sockets._set_mode: (first.append(os.stat(at).st_mode & 0o777), real(at, mode)),
    )
    before = os.umask(umask)
    try:
        with sockets.listen_unix(str(path), mode):
            assert path.stat().st_mode & 0o777 == mode
            assert first == [mode & ~umask], "nobody else had access before"
    finally:
        os.umask(before)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "s"
    victim.write_text("mine")
    victim.chmod(0o600)
    link.symlink_to(victim)
    with pytest.raises(OSError):
        sockets.listen_unix(str(link), 0o777)
    sockets._set_mode(str(link), 0o777)
    assert victim.stat().st_mode & 0o777 == 0o600


def test_a_link_to_a_stale_socket_stays(tmp_path: Path) -> None:
    stale, link = tmp_path / "stale", tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(stale))
    link.symlink_to(stale)
    with pytest.raises(OSError):
        sockets.listen_unix(str(link), 0o660)
    assert link.is_symlink() and stale.exists()
    sockets.listen_unix(str(stale), 0o660).close()

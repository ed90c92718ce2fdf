"""What keeps the daemon from starting is one line that says what to do, before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.cli import serve
from pixy.cli.main import main
from tests.in_process import Finished, run_in_process


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The daemon must not get as far as opening things."""
    seen: list[str] = []

    def opens(*_: object) -> int:
        seen.append("opened")
        return 0

    monkeypatch.setattr(serve, "_logged", opens)
    monkeypatch.setattr(serve, "_sandboxes", lambda *_: [])
    monkeypatch.setattr(serve, "_tune_collector", lambda: None)
    monkeypatch.setattr(serve.sys, "setswitchinterval", lambda _: None)
    return seen


def start(*args: str) -> Finished:
    return run_in_process(lambda: main([*args, "--sandbox"]))


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            ["--grpcAddr=127.0.0.1:99999"],
            "Failed to start service: err=(grpc_addr 127.0.0.1:99999: is not host:port: name an address such as 127.0.0.1:19091)",
        ),
    ],
)
def test_it_is_one_line(args: list[str], text: str, opened: list[str]) -> None:
    done = start(*args)
    assert (done.returncode, done.stderr.decode()) == (1, f"{text}\n") and not opened


def test_a_configuration_that_is_no_text(tmp_path: Path, opened: list[str]) -> None:
    path = tmp_path / "bin.dat"
    path.write_bytes(b"\x7fELF\xae\x00")
    done = start(f"--config={path}")
    assert done.returncode == 1 and not opened
    assert done.stderr.decode() == (
        f"Failed to load config: err=(failed to read config file: path={path}, "
        "err=(it is not text in UTF-8: name a YAML file))\n"
    )

"""Files that the daemon reads again while it serves: a pipe in the place of one is refused, and keeps nobody waiting."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pixy.auth import jwks
from pixy.auth.keys import load_keys
from pixy.config import App, Kafka, Proxy, load_file, validate
from pixy.config.environment import read_value_file
from pixy.config.files import tls_problem
from pixy.config.model import Tls
from pixy.config.validity import invalid_note
from pixy.errors import ConfigError


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return str(path)


def kafka_with(path: str) -> Any:
    return validate(App(proxies={"default": Proxy(kafka=Kafka(tls=True, ca_certificate_file=path))}))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "read",
    [load_keys, jwks.load, load_file, read_value_file, kafka_with],
    ids=["keys_file", "jwks_file", "configuration", "secret", "Kafka's CA"],
)
def test_a_pipe_is_refused_at_once(pipe: str, read: Callable[[str], Any]) -> None:
    with pytest.raises(ConfigError, match="not a regular file") as caught:
        read(pipe)
    assert pipe in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("key", ["certificate_path", "key_path", "client_ca_path"])
def test_a_pipe_is_no_certificate(pipe: str, key: str) -> None:
    paths = {"certificate_path": "/nowhere/c.pem", "key_path": "/nowhere/k.pem", key: pipe}
    assert tls_problem(Tls(**paths)) == f"tls.{key} {pipe}: not a regular file: name a file in PEM format"
    assert invalid_note(Tls(**paths)) == ""


@pytest.mark.parametrize("read", [load_keys, jwks.load])
def test_a_device_has_no_keys(read: Callable[[str], Any]) -> None:
    with pytest.raises(ConfigError, match="/dev/null: not a regular file"):
        read("/dev/null")


def test_an_open_file_may_be_any() -> None:
    """``echo secret | kafka-pixy --config <(...)``."""
    reading, writing = os.pipe()
    os.write(writing, b"secret\n")
    os.close(writing)
    assert read_value_file(f"/dev/fd/{reading}") == "secret"
    os.close(reading)


def test_a_folder_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        load_keys(str(tmp_path))

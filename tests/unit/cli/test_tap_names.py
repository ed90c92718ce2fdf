"""The tap says at its start which brokers' names do not resolve, and goes on."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pixy.cli.tap import _unknown_hosts


async def test_a_broker_whose_name_does_not_resolve_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, *_args: Any, **_options: Any) -> list[Any]:
        if host == "nosuchhost":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert await _unknown_hosts([("kafka1", 9092), ("nosuchhost", 9093)]) == [
        "kafka-pixy tap: --broker nosuchhost:9093: the name does not resolve (name or service not known); "
        "connections fail until it does"
    ]

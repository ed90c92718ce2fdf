"""Hints at what newcomers stumble over."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import grpc
import pytest

from pixy.cli import config_commands
from pixy.cli.shell import produce
from pixy.cli.shell.errors import CallError
from pixy.proto import kafkapixy_pb2 as pb
from tests.unit.cli.answers import Shell


def test_a_value_that_cannot_be_read_is_told_how_to_write_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text is the original's, which the daemon keeps; the hint is for ``config check``."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "proxies:\n  main:\n    kafka: {seed_peers: localhost:9092}\n    consumer: {ack_timeout: 5 minutes, max_retries: x}\n"
    )
    assert config_commands.main(["check", "--config", str(file)]) == 1
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.endswith("`localhost:9092` into []string: write a list, such as [localhost:9092]")
    assert second.endswith("`5 minutes` into time.Duration: write a number and a unit, such as 5m or 1h30m")
    assert third.endswith("`x` into int")


NOTHING_NAMED = {
    "tombstone": False, "key": None, "message": None, "file": None, "lines": None, "key_delimiter": None, "json_lines": False,
}  # fmt: skip


def test_nobody_is_asked_about_a_topic_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = CallError(grpc.StatusCode.NOT_FOUND, "unknown topic")
    shell = Shell(
        monkeypatch,
        {"GetTopicMetadata": gone, "ListTopics": pb.ListTopicRs(topics={"orders": pb.GetTopicMetadataRs()})},
    )
    code, out, err = shell.run("topic", "delete", "order")
    assert (code, out) == (1, "")
    assert err.endswith("topic 'order' does not exist; did you mean 'orders'?\n"), err


def test_who_types_messages_is_told_how_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as typed, os.fdopen(ours):
        monkeypatch.setattr(sys, "stdin", typed)
        produce._source(NOTHING_NAMED)
    assert capsys.readouterr().err == "a message a line; Ctrl-D ends\n"

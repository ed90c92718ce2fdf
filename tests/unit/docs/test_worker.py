"""The worker of the examples, without a daemon."""

from __future__ import annotations

import runpy
from typing import Any

import grpc
import pytest

from pixy.proto import kafkapixy_pb2 as pb
from tests.support import ROOT


class Refusal(grpc.RpcError):
    """No daemon is there."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "connection refused"


class Stub:
    """Answers with a message after two refusals."""

    def __init__(self) -> None:
        self.refusals = 2

    def ConsumeNAck(self, _request: Any) -> pb.ConsRs:
        if self.refusals:
            self.refusals -= 1
            raise Refusal
        return pb.ConsRs(message=b"m")

    def Ack(self, _request: Any) -> None:
        pass


def test_it_pauses_and_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setenv("MESSAGES", "1")
    runpy.run_path(str(ROOT / "examples" / "worker.py"))["run"](Stub())
    caught = capsys.readouterr()
    assert pauses == [1, 1] and caught.out == "done: m\n"
    assert caught.err == "waiting for the proxy: connection refused\n", "said once"


def test_it_reminds_only_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setenv("MESSAGES", "1")
    stub = Stub()
    stub.refusals = 65
    runpy.run_path(str(ROOT / "examples" / "worker.py"))["run"](stub)
    assert capsys.readouterr().err.count("waiting for the proxy") == 3, "at once, and after 30 and 60 seconds"

"""Asking a leader where an epoch ends."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pixy.kafka.partition_logs import _ends_of_epochs

ANSWER = {"Topics": [{"Topic": "t", "Partitions": [{"Partition": 0, "ErrorCode": 0, "EndOffset": 7}]}]}


class Leader:
    """A connection to a broker that knows OffsetForLeaderEpoch up to a version."""

    def __init__(self, version: int) -> None:
        self._version = version
        self.asked: list[dict[str, Any]] = []

    def version(self, _api: str) -> int:
        return self._version

    def call(self, _api: str, body: dict[str, Any]) -> Generator[Any, Any, dict[str, Any]]:
        self.asked.append(body)
        yield from ()
        return ANSWER


def test_a_leader_is_asked_as_a_consumer_asks() -> None:
    leader = Leader(4)
    assert _ends_of_epochs(leader, {("t", 0): 3}) == {("t", 0): 7}  # type: ignore[arg-type]
    assert [body["ReplicaId"] for body in leader.asked] == [-1]


def test_a_broker_that_lets_only_brokers_ask_is_not_asked() -> None:
    """Kafka before 2.3, and the sandbox: the request has no place for the replica's id, and every partition waited for ever."""
    leader = Leader(2)
    assert _ends_of_epochs(leader, {("t", 0): 3}) == {}  # type: ignore[arg-type]
    assert leader.asked == []

"""A model that is kinder than Kafka is found: each of these wrong models differs from what real Kafka shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pixy.wire.types import TopicPartition
from tests.kafka.cluster import Cluster
from tests.model import client_scenarios, session_scenarios
from tests.model.consumer import Consumer
from tests.model.log import Kafka, PartitionLog
from tests.model.session import ModelSession
from tests.model.test_scenarios import compare, on_kafka
from tests.model.world import Script

_remove, _delete = Consumer.remove, Kafka.delete


def _forgets_the_pause(self: Consumer, partitions: Iterable[TopicPartition]) -> None:
    partitions = list(partitions)
    _remove(self, partitions)
    self.resume(partitions)


def _keeps_offsets(self: Kafka, name: str) -> None:
    offsets = {group: dict(each) for group, each in self.committed.items()}
    _delete(self, name)
    for group, each in offsets.items():
        self.committed[group].update(each)


PLANTED: tuple[tuple[Script, type, str, Any], ...] = (
    (
        client_scenarios.a_pause_is_kept_when_the_partition_comes_back,
        Consumer,
        "remove",
        _forgets_the_pause,
    ),
    (
        client_scenarios.a_committed_transaction_ends_with_a_marker_that_nobody_gets,
        PartitionLog,
        "markers",
        lambda *_: [],
    ),
    (
        session_scenarios.a_commit_waits_while_a_revocation_waits_for_its_release,
        ModelSession,
        "_held",
        lambda *_: True,
    ),
    (
        session_scenarios.the_partitions_of_a_topic_that_is_deleted_are_lost,
        Kafka,
        "delete",
        _keeps_offsets,
    ),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted[1].__name__}.{planted[2]}")
def test_a_wrong_model_differs_from_kafka(
    kafka: Cluster,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    planted: tuple[Script, type, str, Callable[..., Any]],
) -> None:
    script, where, what, wrong = planted
    seen = on_kafka(script, kafka, name)
    compare(script, seen)
    monkeypatch.setattr(where, what, wrong)
    with pytest.raises(pytest.fail.Exception, match="on the model"):
        compare(script, seen)

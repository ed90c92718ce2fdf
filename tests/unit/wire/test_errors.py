"""Error codes: libkafka's table, and unknown codes."""

from __future__ import annotations

import pickle

import pytest

from pixy.wire import errors
from pixy.wire.errors import ErrorCode, KafkaError
from pixy.wire.exceptions import WireError

LIBKAFKA_RETRIABLE = {2, 3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 41, 56, 70, 71, 72, 74, 75, 78, 80}
"""libkafka's table. Kafka has since made these retriable:"""
SINCE = {9, 51}


def test_libkafkas_table() -> None:
    for code in range(-1, 82):
        assert ErrorCode(code).retriable is (code in LIBKAFKA_RETRIABLE | SINCE), ErrorCode(code).name
    assert ErrorCode.NOT_LEADER_FOR_PARTITION is ErrorCode.NOT_LEADER_OR_FOLLOWER  # its name in libkafka


def test_unknown_codes() -> None:
    assert errors.lookup(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert errors.describe(9999) == "unknown error code 9999"
    assert errors.describe(41) == "NOT_CONTROLLER (41): the broker is not the controller"


def test_check_raises_kafka_error() -> None:
    errors.check(0)
    with pytest.raises(
        KafkaError, match=r"^TOPIC_ALREADY_EXISTS \(36\): the topic exists already: Topic 'x' exists$"
    ) as caught:
        errors.check(36, "Topic 'x' exists")
    error = caught.value
    assert (
        isinstance(error, WireError)
        and error.error is ErrorCode.TOPIC_ALREADY_EXISTS
        and not error.error.retriable
    )
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and vars(copy) == vars(error)
    assert KafkaError(9999).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_errors_that_require_a_refresh() -> None:
    assert {error.name for error in ErrorCode if error.refresh} >= {
        "NOT_LEADER_OR_FOLLOWER",
        "LEADER_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_COORDINATOR",
    }
    assert all(error.retriable for error in ErrorCode if error.refresh)
    assert not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.refresh

"""The errors of the API: their codes and texts are a contract."""

from __future__ import annotations

import pytest

from pixy import errors as pixy
from pixy.api.restv1 import errors
from pixy.api.restv1.errors import ApiError, ErrorKind, entry_code, kind_of


@pytest.mark.parametrize(
    ("kind", "status", "code", "text"),
    [
        (errors.TOPIC_NOT_FOUND, 404, 40401, "Topic not found."),
        (errors.PARTITION_NOT_FOUND, 404, 40402, "Partition not found."),
        (errors.CONSUMER_INSTANCE_NOT_FOUND, 404, 40403, "Consumer instance not found."),
        (errors.LEADER_NOT_AVAILABLE, 404, 40404, "Leader not available."),
        (errors.GROUP_NOT_FOUND, 404, 40405, "Consumer group id not found."),
        (
            errors.FORMAT_MISMATCH,
            406,
            40601,
            "The requested embedded data format does not match the deserializer for this consumer instance",
        ),
        (
            errors.ALREADY_SUBSCRIBED,
            409,
            40901,
            "Consumer cannot subscribe the the specified target because it has already subscribed to other topics.",
        ),
        (
            errors.INSTANCE_EXISTS,
            409,
            40902,
            "Consumer with specified consumer ID already exists in the specified consumer group.",
        ),
        (
            errors.INVALID_CONSUMER_CONSTRAINT,
            422,
            40001,
            "Invalid consumer configuration. It does not abide by the constraints: ",
        ),
        (errors.KEY_SCHEMA_MISSING, 422, 42201, "Request includes keys but does not include key schema"),
        (
            errors.VALUE_SCHEMA_MISSING,
            422,
            42202,
            "Request includes values but does not include value schema",
        ),
        (errors.INVALID_CONSUMER_CONFIG, 422, 42204, "Invalid consumer configuration: "),
        (
            errors.NO_SIMPLE_CONSUMER,
            503,
            50301,
            "No SimpleConsumer is available at the time in the pool. The request can be retried. You can increase the pool size or the pool timeout to avoid this error in the future.",
        ),
    ],
)
def test_codes_and_texts_are_literal(kind: ErrorKind, status: int, code: int, text: str) -> None:
    assert (kind.status, kind.code, kind.text) == (status, code, text)


def kafka(name: str, *, retriable: bool = False) -> pixy.KafkaError:
    return pixy.KafkaError(f"kafka: {name}", -1, name, retriable=retriable)


@pytest.mark.parametrize(
    ("error", "status", "code", "text"),
    [
        (pixy.UnknownTopic("x", 3, "n"), 404, 40401, "Topic not found."),
        (pixy.UnknownPartition("x", 3, "n"), 404, 40402, "Partition not found."),
        (pixy.UnknownCluster("c"), 404, 404, "proxy `c` does not exist"),
        (
            pixy.OffsetOutOfRange(9, 0, 4),
            422,
            422,
            "bad offset: 9 is out of range, the partition holds 0 to 4",
        ),
        (pixy.InvalidParameter("bad topic: 'é'"), 422, 422, "bad topic: 'é'"),
        (pixy.FetchPoolBusy(), 503, 50301, errors.NO_SIMPLE_CONSUMER.text),
        (pixy.TooManyRequests("a.b"), 429, 429, "Too many requests. Consider increasing `a.b`"),
        (pixy.OverBudget("b"), 503, 503, "too much is under way (`b`), try again"),
        (pixy.ShuttingDown(), 503, 503, "service is shutting down"),
        (kafka("SASL_AUTHENTICATION_FAILED"), 401, 40101, "kafka: SASL_AUTHENTICATION_FAILED"),
        (kafka("TOPIC_AUTHORIZATION_FAILED"), 403, 40301, "kafka: TOPIC_AUTHORIZATION_FAILED"),
        (kafka("MSG_SIZE_TOO_LARGE"), 413, 413, "kafka: MSG_SIZE_TOO_LARGE"),
        (kafka("LEADER_NOT_AVAILABLE", retriable=True), 404, 40404, "Leader not available."),
        (kafka("_ALL_BROKERS_DOWN", retriable=True), 503, 50302, "Kafka error: kafka: _ALL_BROKERS_DOWN"),
        (kafka("NOT_ENOUGH_REPLICAS", retriable=True), 500, 50003, "Kafka error: kafka: NOT_ENOUGH_REPLICAS"),
        (kafka("INVALID_RECORD"), 500, 50002, "Kafka error: kafka: INVALID_RECORD"),
        (ApiError(errors.INVALID_CONSUMER_CONFIG, "x"), 422, 42204, "Invalid consumer configuration: x"),
        (ApiError(errors.INVALID, "records may not be empty"), 422, 422, "records may not be empty"),
        (ValueError("secret"), 500, 500, "Internal Server Error"),
    ],
)
def test_the_error_of_each_exception(error: Exception, status: int, code: int, text: str) -> None:
    kind = kind_of(error)
    assert (kind.status, kind.code, kind.text) == (status, code, text)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (kafka("INVALID_RECORD"), 50002),
        (kafka("MSG_SIZE_TOO_LARGE"), 50002),
        (kafka("NOT_ENOUGH_REPLICAS", retriable=True), 50003),
        (pixy.TooManyRequests(), 50003),
        (pixy.ShuttingDown(), 50003),
        (kafka("LEADER_NOT_AVAILABLE", retriable=True), 50003),
        (kafka("SASL_AUTHENTICATION_FAILED"), 40101),
        (kafka("TOPIC_AUTHORIZATION_FAILED"), 40301),
        (pixy.UnknownPartition("x", 3, "n"), 40402),
        (pixy.UnknownTopic("x", 3, "n"), 50003),
        (ApiError(errors.INVALID, "Record value contains invalid base64 encoding"), 422),
    ],
)
def test_the_code_of_one_failed_record(error: Exception, code: int) -> None:
    assert entry_code(error) == code

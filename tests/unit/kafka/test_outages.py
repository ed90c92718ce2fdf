"""What librdkafka says about brokers that it cannot reach, in our words."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from pixy.kafka.outages import Outages, reason_of

REFUSED = "localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (REFUSED, "localhost:1: connection refused"),
        (
            "b.x:9092/7: Connect to ipv6#[::1]:9092 failed: No route to host (after 3ms in state CONNECT, 4 identical "
            "error(s) suppressed)",
            "b.x:9092: no route to host",
        ),
        (
            "nosuch:9092/bootstrap: Failed to resolve 'nosuch:9092': Name or service not known (after 1ms in state CONNECT)",
            "nosuch:9092: name or service not known",
        ),
        (
            "sasl_ssl://b:9093/bootstrap: SASL PLAIN authentication failed: no (after 5ms in state AUTH_REQ)",
            "sasl_ssl://b:9093: SASL PLAIN authentication failed: no",
        ),
        ("something else", "something else"),
    ],
)
def test_a_broker_s_error_is_its_address_and_the_cause(text: str, reason: str) -> None:
    assert reason_of(text) == reason


def test_the_cause_of_the_last_failure_stands_for_the_counts() -> None:
    """``0/2 brokers are down`` said that none is."""
    outages = Outages()
    outages.note(KafkaError(KafkaError._TRANSPORT, REFUSED))
    assert outages.down == "", "others may be up"
    outages.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/2 brokers are down"))
    assert outages.down == "localhost:1: connection refused"


def test_without_a_cause_there_are_no_counts_either() -> None:
    outages = Outages()
    outages.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert outages.down == "no broker is connected"
    outages.note(KafkaError(KafkaError._TRANSPORT, REFUSED))
    assert outages.down == "localhost:1: connection refused", (
        "the first failed attempt comes after a lost connection"
    )


def test_what_a_person_must_mend_counts_before_all_brokers_were_tried() -> None:
    outages = Outages()
    outages.note(KafkaError(KafkaError._AUTHENTICATION, "b:1/bootstrap: no (after 1ms in state AUTH_REQ)"))
    assert outages.down == "b:1: no"

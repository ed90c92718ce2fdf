"""Offsets over the wire library: the member, the addresses and options, and retries."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError as LibraryError

from pixy.errors import KafkaError
from pixy.kafka import group_offsets, settings
from pixy.kafka.brokers import bootstrap, wire_options
from pixy.kafka.group_offsets import Commit, GroupOffsets, parse_member
from pixy.wire.client import (
    AuthenticationError,
    GroupOffset,
    GroupOffsets as Found,
    Member,
    RequestTimedOutError,
    TransportError,
)
from pixy.wire.errors import KafkaError as WireKafkaError
from tests.kafka.cluster import Certificates
from tests.support import make_config

BASE = {
    "bootstrap.servers": "one:1, two:2",
    "client.id": "pixy",
    "security.protocol": "PLAINTEXT",
    "socket.timeout.ms": 30_000,
    "socket.connection.setup.timeout.ms": 3000,
}
COMMIT = Commit("t", 0, 7, "BK", 4)


@pytest.mark.parametrize(
    ("data", "member"),
    [
        (b"CGMDv2:\x01\x00\x00\x00g\x00rdkafka-1\x00\x01", Member("rdkafka-1", 1, None)),
        (b"CGMDv2:\x02\x01\x00\x00\xc3\xa9\x00m\x00\x00static\x00", Member("m", 258, "static")),
        (b"CGMDv2:\xff\xff\xff\xffg\x00\x00\x01", Member("", -1, None)),
    ],
)
def test_group_metadata_are_parsed(data: bytes, member: Member) -> None:
    assert parse_member(data) == member


def test_librdkafka_still_writes_that_format() -> None:
    consumer = Consumer({"group.id": "g", "bootstrap.servers": "127.0.0.1:1"})
    try:
        assert parse_member(consumer.consumer_group_metadata()) == Member("", -1, None)
    finally:
        consumer.close()
    with pytest.raises(ValueError, match=r"another format: b'CGMDv3:"):
        parse_member(b"CGMDv3:\x01")


@pytest.mark.parametrize(
    ("servers", "wanted"),
    [
        ("one:1, two:2", ["one:1", "two:2"]),
        ("one", ["one:9092"]),
        ("PLAINTEXT://one:1,", ["one:1"]),
        ("[::1]:5", ["[::1]:5"]),
        ("[::1]", ["[::1]:9092"]),
    ],
)
def test_bootstrap_addresses_get_a_default_port(servers: str, wanted: list[str]) -> None:
    assert bootstrap({"bootstrap.servers": servers}) == wanted


def test_wire_options_follow_a_client_s_settings(tmp_path: Path) -> None:
    plain = wire_options(settings.admin(make_config(["127.0.0.1:1"]).proxies["default"]))
    assert "tls" not in plain and "sasl" not in plain and plain["request_timeout"] == 10.0
    config = make_config(["127.0.0.1:1"]).proxies["default"]
    certificates = Certificates(tmp_path)
    config.kafka.tls, config.kafka.ca_certificate_file = True, certificates.ca_file
    config.kafka.client_certificate_file, config.kafka.client_key_file, _ = certificates.issue("c")
    config.net.sasl.enable, config.net.sasl.mechanism = True, "SCRAM-SHA-512"
    config.net.sasl.user, config.net.sasl.password = "u", "p"
    secure = wire_options(settings.consumer(config, "g"))
    tls, sasl = secure["tls"], secure["sasl"]
    assert tls is not None and tls.check_hostname and tls.verify_mode is ssl.CERT_REQUIRED
    assert sasl is not None and (sasl.mechanism, sasl.username, sasl.password) == ("SCRAM-SHA-512", "u", "p")
    config.kafka.insecure = True
    loose = wire_options(settings.consumer(config, "g"))["tls"]
    assert loose is not None and not loose.check_hostname and loose.verify_mode is ssl.CERT_NONE


class Coordinator:
    """Answers from a list of error codes and exceptions."""

    def __init__(self, answers: Sequence[int | Exception]) -> None:
        self.left = list(answers)
        self.forgotten = self.closed = 0
        self.sent: list[dict[Any, Any]] = []

    def commit_offsets(self, offsets: dict[Any, Any], _member: Member) -> dict[Any, int]:
        self.sent.append(offsets)
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(offsets, answer)

    def fetch_offsets(self, partitions: list[Any]) -> Found:
        answer = self.left.pop(0)
        assert isinstance(answer, int)
        return Found(0, {tp: GroupOffset(answer, -2, "A100\0") for tp in partitions})

    def forget(self) -> None:
        self.forgotten += 1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records pauses and advances the clock by them instead of sleeping."""
    taken: list[float] = []
    monkeypatch.setattr(group_offsets.time, "sleep", taken.append)
    monkeypatch.setattr(group_offsets.time, "monotonic", lambda: sum(taken))
    return taken


def offsets_of(
    monkeypatch: pytest.MonkeyPatch, *answers: int | Exception
) -> tuple[GroupOffsets, Coordinator]:
    coordinator = Coordinator(answers)
    monkeypatch.setattr(group_offsets, "GroupClient", lambda *_args, **_options: coordinator)
    return GroupOffsets(BASE, "g"), coordinator


MOVED, LOADING, FENCED, TOO_LARGE, NO_TOPIC = 16, 14, 22, 12, 3


@pytest.mark.parametrize("trouble", [MOVED, LOADING, TransportError("gone")])
def test_a_coordinator_that_moved_or_hung_up_is_looked_up_once_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, naps: list[float], trouble: int | Exception
) -> None:
    offsets, coordinator = offsets_of(monkeypatch, trouble, 0)
    assert offsets.commit([COMMIT]) == {}
    assert (coordinator.left, coordinator.forgotten, naps) == ([], 1, [0.0])
    offsets, coordinator = offsets_of(monkeypatch, trouble, trouble, 0)
    with pytest.raises(KafkaError):
        offsets.commit([COMMIT])
    assert coordinator.left == [0]


def test_retries_go_on_for_as_long_as_patience(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    offsets, coordinator = offsets_of(monkeypatch, *[MOVED] * 6, 0)
    assert offsets.commit([COMMIT], patience=5) == {}
    assert naps == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8]
    del naps[:]
    offsets, coordinator = offsets_of(monkeypatch, *[MOVED] * 100)
    with pytest.raises(KafkaError) as raised:
        offsets.commit([COMMIT], patience=5)
    assert raised.value.code == MOVED and 4 < sum(naps) <= 5
    assert coordinator.forgotten == len(naps)


def test_what_may_be_committed_is_asked_again_before_each_attempt(
    monkeypatch: pytest.MonkeyPatch, naps: list[float]
) -> None:
    """A topic may be deleted while the coordinator is looked for."""
    offsets, coordinator = offsets_of(monkeypatch, MOVED, MOVED, 0)
    asked: list[tuple[Commit, ...]] = []
    answers = [(COMMIT,), (COMMIT,), (Commit("t", 0, 0, ""),)]

    def check(_offsets: GroupOffsets, commits: tuple[Commit, ...]) -> tuple[Commit, ...]:
        asked.append(commits)
        return answers[len(asked) - 1]

    assert offsets.commit([COMMIT], patience=5, check=check) == {}
    assert asked == [(COMMIT,)] * 3
    assert [next(iter(sent.values())) for sent in coordinator.sent] == [
        (COMMIT.offset, COMMIT.metadata, 4),
        (COMMIT.offset, COMMIT.metadata, 4),
        (0, "", -1),
    ]


def test_what_may_not_be_committed_fails_as_if_kafka_had_refused_it(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, coordinator = offsets_of(monkeypatch)
    failed = offsets.commit([COMMIT], check=lambda _offsets, _commits: ())
    assert {partition: error.code for partition, error in failed.items()} == {("t", 0): NO_TOPIC}
    assert not coordinator.sent
    offsets, coordinator = offsets_of(monkeypatch, 0)
    failed = offsets.commit([COMMIT, Commit("u", 0, 1, "")], check=lambda _offsets, commits: commits[:1])
    assert list(failed) == [("u", 0)] and [list(sent) for sent in coordinator.sent] == [[("t", 0)]]


def test_errors_that_do_not_pass_are_returned_at_once(
    monkeypatch: pytest.MonkeyPatch, naps: list[float]
) -> None:
    for code in (FENCED, TOO_LARGE):
        offsets, _ = offsets_of(monkeypatch, code)
        errors = offsets.commit([COMMIT], patience=5)
        assert errors["t", 0].code == code and str(errors["t", 0]).startswith("kafka server: ")
    assert naps == []


def test_connection_errors_are_translated(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    for raised, code in (
        (RequestTimedOutError("late"), LibraryError._TIMED_OUT),
        (AuthenticationError("no"), LibraryError._AUTHENTICATION),
        (WireKafkaError(FENCED), FENCED),
    ):
        offsets, _ = offsets_of(monkeypatch, raised)
        with pytest.raises(KafkaError) as found:
            offsets.commit([COMMIT])
        assert found.value.code == code


def test_an_empty_commit_makes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, _ = offsets_of(monkeypatch)
    assert offsets.commit([]) == {}
    offsets.close()


def test_committed_metadata_are_returned_without_an_old_terminator(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, coordinator = offsets_of(monkeypatch, 0, FENCED)
    assert offsets.committed([("t", 1)]) == {("t", 1): group_offsets.CommittedOffset(-2, "A100")}
    with pytest.raises(KafkaError):
        offsets.committed([("t", 1)])
    offsets.close()
    assert coordinator.closed == 1

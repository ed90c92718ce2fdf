"""Members of groups over the wire library: both protocols, and brokers that do not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from pixy.errors import KafkaError
from pixy.kafka import brokers as module
from pixy.kafka.brokers import Brokers
from pixy.kafka.errors import UNSUPPORTED_CODES
from pixy.kafka.group_members import GroupMember, GroupMembers
from pixy.wire.consumer_protocol import encode_assignment
from tests.unit.wire.fake_broker import Answer, FakeBroker

ASSIGNED = encode_assignment(1, {"AssignedPartitions": [{"Topic": "t", "Partitions": [0, 2]}]})
NOT_COORDINATOR, NOT_FOUND, NO_VERSION, REFUSED = 16, 69, 35, 30


@pytest.fixture
def brokers() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def members_of(*brokers: FakeBroker) -> GroupMembers:
    settings = {
        "bootstrap.servers": ",".join(each.address for each in brokers),
        "client.id": "pixy",
        "security.protocol": "PLAINTEXT",
        "socket.timeout.ms": 30_000,
        "socket.connection.setup.timeout.ms": 3000,
    }
    return GroupMembers(Brokers(settings, module.LIMIT, patience=15.0))


def cluster(brokers: ExitStack, answers: dict[str, Answer] | None = None, **versions: Any) -> FakeBroker:
    """A broker that answers all but what ``answers`` has as a healthy one would."""
    return brokers.enter_context(FakeBroker(answers, **versions))


def silent(brokers: ExitStack, monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """A broker that takes connections and never answers, as a stopped process does."""
    monkeypatch.setattr(module, "LIMIT", 2.0)
    done = threading.Event()
    broker = cluster(brokers, {"ApiVersions": lambda _request: None if done.wait(30) else b""})
    brokers.callback(done.set)
    return broker


def group(name: str, *members: dict[str, Any], kind: str = "consumer", error: int = 0) -> dict[str, Any]:
    return {"GroupId": name, "ProtocolType": kind, "ErrorCode": error, "Members": list(members)}


def member(assignment: bytes = ASSIGNED) -> dict[str, Any]:
    return {"ClientId": "c", "MemberId": "c-1", "MemberAssignment": assignment}


MEMBER = GroupMember("c", "c-1", (("t", 0), ("t", 2)))


def test_members_of_both_protocols_are_found(brokers: ExitStack) -> None:
    assignment = {"TopicPartitions": [{"TopicName": "t", "Partitions": [0, 2]}]}
    new = {"ClientId": "c", "MemberId": "c-1", "Assignment": assignment}
    broker = cluster(
        brokers,
        {
            "ConsumerGroupDescribe": lambda request: broker.usual(
                request,
                Groups=[
                    {"GroupId": "new", "Members": [new]},
                    {"GroupId": "old", "ErrorCode": NOT_FOUND},
                    {"GroupId": "connect", "ErrorCode": NO_VERSION},
                    {"GroupId": "none", "ErrorCode": NOT_FOUND},
                ],
            ),
            "DescribeGroups": lambda request: broker.usual(
                request,
                Groups=[
                    group("old", member(), member(b"")),
                    group("connect", member(b"\xff"), kind="connect"),
                    group("none", kind="", error=NOT_FOUND),
                ],
            ),
        },
    )
    assert members_of(broker).describe(["new", "old", "connect", "none"]) == {
        "new": (MEMBER,),
        "old": (MEMBER, GroupMember("c", "c-1", ())),
        "connect": (GroupMember("c", "c-1", ()),),
        "none": (),
    }
    assert broker.seen[-1].body["Groups"] == ["old", "connect", "none"]


def test_a_broker_without_the_new_protocol_is_asked_in_the_old_one(brokers: ExitStack) -> None:
    broker = cluster(
        brokers,
        {"DescribeGroups": lambda request: broker.usual(request, Groups=[group("g", member())])},
        ConsumerGroupDescribe=(9, 9),
    )
    assert members_of(broker).describe(["g"]) == {"g": (MEMBER,)}
    nothing = cluster(brokers, ConsumerGroupDescribe=(9, 9), DescribeGroups=(9, 9))
    with pytest.raises(KafkaError) as raised:
        members_of(nothing).describe(["g"])
    assert raised.value.code in UNSUPPORTED_CODES


@pytest.mark.slow
def test_another_bootstrap_broker_is_asked_after_a_silent_one(
    brokers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = silent(brokers, monkeypatch)
    broker = cluster(
        brokers, {"DescribeGroups": lambda request: broker.usual(request, Groups=[group("g", member())])}
    )
    monkeypatch.setattr(module.random, "shuffle", lambda _list: None)
    assert members_of(dead, broker).describe(["g"]) == {"g": (MEMBER,)}
    assert dead.connections == 1
    with pytest.raises(KafkaError) as raised:
        members_of(dead).describe(["g"])
    assert raised.value.code == LibraryError._TIMED_OUT


@pytest.mark.slow
def test_a_coordinator_that_did_not_answer_is_looked_up_again(
    brokers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = silent(brokers, monkeypatch)
    coordinators = [dead.port]
    broker = cluster(
        brokers,
        {
            "FindCoordinator": lambda request: broker.usual(
                request, NodeId=1, Host="127.0.0.1", Port=coordinators[-1]
            ),
            "DescribeGroups": lambda request: broker.usual(request, Groups=[group("g", member())]),
        },
    )
    members = members_of(broker)
    with pytest.raises(KafkaError) as raised:
        members.describe(["g"])
    assert raised.value.code == LibraryError._TIMED_OUT
    coordinators.append(broker.port)
    assert members.describe(["g"]) == {"g": (MEMBER,)}


@pytest.mark.parametrize("api", ["FindCoordinator", "ConsumerGroupDescribe", "DescribeGroups"])
@pytest.mark.parametrize("code", [NOT_COORDINATOR, REFUSED])
def test_errors_of_brokers_are_raised(brokers: ExitStack, api: str, code: int) -> None:
    changes: dict[str, Any] = {"ErrorCode": code} if api == "FindCoordinator" else {}
    if not changes:
        changes = {"Groups": [{"GroupId": "g", "ErrorCode": code}]}
    broker = cluster(brokers, {api: lambda request: broker.usual(request, **changes)})
    with pytest.raises(KafkaError) as raised:
        members_of(broker, broker).describe(["g"])
    assert raised.value.code == code
    assert broker.names().count("FindCoordinator") == 1

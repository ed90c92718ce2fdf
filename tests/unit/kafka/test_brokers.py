"""Requests to brokers over the wire library: which broker is asked, connections that are kept, outcomes of each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from pixy.errors import KafkaError, UnknownTopic
from pixy.kafka import brokers as module
from pixy.kafka.admin import KafkaAdmin
from pixy.kafka.brokers import Brokers
from pixy.kafka.errors import OUT_OF_BROKERS, UNSUPPORTED_CODES
from pixy.kafka.group_members import GroupMembers, coordinator
from pixy.kafka.partition_logs import Log, PartitionLogs
from pixy.kafka.topic_configs import topic_configs
from pixy.wire.blocking import run
from pixy.wire.connection import Broker, Connection
from pixy.wire.schema import NULL_UUID
from tests.unit.wire.fake_broker import PARTITION, TOPIC, Answer, FakeBroker

REFUSED = 29
BOUNDS = (TOPIC, PARTITION)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.random, "shuffle", lambda _list: None)


def broker(opened: ExitStack, answers: dict[str, Answer] | None = None, **versions: Any) -> FakeBroker:
    return opened.enter_context(FakeBroker(answers, **versions))


def settings_of(*fakes: FakeBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(each.address for each in fakes),
        "client.id": "pixy",
        "security.protocol": "PLAINTEXT",
        "socket.timeout.ms": 30_000,
        "socket.connection.setup.timeout.ms": 3000,
        **more,
    }


def brokers_of(opened: ExitStack, *fakes: FakeBroker, keep: int = 0, limit: float = 20.0) -> Brokers:
    made = Brokers(settings_of(*fakes), limit, 20.0, keep)
    opened.callback(made.close)
    return made


def address(fake: FakeBroker) -> Broker:
    return Broker("127.0.0.1", fake.port, 7)


def groups(connection: Connection) -> Any:
    return run(connection.call("ListGroups", {}))["Groups"]


def test_a_connection_is_kept_and_replaced_once_the_broker_has_closed_it(opened: ExitStack) -> None:
    fake = broker(opened)
    brokers = brokers_of(opened, fake, keep=1)
    for _ in range(3):
        brokers.ask(address(fake), groups)
    assert fake.connections == 1
    for each in fake._open:
        each.close()  # as a broker that restarts
    assert brokers.ask(address(fake), groups) == []
    assert fake.connections == 2


def test_no_more_connections_are_kept_than_asked_for_and_none_after_the_end(opened: ExitStack) -> None:
    fake = broker(opened)
    for keep, after in ((0, 4), (1, 3)):
        fake.connections = 0
        brokers = brokers_of(opened, fake, keep=keep)
        brokers.ask(address(fake), lambda _first, each=brokers: each.ask(address(fake), groups))
        brokers.ask(address(fake), groups)
        brokers.close()
        brokers.ask(address(fake), groups)
        assert fake.connections == after
        assert not any(brokers._idle.values())


@pytest.mark.slow
def test_a_request_that_is_not_answered_in_time_is_not_repeated(opened: ExitStack) -> None:
    done = threading.Event()
    opened.callback(done.set)
    fake = broker(opened, {"ListGroups": lambda _request: None if done.wait(30) else b""})
    brokers = brokers_of(opened, fake, keep=1, limit=1.0)
    brokers.topics()
    with pytest.raises(KafkaError) as raised:
        brokers.ask(address(fake), groups)
    assert raised.value.code == LibraryError._TIMED_OUT
    assert fake.names() == ["Metadata", "ListGroups"]


def test_brokers_of_the_last_metadata_are_asked_when_the_bootstrap_brokers_are_gone(
    opened: ExitStack,
) -> None:
    other = broker(opened)
    seed = broker(opened, {"Metadata": lambda request: other.usual(request)})
    brokers = brokers_of(opened, seed)
    assert brokers.topics([]).brokers[1] == address(other)
    seed.close()
    assert brokers.topics([TOPIC]).counts == {TOPIC: 2}
    assert other.names() == ["Metadata"]


def test_the_broker_that_answered_last_is_asked_first(opened: ExitStack) -> None:
    fakes = [broker(opened), broker(opened)]
    brokers = brokers_of(opened, *fakes)
    fakes[0].answers["Metadata"] = lambda _request: None  # closes the connection
    for _ in range(3):
        brokers.topics([])
    assert [each.names().count("Metadata") for each in fakes] == [1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["refused", "silent", "credentials"])
def test_without_any_broker_the_error_is_that_of_the_original(
    opened: ExitStack, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    opened.callback(done.set)
    fake, more = broker(opened), dict[str, Any]()
    if how == "refused":
        fake.close()
    elif how == "silent":
        fake.answers["Metadata"] = lambda _request: None if done.wait(30) else b""
    else:
        fake.answers["SaslHandshake"] = lambda request: fake.usual(request, ErrorCode=33)
        names = {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
        more = {"security.protocol": "SASL_PLAINTEXT", **names}
    with pytest.raises(KafkaError, match=f"^{OUT_OF_BROKERS[:40]}") as raised:
        Brokers(settings_of(fake, **more), 1.0).topics()
    assert raised.value.code == LibraryError._TRANSPORT and raised.value.retriable


def list_offsets(fake: FakeBroker, **codes: int) -> Answer:
    """Answers ListOffsets with 7 for the oldest, 40 for the stable end, 50 for the end, or with an error."""

    def answer(request: Any) -> bytes:
        topics = []
        for topic in request.body["Topics"]:
            entries = [
                {
                    "PartitionIndex": each["PartitionIndex"],
                    "ErrorCode": codes.get(f"p{each['PartitionIndex']}", 0),
                    "Offset": {-2: 7, -1: 40 if request.body["IsolationLevel"] else 50}.get(
                        each["Timestamp"], -1
                    ),
                }
                for each in topic["Partitions"]
            ]
            topics.append({"Name": topic["Name"], "Partitions": entries})
        return fake.usual(request, Topics=topics)

    return answer


@pytest.mark.parametrize("keep", [0, 1])
def test_each_partition_has_its_own_outcome(opened: ExitStack, keep: int) -> None:
    """Also when the leader is asked over the connection to the bootstrap broker, which was kept."""
    fake = broker(opened)
    fake.answers["ListOffsets"] = list_offsets(fake)
    brokers = brokers_of(opened, fake, keep=keep)
    logs = PartitionLogs(brokers)
    found: dict[Any, Any] = {}
    logs.look_up([BOUNDS, (TOPIC, 0), ("none", 0)], brokers.topics([TOPIC, "none"]), found.update)
    assert found.pop(BOUNDS) == Log(NULL_UUID, 7, 40, 50)
    assert {each: error.name for each, error in found.items()} == {
        (TOPIC, 0): "LEADER_NOT_AVAILABLE",
        ("none", 0): "UNKNOWN_TOPIC_OR_PART",
    }
    assert logs.logs([BOUNDS]) == {BOUNDS: Log(NULL_UUID, 7, 40, 50)}
    with pytest.raises(KafkaError, match="no leader for this partition"):
        logs.logs([BOUNDS, (TOPIC, 0), ("none", 0)])
    with pytest.raises(UnknownTopic):
        logs.offsets({("none", 0): 5, (TOPIC, 0): 5})
    fake.answers["ListOffsets"] = list_offsets(fake, p3=REFUSED)
    with pytest.raises(KafkaError, match="not authorized to access this topic"):
        logs.logs([BOUNDS])
    fake.answers["ListOffsets"] = lambda _request: None
    with pytest.raises(KafkaError) as raised:
        logs.logs([BOUNDS])
    assert raised.value.code == LibraryError._TRANSPORT


async def test_the_offset_at_a_time_after_the_last_record_is_the_end(opened: ExitStack) -> None:
    fake = broker(opened)
    fake.answers["ListOffsets"] = list_offsets(fake)
    admin = KafkaAdmin(settings_of(fake), 20.0)
    opened.callback(admin.close)
    for at, offset in ((-2, 7), (-1, 50), (1_700_000_000_000, 50)):
        assert await admin.find_offsets({BOUNDS: at}) == {BOUNDS: offset}
    assert await admin.bounds(TOPIC, [PARTITION]) == {PARTITION: (7, 50)}
    assert await admin.find_offsets({}) == {}


def test_groups_of_all_brokers_are_listed_without_those_of_other_protocols(opened: ExitStack) -> None:
    listed = [
        {"GroupId": each, "ProtocolType": each.rstrip("0123456789")} for each in ("consumer2", "connect")
    ]
    fakes = [
        broker(opened, {"ListGroups": lambda request: fakes[0].usual(request, Groups=listed)}),
        broker(
            opened,
            {
                "ListGroups": lambda request: fakes[1].usual(
                    request, Groups=[{"GroupId": "only-commits", "ProtocolType": ""}]
                )
            },
        ),
    ]
    both = [{"NodeId": each, "Host": "127.0.0.1", "Port": fake.port} for each, fake in enumerate(fakes)]
    fakes[0].answers["Metadata"] = lambda request: fakes[0].usual(request, Brokers=both)
    members = GroupMembers(brokers_of(opened, fakes[0]))
    assert members.names() == ["consumer2", "only-commits"]
    assert coordinator(brokers_of(opened, fakes[0]), "g") == address(fakes[0])


def test_a_list_of_groups_without_those_of_a_broker_that_fails_is_none(opened: ExitStack) -> None:
    """Else a group counts as unknown while its broker is restarted."""
    listed = [{"GroupId": "g", "ProtocolType": "consumer"}]
    fake = broker(opened, {"ListGroups": lambda request: fake.usual(request, Groups=listed)})
    members = GroupMembers(brokers_of(opened, fake))  # its metadata name a second broker, which is dead
    with pytest.raises(KafkaError, match=f"^failed to list the groups of broker 9: {OUT_OF_BROKERS[:40]}"):
        members.names()
    one = [{"NodeId": 7, "Host": "127.0.0.1", "Port": fake.port}]
    fake.answers["Metadata"] = lambda request: fake.usual(request, Brokers=one)
    assert members.names() == ["g"]
    fake.answers["ListGroups"] = lambda request: fake.usual(request, ErrorCode=31)
    with pytest.raises(KafkaError, match=r"^failed to list the groups of broker 7: "):
        members.names()


def test_a_broker_that_cannot_list_groups_or_describe_settings_says_so(opened: ExitStack) -> None:
    """As librdkafka's mock cluster, which is the sandbox."""
    fake = broker(opened, ListGroups=(9, 9), DescribeConfigs=(9, 9))
    brokers = brokers_of(opened, fake)
    for ask in (groups_of, settings_from):
        with pytest.raises(KafkaError) as raised:
            ask(brokers, fake)
        assert raised.value.code in UNSUPPORTED_CODES


def groups_of(brokers: Brokers, fake: FakeBroker) -> object:
    fake.answers["Metadata"] = lambda request: fake.usual(
        request, Brokers=[{"NodeId": 7, "Host": "127.0.0.1", "Port": fake.port}]
    )
    return GroupMembers(brokers).names()


def settings_from(brokers: Brokers, _fake: FakeBroker) -> object:
    return brokers.ask_any(lambda connection: topic_configs(connection, [TOPIC], own=True))


def test_settings_of_topics_are_their_own_or_all(opened: ExitStack) -> None:
    def entry(name: str, value: str | None, source: int) -> dict[str, Any]:
        return {"Name": name, "Value": value, "ConfigSource": source}

    def answer(request: Any) -> bytes:
        configs = [entry("own", "1", 1), entry("broker's", "2", 4), entry("empty", None, 1)]
        results = [
            {"ResourceType": 2, "ResourceName": each["ResourceName"], "ErrorCode": 0, "Configs": configs}
            for each in request.body["Resources"]
        ]
        return fake.usual(request, Results=results)

    fake = broker(opened, {"DescribeConfigs": answer})
    brokers = brokers_of(opened, fake)
    names = [f"t{number}" for number in range(250)]
    own = brokers.ask_any(lambda connection: topic_configs(connection, names, own=True))
    assert own == {name: {"own": "1", "empty": ""} for name in names}
    assert fake.names() == ["DescribeConfigs"] * 3
    found = brokers.ask_any(lambda connection: topic_configs(connection, ["t"], own=False))
    assert found == {"t": {"own": "1", "broker's": "2", "empty": ""}}
    fake.answers["DescribeConfigs"] = lambda request: fake.usual(
        request, Results=[{"ErrorCode": 40, "ErrorMessage": "what the broker says", "ResourceName": "t"}]
    )
    with pytest.raises(KafkaError, match=r"^kafka server: what the broker says$"):
        brokers.ask_any(lambda connection: topic_configs(connection, ["t"], own=True))

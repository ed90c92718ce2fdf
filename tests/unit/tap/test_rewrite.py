"""Addresses in responses are rewritten if the response can be decoded; each named broker gets a port; parsing of addresses."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pixy.errors import ConfigError, StartError
from pixy.tap.broker_ports import BrokerPorts
from pixy.tap.config import Address, TapConfig, parse_address, parse_ports, show_address
from pixy.tap.rewrite import rewrite
from pixy.wire import frames, messages
from tests.unit.tap.stage import Client, Stage, forward

BROKERS = {("kafka-1", 9092): ("tap", 1001), ("kafka-2", 9092): ("tap", 1002)}


def map_address(address: Address, _: int) -> Address:
    return BROKERS[address]


def to_tap(frame: bytes, key: int, version: int) -> bytes | None:
    return rewrite(frame, key, version, map_address)


def exchange(
    client: Client, api: str, version: int, body: dict[str, Any], step: int = 0
) -> tuple[bytes, bytes]:
    """Return the frame that the broker sent and the frame that the client received."""
    client.correlation_id += 1
    forward(
        client.conversation.to_broker, frames.encode_request(api, version, client.correlation_id, "c", {})
    )
    sent = frames.encode_response(api, version, client.correlation_id, body)
    return sent, forward(client.conversation.to_client, sent, step)


@pytest.mark.parametrize("step", [0, 1, 5])
@pytest.mark.parametrize("version", messages.versions("MetadataResponse"))
def test_metadata(version: int, step: int) -> None:
    body = {
        "Brokers": [
            {"NodeId": 1, "Host": "kafka-1", "Port": 9092},
            {"NodeId": 2, "Host": "kafka-2", "Port": 9092},
        ],
        "Topics": [
            {
                "Name": "t",
                "Partitions": [{"PartitionIndex": 0, "LeaderId": 2, "ReplicaNodes": [1, 2], "IsrNodes": [2]}],
            }
        ],
    }
    stage = Stage()
    client = stage.client(rewrite=to_tap)
    sent, got = exchange(client, "Metadata", version, body, step)
    before, after = (frames.decode_response(frame[4:], "Metadata", version) for frame in (sent, got))
    assert [(each["Host"], each["Port"]) for each in after.body["Brokers"]] == [("tap", 1001), ("tap", 1002)]
    for each, original in zip(after.body["Brokers"], before.body["Brokers"], strict=True):
        each["Host"], each["Port"] = original["Host"], original["Port"]
    assert after == before, "only addresses have changed"
    sent, got = exchange(client, "Heartbeat", 3, {}, step)
    assert got == sent and stage.observer.topics.count("t") == 1


@pytest.mark.parametrize("version", messages.versions("FindCoordinatorResponse"))
def test_find_coordinator(version: int) -> None:
    node = {"NodeId": 2, "Host": "kafka-2", "Port": 9092}
    none = {"NodeId": -1, "Host": "", "Port": -1, "ErrorCode": 15}
    client = Stage().client(rewrite=to_tap)
    for each, wanted in ((node, ("tap", 1002)), (none, ("", -1))):
        body = {"Coordinators": [{**each, "Key": "g"}]} if version >= 4 else each
        _, got = exchange(client, "FindCoordinator", version, body)
        found = frames.decode_response(got[4:], "FindCoordinator", version).body
        found = found["Coordinators"][0] if version >= 4 else found
        assert (found["Host"], found["Port"]) == wanted
    assert not client.conversation.counts["defects"] and client.conversation.counts["rewritten"] == 2


@pytest.mark.parametrize("version", messages.versions("DescribeClusterResponse"))
def test_describe_cluster(version: int) -> None:
    client = Stage().client(rewrite=to_tap)
    _, got = exchange(
        client,
        "DescribeCluster",
        version,
        {"ClusterId": "c", "Brokers": [{"BrokerId": 1, "Host": "kafka-1", "Port": 9092}]},
    )
    found = frames.decode_response(got[4:], "DescribeCluster", version).body["Brokers"][0]
    assert (found["Host"], found["Port"]) == ("tap", 1001)


def versions(*apis: tuple[int, int, int]) -> dict[str, Any]:
    return {"ApiKeys": [{"ApiKey": key, "MinVersion": low, "MaxVersion": high} for key, low, high in apis]}


@pytest.mark.parametrize("version", messages.versions("ApiVersionsResponse"))
def test_versions_are_capped_to_those_whose_addresses_can_be_rewritten(version: int) -> None:
    """A later Kafka's Metadata could not be decoded, and its clients would leave the tap."""
    newest = messages.versions("MetadataResponse")[-1]
    client = Stage().client(rewrite=to_tap)
    offered = versions((3, 0, newest + 1), (78, 99, 100), (12, 0, 99), (999, 0, 1), (1, 4, 5))
    _, got = exchange(client, "ApiVersions", version, offered)
    found = frames.decode_response(got[4:], "ApiVersions", version).body["ApiKeys"]
    assert [(each["ApiKey"], each["MinVersion"], each["MaxVersion"]) for each in found] == [
        (3, 0, newest),
        (12, 0, 99),
        (999, 0, 1),
        (1, 4, 5),
    ]
    for same in (versions((3, 0, newest)), {"ErrorCode": 35}):
        sent, got = exchange(client, "ApiVersions", version if "ApiKeys" in same else 0, same)
        assert got == sent
    assert client.conversation.counts["rewritten"] == 1
    sent, got = exchange(Stage().client(), "ApiVersions", version, offered)
    assert got == sent, "without rewriting, nothing is capped"


@pytest.mark.parametrize("rest", [b"", b"\0\0\0\0", bytes.fromhex("01001200000004000000"), b"\0"])
@pytest.mark.parametrize("rewriting", [False, True])
def test_the_refusal_of_a_version_is_passed_on_whatever_follows_the_error(
    rest: bytes, rewriting: bool
) -> None:
    """KIP-511; librdkafka's mock, and so the sandbox, sends malformed bytes after the error."""
    stage = Stage()
    client = stage.client(rewrite=to_tap if rewriting else None)
    client.correlation_id += 1
    asked = frames.encode_request("ApiVersions", 3, client.correlation_id, "c", {})
    forward(client.conversation.to_broker, asked)
    sent = frames.frame(client.correlation_id.to_bytes(4, "big") + b"\0\x23" + rest)
    assert forward(client.conversation.to_client, sent) == sent
    counts = client.conversation.counts
    assert not counts["rewrite_failed"] and not counts["rewritten"]
    assert stage.observer.counts["api_versions_fallbacks"] == 1
    assert not stage.observer.counts["undecodable"] and not stage.observer.counts["defects"]


def test_without_rewriting_nothing_is_changed() -> None:
    client = Stage().client()
    sent, got = exchange(client, "Metadata", 9, {"Brokers": [{"NodeId": 1, "Host": "kafka-1", "Port": 9092}]})
    assert got == sent


@pytest.mark.parametrize("answer", [b"\0\0\0\1\xff\xff\xff\xff\xff", b"\0\0\0\1", b"\0\0\0\1" + b"\0" * 60])
def test_an_undecodable_response_is_forwarded_unchanged(answer: bytes) -> None:
    client = Stage().client(rewrite=to_tap)
    forward(client.conversation.to_broker, frames.encode_request("Metadata", 9, 1, "c", {}))
    sent = frames.frame(answer)
    assert forward(client.conversation.to_client, sent, 3) == sent
    assert client.conversation.counts["rewrite_failed"] == 1


def test_extra_bytes_at_the_end_are_kept() -> None:
    """librdkafka's mock broker sends them."""
    client = Stage().client(rewrite=to_tap)
    forward(client.conversation.to_broker, frames.encode_request("Metadata", 9, 1, "c", {}))
    sent = (
        frames.encode_response(
            "Metadata", 9, 1, {"Brokers": [{"NodeId": 1, "Host": "kafka-1", "Port": 9092}]}
        )[4:]
        + b"\0"
    )
    got = forward(client.conversation.to_client, frames.frame(sent))
    assert got[-1:] == b"\0" and int.from_bytes(got[:4], "big") == len(got) - 4
    assert frames.decode_response(got[4:-1], "Metadata", 9).body["Brokers"][0]["Port"] == 1001


def test_a_response_beyond_the_limit_is_forwarded_unchanged_and_not_held() -> None:
    client = Stage(rewrite=1000).client(rewrite=to_tap)
    topics = [{"Name": f"topic-{i}", "Partitions": []} for i in range(200)]
    sent, got = exchange(client, "Metadata", 9, {"Brokers": [], "Topics": topics}, 100)
    assert got == sent and client.conversation.counts["rewrite_failed"] == 1


def test_held_bytes_are_forwarded_at_the_end_of_the_stream() -> None:
    client = Stage().client(rewrite=to_tap)
    forward(client.conversation.to_broker, frames.encode_request("Metadata", 9, 1, "c", {}))
    assert forward(client.conversation.to_client, b"\0\0\0\x40\0\0\0\1half") == b""
    assert b"".join(client.conversation.to_client.finish()) == b"\0\0\0\x40\0\0\0\1half"


# -- ports -----------------------------------------------------------------------------------------


class Opened:
    """Receives listening sockets instead of the tap."""

    def __init__(self) -> None:
        self.sockets: list[tuple[socket.socket, Address]] = []

    def __call__(self, server: socket.socket, broker: Address) -> None:
        self.sockets.append((server, broker))

    def ports(self) -> dict[Address, int]:
        return {broker: server.getsockname()[1] for server, broker in self.sockets}

    def close(self) -> None:
        for server, _ in self.sockets:
            server.close()


def broker_ports(*brokers: str, **fields: Any) -> tuple[BrokerPorts, Opened]:
    opened = Opened()
    made = BrokerPorts(
        TapConfig(tuple(parse_address(each) for each in brokers), ("127.0.0.1", 0), True, **fields), opened
    )
    made.start()
    return made, opened


def test_each_broker_gets_one_port() -> None:
    made, opened = broker_ports("kafka-1:9092", "kafka-2:9092")
    first = made.tap_address(("kafka-1", 9092), 3, "127.0.0.1")
    third = made.tap_address(("kafka-3", 9092), 3, "127.0.0.1")
    assert opened.ports() == {
        ("kafka-1", 9092): first[1],
        ("kafka-2", 9092): opened.ports()["kafka-2", 9092],
        ("kafka-3", 9092): third[1],
    }
    assert (
        made.tap_address(("kafka-3", 9092), 0, "10.0.0.1") == ("10.0.0.1", third[1])
        and len(opened.sockets) == 3
    )
    opened.close()


def test_the_only_broker_under_another_name_needs_no_port() -> None:
    made, opened = broker_ports("127.0.0.1:9092")
    assert made.tap_address(("localhost", 9092), 1, "h") == ("h", opened.ports()["127.0.0.1", 9092])
    assert made.tap_address(("other", 9092), 2, "h")[1] not in {opened.ports()["127.0.0.1", 9092], 9092}
    assert len(opened.sockets) == 2
    opened.close()


def test_a_load_balancer_does_not_stay_the_first_broker() -> None:
    """While the others were down, kafka-1 looked like the only broker; the balancer leads to any of them."""
    made, opened = broker_ports("balancer:9092")
    shared = opened.ports()["balancer", 9092]
    assert made.tap_address(("kafka-1", 9092), 1, "h") == ("h", shared)
    ports = {made.tap_address((f"kafka-{n}", 9092), 3, "h")[1] for n in (1, 2, 3)}
    assert len(ports) == 3 and shared not in ports
    assert made.tap_address(("kafka-1", 9092), 0, "h")[1] == opened.ports()["kafka-1", 9092]
    assert made.tap_address(("kafka-1", 9092), 1, "h")[1] == opened.ports()["kafka-1", 9092], "for good"
    opened.close()


def test_without_a_free_port_the_address_stays_unchanged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        made, opened = broker_ports("kafka-1:9092", ports=range(port, port + 1), advertise="tap.example")
        assert made.tap_address(("kafka-2", 9092), 3, "h") == ("kafka-2", 9092) and made.exhausted == 1
        assert made.tap_address(("kafka-1", 9092), 3, "h")[0] == "tap.example"
        opened.close()


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        config = TapConfig((("kafka", 9092),), ("127.0.0.1", busy.getsockname()[1]))
        with pytest.raises(StartError, match=r"cannot listen on 127\.0\.0\.1:\d+: address already in use"):
            BrokerPorts(config, Opened()).start()


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "default", "wanted"),
    [
        ("h:1", None, ("h", 1)),
        ("[::1]:9", None, ("::1", 9)),
        (":9", None, ("0.0.0.0", 9)),
        ("kafka", 9092, ("kafka", 9092)),
        ("[::1]", 9092, ("::1", 9092)),
        ("h:0", None, ("h", 0)),
    ],
)
def test_addresses(text: str, default: int | None, wanted: Address) -> None:
    assert parse_address(text, default) == wanted
    assert parse_address(show_address(wanted)) == wanted


@pytest.mark.parametrize(
    "text", ["", "h", "h:", "h:x", "h:65536", "::1:9092", "h:-1", "h:\N{ARABIC-INDIC DIGIT THREE}", "a b:c"]
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="bad address"):
        parse_address(text)


@pytest.mark.parametrize("text", ["", "1", "9-1", "0-5", "1-65536", "a-b", "1-2-3"])
def test_bad_port_ranges(text: str) -> None:
    with pytest.raises(ConfigError, match="bad port range"):
        parse_ports(text)
    assert parse_ports("9100-9101") == range(9100, 9102)

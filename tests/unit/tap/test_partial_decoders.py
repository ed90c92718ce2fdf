"""The partial decoders of Produce and Fetch compared with the full ones; sessions, sequences and hidden addresses."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from pixy.tap import events
from pixy.tap.partial_decoders import ENDPOINTS_HIDDEN
from pixy.tap.sequences import Sequences
from pixy.wire import frames, messages
from pixy.wire.batch import Builder
from tests.unit.tap.stage import Client, Stage, forward

IDS = {name: uuid.UUID(int=i + 1) for i, name in enumerate(("t", "u"))}


def topic(version: int, name: str, **fields: Any) -> dict[str, Any]:
    return {**({"TopicId": IDS[name]} if version >= 13 else {"Topic": name}), **fields}


def shown(version: int, name: str) -> Any:
    return IDS[name] if version >= 13 else name


@pytest.mark.parametrize("version", messages.versions("FetchRequest"))
def test_fetch_requests(version: int) -> None:
    stage = Stage()
    client = stage.client("reader")
    body: dict[str, Any] = {
        "MaxWaitMs": 500,
        "MinBytes": 1,
        "Topics": [
            topic(
                version,
                "t",
                Partitions=[{"Partition": 0, "FetchOffset": 7}, {"Partition": 3, "FetchOffset": 1 << 40}],
            ),
            topic(version, "u", Partitions=[{"Partition": 1, "FetchOffset": 0}]),
        ],
    }
    if version >= 7:
        body |= {
            "SessionId": 12,
            "SessionEpoch": 0,
            "ForgottenTopicsData": [topic(version, "u", Partitions=[5, 6])],
        }
    client.ask("Fetch", version, body, 7)
    asked = stage.taken[-1]
    assert isinstance(asked, events.FetchRequestSeen) and asked.client_id == "reader"
    assert asked.summary.complete
    assert asked.summary.wanted == (
        (shown(version, "t"), 0, 7),
        (shown(version, "t"), 3, 1 << 40),
        (shown(version, "u"), 1, 0),
    )
    assert (asked.summary.session_id, asked.summary.epoch) == ((12, 0) if version >= 7 else (0, -1))
    assert asked.summary.forgotten == (
        ((shown(version, "u"), 5), (shown(version, "u"), 6)) if version >= 7 else ()
    )


@pytest.mark.parametrize("version", messages.versions("FetchResponse"))
def test_fetch_responses(version: int) -> None:
    stage = Stage()
    client = stage.client("reader")
    partitions: list[dict[str, Any]] = [
        {"PartitionIndex": 0, "HighWatermark": 100, "Records": b"r" * 5000},
        {"PartitionIndex": 1, "HighWatermark": 200, "Records": None},
        {"PartitionIndex": 2, "HighWatermark": -1, "ErrorCode": 6, "Records": b""},
    ]
    for each in partitions:
        if version >= 4:
            each["AbortedTransactions"] = [{"ProducerId": 1, "FirstOffset": 2}]
        if version >= 12:
            each["DivergingEpoch"] = {"Epoch": 3, "EndOffset": 9}
    body: dict[str, Any] = {"Responses": [topic(version, "t", Partitions=partitions)]}
    if version >= 7:
        body["SessionId"] = 5
    client.answer(client.ask("Fetch", version, {}), body, 97)
    found = stage.taken[-1]
    assert isinstance(found, events.FetchResponseSeen) and found.summary.complete
    assert found.summary.ends == ((shown(version, "t"), 0, 100), (shown(version, "t"), 1, 200))
    if version < 13:
        assert stage.observer.topics.end("t", 1) == 200


def batch(producer_id: int = -1, epoch: int = -1, sequence: int = -1, count: int = 3) -> bytes:
    builder = Builder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    for i in range(count):
        builder.add(b"k", b"value-%d" % i, timestamp=1)
    return builder.build().marshal()


@pytest.mark.parametrize("version", messages.versions("ProduceRequest"))
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_produce_requests(version: int, acks: int) -> None:
    stage = Stage()
    client = stage.client("writer")
    data = [
        {"Index": 0, "Records": batch(9, 2, 40)},
        {"Index": 1, "Records": None},
        {"Index": 2, "Records": b"short"},
    ]
    names = {"TopicId": IDS["t"]} if version >= 13 else {"Name": "t"}
    body: dict[str, Any] = {"Acks": acks, "TimeoutMs": 5, "TopicData": [{**names, "PartitionData": data}]}
    if version >= 3:
        body["TransactionalId"] = "tx" * 20
    client.ask("Produce", version, body, 13)
    found = stage.taken[-1]
    assert isinstance(found, events.ProduceSeen) and found.summary.acks == acks and found.summary.complete
    assert found.summary.topics == (shown(version, "t"),)
    assert [
        (each.partition, each.producer_id, each.epoch, each.base_sequence, each.last_offset_delta)
        for each in found.summary.batches
    ] == [(0, 9, 2, 40, 2)]
    assert client.conversation.in_flight == (acks != 0)


def test_partitions_beyond_the_limit_are_skipped() -> None:
    stage = Stage(heads=5)
    client = stage.client()
    many = [
        {"PartitionIndex": i, "HighWatermark": 1, "AbortedTransactions": [], "Records": b"x"}
        for i in range(20)
    ]
    client.answer(client.ask("Fetch", 11, {}), {"Responses": [{"Topic": "t", "Partitions": many}]})
    found = stage.taken[-1]
    assert (
        isinstance(found, events.FetchResponseSeen)
        and not found.summary.complete
        and len(found.summary.ends) == 5
    )
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert stage.group()["generation"] == 5


# -- fetch sessions (KIP-227), readers and writers -------------------------------------------------


def test_a_fetch_session_adds_and_removes_partitions() -> None:
    stage = Stage()
    client = stage.client("reader")

    def fetch(epoch: int, wanted: dict[int, int], forgotten: list[int] = []) -> dict[str, dict[str, int]]:  # noqa: B006
        client.call(
            "Fetch",
            11,
            {
                "SessionId": 1,
                "SessionEpoch": epoch,
                "Topics": [
                    {
                        "Topic": "t",
                        "Partitions": [{"Partition": p, "FetchOffset": o} for p, o in wanted.items()],
                    }
                ]
                if wanted
                else [],
                "ForgottenTopicsData": [{"Topic": "t", "Partitions": forgotten}] if forgotten else [],
            },
            {"Responses": []},
        )
        return stage.observer.connections.to_json(stage.now)[0]["fetching"]

    assert fetch(0, {0: 5, 1: 6}) == {"t": {"0": 5, "1": 6}}
    assert fetch(1, {}) == {"t": {"0": 5, "1": 6}}, "an incremental fetch names only changed partitions"
    assert fetch(2, {1: 9, 2: 1}) == {"t": {"0": 5, "1": 9, "2": 1}}
    assert fetch(3, {}, [0]) == {"t": {"1": 9, "2": 1}}
    assert fetch(0, {7: 7}) == {"t": {"7": 7}}, "a new session"
    assert fetch(-1, {8: 8}) == {"t": {"8": 8}}, "no session"


def test_readers_and_writers_of_a_topic() -> None:
    stage = Stage()
    reader, writer = stage.client("reader"), stage.client("writer")
    reader.call("Fetch", 11, {"Topics": [{"Topic": "t", "Partitions": [{}]}]}, {"Responses": []})
    reader.ask("Fetch", 11, {"ReplicaId": 2, "Topics": [{"Topic": "replicated", "Partitions": [{}]}]})
    writer.ask("Produce", 9, {"TopicData": [{"Name": "t", "PartitionData": [{"Records": batch()}]}]})
    stage.topic(reader, "t", 4)
    assert stage.observer.topics.usage() == [
        {
            "topic": "t",
            "partitions": 4,
            "readers": [{"client_id": "reader", "last": stage.now}],
            "writers": [{"client_id": "writer", "last": stage.now}],
        }
    ]


# -- sequences ------------------------------------------------------------------------------------


def send(client: Client, producer: int, epoch: int, sequence: int, count: int = 3) -> None:
    client.call(
        "Produce",
        9,
        {
            "Acks": -1,
            "TopicData": [
                {
                    "Name": "t",
                    "PartitionData": [{"Index": 0, "Records": batch(producer, epoch, sequence, count)}],
                }
            ],
        },
        {"Responses": []},
    )


def test_sequences() -> None:
    stage = Stage()
    client = stage.client("writer")
    for sequence in (0, 3, 6):
        send(client, 1, 0, sequence)
    send(client, 1, 0, 3)  # a retry
    send(client, 1, 0, 9)
    assert stage.observer.totals()["sequence_gaps"] == 0 and stage.observer.totals()["sequence_repeats"] == 1
    send(client, 1, 0, 20)
    assert [
        {key: each[key] for key in ("topic", "partition", "producer_id", "expected", "found", "client_id")}
        for each in stage.told("sequence.gap")
    ] == [
        {"topic": "t", "partition": 0, "producer_id": 1, "expected": 12, "found": 20, "client_id": "writer"}
    ]
    send(client, 1, 1, 0)  # a new epoch starts a new sequence
    send(client, -1, -1, -1)
    send(client, 2, 0, 500)  # the tap started late
    assert stage.observer.totals()["sequence_gaps"] == 1
    stage.put(events.EventsLost(stage.now, 1, frozenset({1})))
    send(client, 1, 0, 100)
    assert stage.observer.totals()["sequence_gaps"] == 1, "unobserved batches are not a gap"


def test_sequences_wrap() -> None:
    sequences = Sequences(10)
    from pixy.tap.partial_decoders import FirstBatch

    def first_batch(base: int, delta: int) -> FirstBatch:
        return FirstBatch("t", 0, 1, 0, base, delta, 100)

    assert sequences.check(first_batch((1 << 31) - 2, 3)) is None
    assert sequences.check(first_batch(2, 0)) is None and sequences.gaps == sequences.repeats == 0
    assert sequences.check(first_batch((1 << 31) - 2, 3)) is None and sequences.repeats == 1


# -- broker addresses in the last tags of Fetch and Produce ----------------------------------------


@pytest.mark.parametrize("api", ["Fetch", "Produce"])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_endpoints_are_hidden_when_addresses_are_rewritten(api: str, step: int) -> None:
    version = messages.versions(f"{api}Response")[-1]
    stage = Stage()
    client = stage.client(rewrite=lambda *_: None)
    asked = client.correlation_id + 1
    request = frames.encode_request(api, version, asked, "c", {"Acks": 1} if api == "Produce" else {})
    assert forward(client.conversation.to_broker, request) == request
    topics = [
        {
            "TopicId": IDS["t"],
            "Partitions": [{"Records": random.Random(1).randbytes(3000), "AbortedTransactions": None}],
        }
    ]
    if api == "Produce":
        topics = [{"TopicId": IDS["t"], "PartitionResponses": [{"RecordErrors": [], "ErrorCode": 6}]}]
    body: dict[str, Any] = {
        "Responses": topics,
        "NodeEndpoints": [{"NodeId": 1, "Host": "broker-1", "Port": 9092, "Rack": None}],
    }
    answer = frames.encode_response(api, version, asked, body)
    found = forward(client.conversation.to_client, answer, step) + b"".join(
        client.conversation.to_client.finish()
    )
    assert len(found) == len(answer) and sum(a != b for a, b in zip(found, answer, strict=True)) == 1
    read = frames.decode_response(found[4:], api, version).body
    assert read["NodeEndpoints"] == [] and list(read["_tags"]) == [ENDPOINTS_HIDDEN]
    assert read["Responses"] == frames.decode_response(answer[4:], api, version).body["Responses"]
    assert client.conversation.counts["hidden"] == 1

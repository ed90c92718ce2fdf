"""Calls of the blocking and the asyncio clients to a fake broker; libkafka's defects do not recur."""

from __future__ import annotations

import inspect
import struct
from typing import Any

import pytest

from pixy.wire import aio, client, control, frames
from pixy.wire.batch import Builder
from pixy.wire.errors import KafkaError
from pixy.wire.exceptions import EncodeError, UnsupportedVersionError
from pixy.wire.frames import Request
from tests.unit.wire.fake_broker import PARTITION, TOPIC, FakeBroker
from tests.unit.wire.sides import partition

BATCH = Builder(now=lambda: 1_700_000_000_000).add(b"k", b"v").build()


# -- what a call does -------------------------------------------------------------------------------


def test_a_leader_is_looked_up_once_and_a_connection_kept(side: Any) -> None:
    with FakeBroker() as broker:
        one = partition(side, broker)
        assert str(side.do(one.leader)) == broker.address
        assert side.do(lambda: one.produce(BATCH)).base_offset == 42
        assert side.do(lambda: one.fetch(7)).high_watermark == 50
        assert side.do(one.list_offsets).offset == 50
        assert broker.names() == ["Metadata", "Produce", "Fetch", "ListOffsets"]
        assert broker.connections == 2  # one to find the leader, one to the leader
        one.close()
        assert side.do(lambda: one.produce(BATCH)).error_code == 0
        assert broker.connections == 3 and broker.names().count("Metadata") == 1
        one.forget()
        assert side.do(lambda: one.produce(BATCH)).error_code == 0
        assert broker.names().count("Metadata") == 2
        one.close()


def test_correlation_ids_increase(side: Any) -> None:
    """libkafka always sends 0."""
    with FakeBroker() as broker:
        one = partition(side, broker)
        for _ in range(3):
            side.do(lambda: one.fetch(0))
        ids = [each.header.correlation_id for each in broker.seen if each.name == "FetchRequest"]
        assert ids == [2, 3, 4]
        one.close()


def test_client_id_and_software_are_sent(side: Any) -> None:
    with FakeBroker() as broker:
        side.do(lambda: side.module.call_metadata(broker.address, client_id="me", software=("mine", "1.2")))
        assert {each.header.client_id for each in broker.seen} == {"me"}
        assert broker.seen[0].body == {"ClientSoftwareName": "mine", "ClientSoftwareVersion": "1.2"}


def test_a_fetch_asks_for_its_partition_once(side: Any) -> None:
    """libkafka sends the partition twice."""
    with FakeBroker() as broker:
        one = side.made("PartitionFetcher", broker.address, TOPIC, PARTITION, offset=11, max_bytes=77)
        side.do(one.fetch)
        (topic,) = broker.seen[-1].body["Topics"]
        (asked,) = topic["Partitions"]
        assert (topic["Topic"], asked["Partition"], asked["FetchOffset"]) == (TOPIC, PARTITION, 11)
        assert asked["PartitionMaxBytes"] == 77
        assert one.offset == 11
        one.close()


def test_a_fetch_never_moves_the_offset_and_drops_a_truncated_batch(side: Any) -> None:
    whole = Builder(base_offset=7, now=lambda: 0).add(b"a", b"b").add(None, None).build().marshal()

    def answer(request: Request) -> bytes:
        return broker.usual(
            request,
            Responses=[
                {
                    "Topic": TOPIC,
                    "Partitions": [
                        {"PartitionIndex": PARTITION, "HighWatermark": 50, "Records": whole + whole[:-5]},
                    ],
                }
            ],
        )

    with FakeBroker({"Fetch": answer}) as broker:
        one = side.made("PartitionFetcher", broker.address, TOPIC, PARTITION, offset=8)
        found = side.do(one.fetch)
        assert one.offset == 8
        assert [each.base_offset for each in found.batches()] == [7]
        assert [(each.offset, each.value) for each in found.records()] == [(8, None)]
        assert found.next_offset == 9
        one.close()


def test_versions_are_negotiated_by_key_and_capped(side: Any) -> None:
    """libkafka looks an API up by its position in the list; the fake broker's list is in reverse order."""
    with FakeBroker(Produce=(3, 7), Fetch=(4, 99)) as broker:
        one = partition(side, broker)
        side.do(lambda: one.produce(BATCH))
        side.do(lambda: one.fetch(0))
        used = {each.name: each.version for each in broker.seen}
        assert used["ProduceRequest"] == 7 and used["FetchRequest"] == 12  # later versions require topic ids
        one.close()
        assert side.do(lambda: side.module.call_api_versions(broker.address))["Produce"] == (3, 7)


def test_a_broker_that_is_too_new_or_too_old(side: Any) -> None:
    with FakeBroker(Fetch=(13, 18)) as broker:
        one = partition(side, broker)
        with pytest.raises(UnsupportedVersionError, match="13 to 18 of Fetch, this client 0 to 12"):
            side.do(lambda: one.fetch(0))
        with pytest.raises(UnsupportedVersionError, match="does not know StreamsGroupDescribe"):
            side.do(lambda: one.call("StreamsGroupDescribe", {}))
        assert side.do(one.list_offsets).offset == 50  # on the same connection
        assert broker.connections == 2
        one.close()


def test_negotiation_falls_back_to_api_versions_0(side: Any) -> None:
    def old(request: Request) -> bytes:
        if request.version == 0:
            return broker.usual(request)
        return frames.encode_response(18, 0, request.header.correlation_id, {"ErrorCode": 35})

    with FakeBroker({"ApiVersions": old}) as broker:
        one = partition(side, broker)
        assert side.do(lambda: one.fetch(0)).error_code == 0
        assert [each.version for each in broker.seen if each.header.key == 18] == [3, 0, 3, 0]
        one.close()


def test_acks_0_waits_for_no_answer(side: Any) -> None:
    """libkafka waits for an answer that never comes, until it times out."""
    with FakeBroker(
        {"Produce": lambda request: b"" if request.body["Acks"] == 0 else broker.usual(request)}
    ) as broker:
        one = side.made("PartitionProducer", broker.address, TOPIC, PARTITION, acks=0, request_timeout=5.0)
        found = side.do(lambda: one.produce(BATCH.marshal()))  # an error if it waited
        assert (found.error_code, found.base_offset) == (0, -1)
        assert side.do(lambda: one.produce(BATCH, acks=1)).base_offset == 42
        assert [each.body["Acks"] for each in broker.seen if each.name == "ProduceRequest"] == [0, 1]
        assert broker.connections == 2
        one.close()


def test_error_codes_are_results(side: Any) -> None:
    def answers(api: str, **body: Any) -> Any:
        return lambda request: broker.usual(request, **body)

    failed = {"Topic": TOPIC, "Partitions": [{"PartitionIndex": PARTITION, "ErrorCode": 1}]}
    with FakeBroker(
        {
            "Fetch": answers("Fetch", Responses=[failed]),
            "Heartbeat": answers("Heartbeat", ErrorCode=27),
            "OffsetFetch": answers("OffsetFetch", ErrorCode=16),
        }
    ) as broker:
        one = partition(side, broker)
        assert side.do(lambda: one.fetch(0)).error_code == 1
        group = side.made("GroupClient", broker.address, "g")
        assert side.do(lambda: group.heartbeat(client.Member("m", 1)))["ErrorCode"] == 27
        assert side.do(lambda: group.fetch_offset(TOPIC, 0)) == (16, -1, None, -1)
        assert side.do(group.fetch_offsets) == (16, {})
        assert broker.connections == 4  # no error code closed a connection
        broker.answers["Fetch"] = lambda request: broker.usual(request, ErrorCode=70, Responses=[])
        assert side.do(lambda: one.fetch(0)).error_code == 70
        one.close()
        group.close()


def test_a_partition_without_a_leader_and_a_missing_one(side: Any) -> None:
    with FakeBroker() as broker:
        for topic, number, kind, code in (
            (TOPIC, 0, client.NoLeaderForPartitionError, 5),
            (TOPIC, 99, client.PartitionDoesNotExistError, 3),
            ("other", 0, client.PartitionDoesNotExistError, 3),
        ):
            one = side.made("PartitionClient", broker.address, topic, number)
            with pytest.raises(kind, match=f"{topic}/{number}") as caught:
                side.do(one.leader)
            assert caught.value.code == code and isinstance(caught.value, KafkaError)


def test_the_leader_is_that_of_the_requested_partition(side: Any) -> None:
    """libkafka takes the address of its loop variable."""
    with FakeBroker() as broker:
        found = side.do(lambda: side.module.get_partition_leader(broker.address, TOPIC, PARTITION))
        assert (found.node_id, found.port) == (7, broker.port)


def test_an_invalid_argument_leaves_the_connection_open(side: Any) -> None:
    with FakeBroker() as broker:
        one = partition(side, broker)
        side.do(lambda: one.fetch(0))
        with pytest.raises(EncodeError, match="FetchOffset"):
            side.do(lambda: one.fetch(2**63))
        side.do(lambda: one.fetch(0))
        assert broker.connections == 2
        one.close()


def test_read_committed_leaves_out_aborted_records() -> None:
    def transactional(producer: int, offset: int, value: bytes) -> bytes:
        return (
            Builder(
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
                now=lambda: 0,
            )
            .add(None, value)
            .build()
            .marshal()
        )

    def marker(producer: int, offset: int, abort: bool) -> bytes:
        made = Builder(
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
            now=lambda: 0,
        )
        key = struct.pack(">hh", 0, control.ControlType.ABORT if abort else control.ControlType.COMMIT)
        return made.add(key, struct.pack(">hi", 0, 1)).build().marshal()

    data = b"".join(
        [
            transactional(1, 0, b"aborted"),
            transactional(2, 1, b"committed"),
            marker(1, 2, True),
            marker(2, 3, False),
            transactional(1, 4, b"later, committed"),
            marker(1, 5, False),
            Builder(base_offset=6, now=lambda: 0).add(None, b"plain").build().marshal(),
            transactional(1, 7, b"aborted again"),
            marker(1, 8, True),
            transactional(1, 9, b"the last"),
        ]
    )

    def values(read_committed: bool) -> list[bytes | None]:
        return [
            each.value
            for each in client.FetchResult(
                client.Broker("h", 1), "t", 0, 0, 0, 0, 10, 10, 0, ((1, 7), (1, 0)), data, read_committed
            ).records()
        ]

    assert values(True) == [b"committed", b"later, committed", b"plain", b"the last"]
    assert values(False) == [
        b"aborted",
        b"committed",
        b"later, committed",
        b"plain",
        b"aborted again",
        b"the last",
    ]


@pytest.mark.parametrize("name", ["PartitionClient", "PartitionProducer", "PartitionFetcher", "GroupClient"])
def test_both_sides_have_the_same_calls(name: str) -> None:
    def calls(module: Any) -> dict[str, inspect.Signature]:
        found = vars(module)[name]
        return {
            each: inspect.signature(getattr(found, each))
            for each in dir(found)
            if not each.startswith("_") and inspect.isfunction(getattr(found, each))
        }

    assert calls(client) == calls(aio)
    for each in set(calls(client)) - set(dir(client.Link)):
        blocking, awaited = getattr(vars(client)[name], each), getattr(vars(aio)[name], each)
        assert inspect.iscoroutinefunction(awaited) and not inspect.iscoroutinefunction(blocking)
        assert "Steps" not in inspect.signature(blocking).return_annotation
        assert blocking.__doc__ and blocking.__doc__ == awaited.__doc__

"""The journal on a real Kafka: the topic has the daemon's events, and a broken topic fails no request."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
from confluent_kafka import Consumer, TopicPartition

from pixy.config import App
from pixy.journal import WAITED, JournalBatch, Kind, Refusal, decode
from tests.integration.restv1.support import b64, produce
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config, serving, status_of


def config(kafka: Cluster, journal: str, **consumer: Any) -> App:
    made = make_config(kafka.bootstrap(), **consumer)
    proxy = made.proxies["default"]
    proxy.client_id = "daemon-1"
    proxy.journal.topic, proxy.journal.linger = journal, 0.05  # type: ignore[assignment]
    return made


def batches(kafka: Cluster, topic: str) -> list[JournalBatch]:
    """All batches of a journal of one partition."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap()[0], "group.id": "reads"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        while len(found) < end:
            message = consumer.poll(10)
            assert message is not None and message.error() is None, f"{len(found)} of {end}"
            assert message.key() == b"daemon-1", "the key keeps a daemon's batches in order"
            assert message.timestamp()[1] > 10**12, "or a read from a time on does not find it"
            found.append(message)
        return [decode(message.value()) for message in found]
    finally:
        consumer.close()


async def test_the_journal_has_produces_offers_acks_retries_and_drops(kafka: Cluster, name: str) -> None:
    topic, journal = kafka.create_topic(name), kafka.create_topic(f"{name}-journal")
    settings = config(
        kafka, journal, ack_timeout=0.3, max_retries=1, subscription_timeout=2.0, max_pending_messages=50
    )
    begun = time.monotonic()
    async with serving(settings) as daemon:
        for at in range(4):
            assert (await daemon.produce(topic, b"v%d" % at))[1] == at
        await daemon.post(f"/topics/{topic}/messages", "asynchronous")
        first = await daemon.consume(topic, "g", no_ack=True)
        await daemon.ack(topic, "g", first)
        second = await daemon.consume(topic, "g", no_ack=True)
        await daemon.consume(topic, "g", auto_ack=True)
        assert second.offset == 1
        again = await eventually(
            lambda: daemon.consume(topic, "g", no_ack=True), lambda found: found.offset == 1
        )
        assert again.offset == 1
        answer = await daemon.post(f"/topics/{topic}/acks?group=g&partition=0&offset=4711")
        assert answer.status == 400
        await eventually(lambda: daemon.offsets(topic, "g"), lambda found: found[0].offset >= 3)

    found = batches(kafka, journal)
    assert [batch.sequence for batch in found] == list(range(len(found)))
    assert found[-1].final
    assert {batch.lost.events for batch in found} == {0}
    events = [event for batch in found for event in batch.events()]
    assert [event["time"] for event in events if event["kind"] == Kind.PRODUCED] == sorted(
        event["time"] for event in events if event["kind"] == Kind.PRODUCED
    )

    def of(kind: Kind) -> list[dict[str, Any]]:
        return [event for event in events if event["kind"] == kind]

    produced = of(Kind.PRODUCED)
    assert [(event["topic"], event["offset"]) for event in produced] == [(topic, at) for at in range(5)]
    assert [event["flags"] for event in produced] == [1, 1, 1, 1, 0]
    all_of_it = (time.monotonic() - begun) * 1e6
    assert all(0 < event["took"] < all_of_it and event["timestamp"] > 10**12 for event in produced)
    offers = of(Kind.OFFERED)
    assert all(event["group"] == "g" and event["took"] > 0 for event in offers)
    assert [event["attempt"] for event in offers if event["offset"] == 1] == [0, 1]
    acked = {event["offset"]: event for event in of(Kind.ACKED)}
    assert acked[0]["flags"] == 0
    assert acked[2]["flags"] == 2, "auto-ack"
    assert acked[0]["took"] > 0
    dropped = of(Kind.DROPPED)
    assert (1, 1) in [(event["offset"], event["attempt"]) for event in dropped]
    assert [event["code"] for event in of(Kind.ACK_REFUSED)] == [Refusal.NEVER_OFFERED]
    assert [event["offset"] for event in of(Kind.ASSIGNED)] == [0]
    revoked = of(Kind.REVOKED)
    assert [event["generation"] for event in revoked] == [of(Kind.ASSIGNED)[0]["generation"]]
    assert revoked[0]["offset"] >= 3


async def test_a_journal_topic_that_cannot_be_written_fails_no_request(
    kafka: Cluster, name: str, caplog: Any
) -> None:
    topic = kafka.create_topic(name)
    settings = config(kafka, f"{name}-missing")
    settings.proxies["default"].journal.buffer_events = 1000
    settings.proxies["default"].journal.shutdown_timeout = 0.2  # type: ignore[assignment]
    async with serving(settings) as daemon:

        async def round_trip(at: int) -> None:
            await daemon.produce(topic, b"v%d" % at)
            await daemon.consume(topic, "g", auto_ack=True)

        async with asyncio.timeout(60):
            await asyncio.gather(*(round_trip(at) for at in range(1200)))
        offsets = await eventually(lambda: daemon.offsets(topic, "g"), lambda found: found[0].offset == 1200)
        assert offsets[0].lag == 0
    assert caplog.text.count("events are lost, writing to") <= 2, "one log line for each reason"


async def test_consuming_the_journal_through_the_proxy_adds_no_events(kafka: Cluster, name: str) -> None:
    topic, journal = kafka.create_topic(name), kafka.create_topic(f"{name}-journal")
    async with serving(config(kafka, journal)) as daemon:
        await daemon.produce(topic, b"v")
        events: list[Any] = []
        while not any(event["kind"] == Kind.PRODUCED for event in events):
            message = await daemon.consume(journal, "auditor", auto_ack=True)
            events += decode(message.message).events()
    told = [event for batch in batches(kafka, journal) for event in batch.events()]
    assert {event["topic"] for event in told} == {topic}


async def test_records_of_a_batch_have_kafka_s_own_timestamps(kafka: Cluster, name: str) -> None:
    """With LogAppendTime only Kafka knows the timestamps; a record that is too large has none."""
    topic = kafka.create_topic(name, 1, **{"message.timestamp.type": "LogAppendTime"})
    journal = kafka.create_topic(f"{name}-journal")
    settings = config(kafka, journal)
    settings.proxies["default"].producer.max_message_bytes = 1000
    begun = time.monotonic()
    async with serving(settings) as daemon:
        values = [b"0", b"x" * 2000, b"2", b"3"]
        answer = await produce(daemon, topic, [{"value": b64(value)} for value in values])
        assert answer.status == 200, answer
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap()[0], "group.id": "reads"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    stamps = {}
    while len(stamps) < 3:
        message = consumer.poll(10)
        assert message is not None and message.error() is None
        stamps[message.offset()] = message.timestamp()[1]
    consumer.close()
    events = [event for batch in batches(kafka, journal) for event in batch.events()]
    assert {
        event["offset"]: event["timestamp"] for event in events if event["kind"] == Kind.PRODUCED
    } == stamps
    [failed] = [event for event in events if event["kind"] == Kind.PRODUCE_FAILED]
    assert (failed["offset"], failed["timestamp"], failed["flags"]) == (-1, -1, WAITED)
    all_of_it = (time.monotonic() - begun) * 1e6
    assert all(0 < event["took"] < all_of_it for event in events if event["kind"] == Kind.PRODUCED)


async def test_no_client_writes_to_the_journal(kafka: Cluster, name: str) -> None:
    """It is what an audit relies on."""
    topic, journal = kafka.create_topic(name), kafka.create_topic(f"{name}-journal")
    async with serving(config(kafka, journal)) as daemon:
        for query in ("?sync", ""):
            answer = await daemon.post(f"/topics/{journal}/messages{query}", b"forged")
            assert (answer.status, answer.error) == (
                400,
                f"bad topic: only the daemon itself writes to its journal, {journal}",
            )
        status, text = await status_of(daemon.produce(journal, b"forged"))
        assert status is grpc.StatusCode.INVALID_ARGUMENT and "writes to its journal" in text
        refused = await produce(daemon, journal, [{"value": b64(b"forged")}])
        assert refused.status >= 400 or refused.json["offsets"][0]["error"], refused
        assert (await daemon.produce(topic, b"honest"))[1] == 0
    values = b"".join(repr(batch).encode() for batch in batches(kafka, journal))
    assert b"forged" not in values

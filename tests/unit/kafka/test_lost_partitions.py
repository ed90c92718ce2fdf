"""Messages to partitions that a topic no longer has: refused if a caller asked for them, and sent elsewhere otherwise."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from pixy.kafka.producer_messages import Bulk
from pixy.kafka.returned_messages import MOST_RETURNS
from tests.unit.kafka.scripted_producer import Bench, Item, Library, Reported, bulk_of


@pytest.mark.parametrize("together", [False, True])
async def test_a_message_that_finds_no_partition_time_after_time_fails(
    library: type[Library], together: bool
) -> None:
    bench = Bench()
    bulk = bulk_of(bench, b"a")
    if together:
        assert bench.client.send_bulk("t", bulk, [3])
    else:
        bench.send(b"a", partition=3)
    [producer] = library.made
    for _ in range(1 + MOST_RETURNS):
        await bench.until(lambda: producer.queue)
        _, _, report = producer.queue.popleft()
        gone = KafkaError(KafkaError._DESTROY)
        producer.steps.append(lambda report=report, gone=gone: report(gone, Reported(3, None)))
    await bench.until(lambda: bench.reports)
    lost = KafkaError._UNKNOWN_PARTITION
    assert (bulk.results[0].code() == lost) if together else (bench.heard() == [(b"a", lost)])
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_a_record_whose_asked_for_partition_goes_while_it_waits_is_refused_as_if_it_had_come_later(
    library: type[Library],
) -> None:
    """librdkafka speaks of its own object: "Broker handle destroyed for termination"."""
    bench = Bench()
    bulk = Bulk([Item(b"a", 3)], 1, True)
    assert bench.client.send_bulk("t", bulk, [3])
    [producer] = library.made
    producer.steps.append(lambda: producer.give_back(KafkaError._DESTROY, b"a"))
    await bench.until(lambda: bench.reports)
    assert bulk.results[0].code() == KafkaError._UNKNOWN_PARTITION
    assert bench.client._thread.errors == 1, "what fails is a reason to look the topic up"
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True])
async def test_messages_without_a_key_avoid_partitions_that_the_topic_no_longer_has(
    library: type[Library], together: bool
) -> None:
    """A new producer's gates are those that the topic had."""
    bench = Bench()
    bench.client.gate("t", (0, 1, 2, 3))
    for partition in range(4):
        bench.send(b"first", partition=partition)
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: len(bench.reports) == 4)
    library.count = 2
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    new = library.made[1]
    sent = 0
    while bench.client._gated._topics or sent < 20:
        if together:
            assert bench.client.send_bulk("t", bulk_of(bench, b"m", b"n", plain=bool(sent % 2)), [-1, -1])
        else:
            bench.send(b"m", b"n", partition=-1)
        sent += 1
        assert sent < 1000, "the gates of what does not exist are never opened"
        results = 4 + sent * (1 if together else 2)
        await bench.until(
            lambda results=results: len(bench.reports) == results or (len(new) and new.steps.append(new.land))
        )
    assert all(error is None for _, error, *_ in bench.reports)
    if together:
        assert all(isinstance(result, tuple) for bulk, *_ in bench.reports[4:] for result in bulk.results)
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


@pytest.mark.parametrize("together", [False, True])
async def test_a_batch_avoids_a_partition_that_the_topic_lost_unless_its_caller_asked_for_it(
    library: type[Library], together: bool
) -> None:
    """Round robin chooses partitions here."""
    bench = Bench()
    library.count = 2
    items = [Item(b"a"), Item(b"b", 3), Item(b"c")]
    lost = KafkaError._UNKNOWN_PARTITION
    bulk = bulk_of(bench, b"")
    if together:
        bulk = Bulk(items, 3, True)
        assert bench.client.send_bulk("t", bulk, [3, 3, 3])
    else:
        sent, [(item, error)] = bench.client.send("t", items, [3, 3, 3])
        assert sent == 3 and item is items[1] and error.code == 3, "unknown topic or partition"
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: len(bench.reports) == (1 if together else 2))
    assert library.made[0].values == [b"a", b"c"]
    if together:
        assert bulk.results[0] == (0, 0) and bulk.results[1].code() == lost and bulk.results[2] == (0, 1)
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_what_is_taken_back_goes_elsewhere_if_its_partition_is_gone_and_nobody_asked_for_it(
    library: type[Library],
) -> None:
    """A partition that librdkafka had chosen, by a key for example."""
    bench = Bench()
    assert bench.client.send("t", [Item(b"a"), Item(b"b", 3)], [3, 3]) == (2, [])
    library.count = 1
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and library.made[1].values)
    library.made[1].steps.append(library.made[1].land)
    await bench.until(lambda: len(bench.reports) == 2)
    assert sorted(bench.heard(), key=lambda each: each[0]) == [
        (b"a", None),
        (b"b", KafkaError._UNKNOWN_PARTITION),
    ]
    assert await bench.client.close(1.0) == 0


async def test_a_partition_that_turns_out_to_be_gone_when_the_topic_is_known_costs_no_message(
    library: type[Library],
) -> None:
    """A new producer takes any partition until it has the topic's metadata."""
    bench = Bench()
    bench.client.gate("t", (3,))
    bench.send(b"a", b"b", partition=-1)
    [producer] = library.made
    assert producer.values == [b"a"]
    library.count = 1
    producer.steps.append(lambda: producer.give_back(KafkaError._UNKNOWN_PARTITION, b"a"))
    await bench.until(lambda: producer.values == [b"a", b"a", b"b"])
    producer.steps.append(producer.land)
    await bench.until(lambda: len(bench.reports) == 2)
    assert [error for _, error in bench.heard()] == [None, None] and bench.client._gated._topics == {}
    assert await bench.client.close(1.0) == 0

"""A producer that takes another one's place, and what the replaced one gives back, late or never."""

from __future__ import annotations

import gc

import pytest
from confluent_kafka import KafkaError

from pixy.kafka import delivery_thread, retired_producers
from pixy.kafka.topics import Topics
from tests.unit.kafka.scripted_producer import Bench, Library


async def test_one_message_goes_ahead_to_each_partition_and_new_ones_wait_behind_those_sent_again(
    library: type[Library],
) -> None:
    """No leader knows the new producer; see pixy.kafka.partition_gates."""
    bench = Bench()
    [old] = library.made
    bench.client.gate("t", (0, 1))
    for partition in (0, 1):
        bench.send(b"first", partition=partition)
    old.steps.append(old.land)
    await bench.until(lambda: len(bench.reports) == 2)
    bench.send(b"a", b"b", b"c")
    old.steps.append(old.turn_fatal)
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    new = library.made[1]
    bench.send(b"d")
    bench.send(b"z", partition=1)
    assert new.values == [b"a", b"z"]
    new.steps.append(new.land)
    await bench.until(lambda: len(bench.reports) == 7 or (len(new) and new.steps.append(new.land)))
    assert new.values == [b"a", b"z", b"b", b"c", b"d"]
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_the_late_result_of_a_replaced_producer_does_not_count_for_the_gate(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_thread, "_IN_FLIGHT", 0.0)
    library.stubborn = True
    bench = Bench()
    bench.client.gate("t", (0,))
    bench.send(b"a", b"b", b"c")
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and library.made[1].values)
    old, new = library.made
    assert old.values == [b"a"] and new.values == [b"b"]
    old.steps.append(lambda: old.fail(KafkaError._MSG_TIMED_OUT))
    await bench.until(lambda: bench.heard() == [(b"a", KafkaError._MSG_TIMED_OUT)])
    assert new.values == [b"b"], "one message alone is on its way"
    library.stubborn = False
    await bench.until(lambda: len(bench.reports) == 3 or (len(new) and new.steps.append(new.land)))
    assert new.values == [b"b", b"c"]
    assert await bench.client.close(1.0) == 0


async def test_a_topic_that_is_let_go_during_a_replacement_keeps_what_waits_before_new_messages(
    library: type[Library],
) -> None:
    """Its producer may fail just then, and look it up again."""
    bench = Bench()
    bench.client.gate("t", (0,))
    bench.send(b"first")
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: bench.reports)
    bench.send(b"a", b"b")
    bench.client._replace()
    bench.client.ungate("t")
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    bench.client.ungate("t")
    bench.client.gate("t", (0,))
    bench.send(b"c")
    new = library.made[1]
    assert new.values == [b"a"]
    await bench.until(lambda: len(bench.reports) == 4 or (len(new) and new.steps.append(new.land)))
    assert new.values == [b"a", b"b", b"c"]
    assert await bench.client.close(1.0) == 0


async def test_after_a_replacement_messages_without_a_key_go_to_partitions_that_have_a_leader(
    library: type[Library],
) -> None:
    """The topic is looked up at once: what was known of it may be old."""
    leaders = {0: 1, 1: 1, 2: 1}
    bench = Bench()

    def topics(names: list[str]) -> Topics:
        partitions = [
            {"PartitionIndex": at, "LeaderId": leader, "ErrorCode": 0, "ReplicaNodes": [1], "IsrNodes": [1]}
            for at, leader in leaders.items()
        ]
        return Topics({"Brokers": [], "Topics": [{"Name": "t", "ErrorCode": 0, "Partitions": partitions}]})

    bench.client._watch.brokers.topics = topics
    bench.client.gate("t", (0, 1, 2))
    bench.send(b"first", partition=-1)
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: bench.reports)
    leaders.update({1: -1, 2: -1})
    bench.client._replace()
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    await bench.until(lambda: bench.client._gated._topics["t"].layout.writable == (0,))
    bench.send(*[b"m"] * 10, partition=-1)
    new = library.made[1]
    await bench.until(lambda: len(bench.reports) == 11 or (len(new) and new.steps.append(new.land)))
    assert {partition for _, _, partition, _ in bench.reports[1:]} == {0}
    assert await bench.client.close(1.0) == 0


async def test_messages_wait_for_a_new_producer_that_cannot_be_made_at_first(
    library: type[Library], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.send(b"a", b"b")
    library.refusals = 3
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    assert library.made[1].values == [b"a", b"b"]
    assert [line for line in caplog.messages if "ssl.ca.location" in line] == [
        "no new producer, which is tried again every second: kafka: ssl.ca.location failed"
    ]
    library.made[1].steps.append(library.made[1].land)
    await bench.until(lambda: bench.heard() == [(b"a", None), (b"b", None)])
    assert await bench.client.close(1.0) == 0


async def test_a_stop_does_not_wait_for_a_producer_that_cannot_be_made(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a")
    library.refusals = 10**9
    bench.client._replace()
    await bench.until(lambda: library.refusals < 10**9 - 2)
    assert await bench.client.close(0.05) == 1
    assert bench.heard() == [(b"a", KafkaError._PURGE_QUEUE)]


async def test_a_message_that_has_no_partition_yet_moves_to_the_new_producer() -> None:
    """librdkafka keeps it without a partition until it knows the topic, which may take 30 s."""
    bench = Bench()
    bench.send(b"a", partition=-1)
    for _ in range(2):
        bench.client._replace()
        await bench.until(lambda: not bench.client._replacing)
    assert await bench.client.close(0.05) == 1
    assert bench.heard() == [(b"a", KafkaError._PURGE_QUEUE)]


async def test_a_replaced_producer_is_not_destroyed_by_the_thread_that_serves_callbacks(
    library: type[Library],
) -> None:
    """To destroy it waits for librdkafka's threads, and they for name servers."""
    bench = Bench()
    library.made.clear()  # only the client refers to it now
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    gc.collect()
    await bench.until(lambda: library.destroyed_by)
    assert library.destroyed_by == ["kafka-producer-end"]
    await bench.client.close(1.0)


async def test_what_a_replaced_producer_gives_back_late_is_sent_again(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_thread, "_IN_FLIGHT", 0.0)
    library.stubborn = True
    bench = Bench()
    bench.send(b"a")
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    old, new = library.made
    assert new.values == [] and len(old) == 1
    old.steps.append(lambda: old.fail(KafkaError._PURGE_INFLIGHT))
    await bench.until(lambda: new.values == [b"a"])
    new.steps.append(new.land)
    await bench.until(lambda: bench.heard() == [(b"a", None)])
    assert bench.client._outstanding == 0
    assert await bench.client.close(1.0) == 0


async def test_the_number_of_replaced_producers_that_give_nothing_back_is_bounded(
    library: type[Library], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery_thread, "_IN_FLIGHT", 0.0)
    library.stubborn = True
    bench = Bench()
    for number in range(retired_producers.MOST + 1):
        bench.send(b"%d" % number)
        bench.client._replace()
        await bench.until(lambda: not bench.client._replacing)
    assert [line for line in caplog.messages if "given up" in line] == [
        f"1 messages are given up, and nobody hears of them: they are with the oldest of {retired_producers.MOST + 1} replaced producers, which give nothing back"
    ]
    assert len(bench.client._thread._retired) == retired_producers.MOST
    assert await bench.client.close(0.01) == retired_producers.MOST + 1


async def test_what_a_replaced_producer_never_gives_back_is_counted_at_the_end(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_thread, "_IN_FLIGHT", 0.0)
    library.stubborn = True
    bench = Bench()
    bench.send(b"a")
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    assert await bench.client.close(0.01) == 1

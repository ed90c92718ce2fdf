"""Messages of a batch that Kafka refused: each is sent once more, alone, and gets its own answer."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from pixy.kafka import lone_messages, producer
from tests.unit.kafka.scripted_producer import Bench, Item, Library, bulk_of

OTHER = KafkaError._INVALID_DIFFERENT_RECORD
INVALID = KafkaError.INVALID_RECORD
TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE


async def lone_producer(bench: Bench, library: type[Library], at: int = 1) -> Library:
    """The producer of messages that are sent alone."""
    await bench.until(lambda: len(library.made) > at)
    lone: Library = library.made[at]
    return lone


@pytest.mark.parametrize("code", [INVALID, OTHER, KafkaError.INVALID_TIMESTAMP])
async def test_valid_messages_beside_an_invalid_one_are_written(
    library: type[Library], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka gives all of them the code of the invalid one, if it is the only one."""
    bench = Bench()
    bench.send(b"a", b"bad", b"c")
    [main] = library.made
    main.steps.append(lambda: main.fail(code))
    lone = await lone_producer(bench, library)
    assert lone.settings["batch.num.messages"] == 1
    await bench.until(lambda: lone.values == [b"a", b"bad", b"c"])
    lone.steps.append(lambda: lone.give_back(INVALID, b"bad"))
    lone.steps.append(lone.land)
    await bench.until(lambda: len(bench.reports) == 3)
    assert bench.heard() == [(b"bad", INVALID), (b"a", None), (b"c", None)]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "t: 3 messages were in a batch with an invalid record, and are sent again, each alone"
    ]
    assert main.values == [b"a", b"bad", b"c"], "none of them is batched with others again"
    assert bench.client._outstanding == 0 and await bench.client.close(1.0) == 0


@pytest.mark.parametrize("plain", [True, False])
async def test_a_batch_above_the_topics_bound_is_taken_apart(library: type[Library], plain: bool) -> None:
    """The message that is too large itself fails, after one more try."""
    bench = Bench()
    bulk = bulk_of(bench, b"a", b"large", b"c", plain=plain)
    assert bench.client.send_bulk("t", bulk, [0, 0, 0])
    [main] = library.made
    main.steps.append(lambda: main.fail(TOO_LARGE))
    lone = await lone_producer(bench, library)
    await bench.until(lambda: lone.values == [b"a", b"large", b"c"])
    lone.steps.append(lambda: lone.give_back(TOO_LARGE, b"large"))
    lone.steps.append(lone.land)
    await bench.until(lambda: bench.reports)
    first, error, last = bulk.results
    assert (first, last) == ((0, 0), (0, 1)) and error.code() == TOO_LARGE
    assert lone.values == [b"a", b"large", b"c"] and await bench.client.close(1.0) == 0


async def test_messages_that_were_taken_back_before_are_taken_apart_too(library: type[Library]) -> None:
    """The producer that replaces another one batches them with others."""
    bench = Bench()
    bench.send(b"a")
    library.made[0].steps.append(library.made[0].turn_fatal)
    await bench.until(lambda: len(library.made) == 2 and library.made[1].values == [b"a"])
    second = library.made[1]
    second.steps.append(lambda: second.give_back(TOO_LARGE, b"a"))
    lone = await lone_producer(bench, library, 2)
    await bench.until(lambda: lone.values == [b"a"])
    lone.steps.append(lone.land)
    await bench.until(lambda: bench.heard() == [(b"a", None)])
    assert await bench.client.close(1.0) == 0


async def test_a_fatal_error_of_the_lone_producer_loses_nothing(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a", b"b", b"c")
    library.made[0].steps.append(lambda: library.made[0].fail(OTHER))
    lone = await lone_producer(bench, library)
    await bench.until(lambda: lone.values == [b"a", b"b", b"c"])
    lone.steps.append(lone.turn_fatal)
    next_one = await lone_producer(bench, library, 2)
    await bench.until(lambda: next_one.values == [b"a", b"b", b"c"])
    next_one.steps.append(next_one.land)
    await bench.until(lambda: bench.heard() == [(b"a", None), (b"b", None), (b"c", None)])
    assert await bench.client.close(1.0) == 0


async def test_they_wait_for_a_producer_that_cannot_be_made_yet(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is being changed, for example."""
    monkeypatch.setattr(lone_messages, "_MAKE_EVERY", 0.001)
    bench = Bench()
    bench.send(b"a")
    library.refusals = 2
    library.made[0].steps.append(lambda: library.made[0].fail(OTHER))
    lone = await lone_producer(bench, library)
    await bench.until(lambda: lone.values == [b"a"])
    lone.steps.append(lone.land)
    await bench.until(lambda: bench.heard() == [(b"a", None)])
    assert library.refusals == 0 and await bench.client.close(1.0) == 0


async def test_a_stop_gives_them_up_in_time(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a", b"b")
    library.made[0].steps.append(lambda: library.made[0].fail(OTHER))
    lone = await lone_producer(bench, library)
    await bench.until(lambda: lone.values == [b"a", b"b"])
    assert await bench.client.close(0.05) == 2
    await bench.until(lambda: len(bench.reports) == 2)
    assert bench.heard() == [(b"a", KafkaError._PURGE_QUEUE), (b"b", KafkaError._PURGE_QUEUE)]


async def test_the_lone_producer_ends_when_it_has_been_idle(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    bench.send(b"a")
    library.made[0].steps.append(lambda: library.made[0].fail(OTHER))
    (await lone_producer(bench, library)).steps.append(library.made[1].land)
    await bench.until(lambda: bench.heard() == [(b"a", None)])
    del library.made[1:]
    monkeypatch.setattr(lone_messages, "_IDLE", 0.0)
    await bench.until(lambda: library.destroyed_by == ["kafka-producer-end"])
    assert await bench.client.close(1.0) == 0


async def test_a_client_that_goes_on_does_not_fill_the_log(
    library: type[Library], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    [main] = library.made

    async def send_one() -> None:
        bench.send(b"a")
        main.steps.append(lambda: main.fail(INVALID))
        lone = await lone_producer(bench, library)
        await bench.until(lambda: len(lone))
        lone.steps.append(lambda: lone.fail(INVALID))
        await bench.until(lambda: bench.reports)
        bench.reports.clear()

    for _ in range(5):
        await send_one()
    assert await bench.client.close(1.0) == 0
    lines = [record.getMessage() for record in caplog.records if "each alone" in record.getMessage()]
    assert [line.split()[1] for line in lines] == ["1"], "the others are told of after ten seconds"


async def test_while_too_many_are_sent_alone_no_others_are_taken(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "_MAX_MESSAGES", 2)
    bench = Bench()
    bench.send(b"a", b"b")
    library.made[0].steps.append(lambda: library.made[0].fail(TOO_LARGE))
    lone = await lone_producer(bench, library)
    await bench.until(lambda: bench.client._thread.alone == 2)
    assert bench.client.send("t", [Item(b"c")], [0]) == (0, [])
    assert not bench.client.send_bulk("t", bulk_of(bench, b"d"), [0])
    lone.steps.append(lone.land)
    await bench.until(lambda: len(bench.reports) == 2)
    bench.send(b"c")
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: len(bench.reports) == 3)
    assert await bench.client.close(1.0) == 0


async def test_other_errors_are_a_messages_own(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a")
    library.made[0].steps.append(lambda: library.made[0].fail(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    await bench.until(lambda: bench.heard() == [(b"a", KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    assert len(library.made) == 1 and await bench.client.close(1.0) == 0

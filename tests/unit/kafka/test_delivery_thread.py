"""The thread that serves a producer's callbacks: nothing ends it in silence, and every message gets a result."""

from __future__ import annotations

from collections import deque

import pytest
from confluent_kafka import KafkaError

from pixy.config.model import Kafka, Proxy
from pixy.errors import UnknownTopic
from pixy.kafka import new_producers, settings
from pixy.kafka.producer_messages import Bulk
from pixy.kafka.sandbox import Sandbox
from tests.support import eventually
from tests.unit.engine.produce.scripted_client import Rec
from tests.unit.kafka.fatal_errors import refuse_producer_ids
from tests.unit.kafka.scripted_producer import Bench, Item, Library, bulk_of
from tests.unit.kafka.test_producer import conf as unserved


def raise_(error: Exception) -> None:
    raise error


async def test_messages_behind_one_whose_topic_is_not_known_are_not_handed_over(
    library: type[Library],
) -> None:
    """Its topic is looked up, and then it goes before them."""
    bench = Bench()
    items = [Item(b"a", 200), Item(b"b", 0)]
    items[0].headers = [("h", b"v")]  # type: ignore[assignment]
    count, refused = bench.client.send("t", items, [200, 0])
    assert count == 1 and library.made[0].values == []
    assert [(item, type(error)) for item, error in refused] == [(items[0], UnknownTopic)]
    assert await bench.client.close(1.0) == 0


async def test_a_message_that_no_broker_confirms_has_no_offset(library: type[Library]) -> None:
    """With ``required_acks: no_response``. The callers of both APIs get -1, and not an error or 0."""
    bench = Bench({**unserved(), "acks": 0, "enable.idempotence": False})
    bulk = Bulk([Rec(), Rec()], 2, True)
    bench.send(b"a", partition=1)
    assert bench.client.send_bulk("t", bulk, [0, 0])
    [made] = library.made
    made.steps.append(lambda: made.land(confirmed=False))
    await bench.until(lambda: len(bench.reports) == 2)
    assert sorted(report[2:] for report in bench.reports) == [(-1, -1), (1, -1)], (
        "that of the bulk, and the message's"
    )
    assert bulk.results == [(0, -1), (0, -1)]
    assert await bench.client.close(1.0) == 0


async def test_callers_hear_at_once_of_an_error_that_a_person_must_mend(library: type[Library]) -> None:
    """Kafka grants no producer id to a user without the right: not even to the next producer."""
    bench = Bench()
    refused = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    bench.send(b"a")
    library.made[0].steps.append(lambda: library.made[0].turn_fatal(KafkaError(refused, "no", fatal=True)))
    await bench.until(lambda: bench.heard() == [(b"a", refused)])
    sent, [(item, error)] = bench.client.send("t", [Item(b"b")], [0])
    assert sent == 1 and item.value == b"b" and error.code == refused
    bulk = bulk_of(bench, b"c", b"d")
    assert bench.client.send_bulk("t", bulk, [0, 0])
    await bench.until(lambda: len(bench.reports) == 2)
    assert bench.reports[1][0] is bulk and [each.code() for each in bulk.results] == [refused] * 2
    assert len(library.made) == 1, "the next attempt is after half a minute"
    assert bench.failed == [] and await bench.client.close(1.0) == 0
    assert bench.client._outstanding == 0


async def test_held_messages_hear_at_once_of_an_error_that_a_person_must_mend_behind_one_that_passes(
    library: type[Library],
) -> None:
    bench = Bench()
    refused = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    bench.client.gate("t", (0,))
    bench.send(b"a")
    library.made[0].steps.append(library.made[0].turn_fatal)
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    bench.send(b"x")
    new = library.made[1]
    assert new.values == [b"a"], "x is held"
    new.steps.append(lambda: new.turn_fatal(KafkaError(refused, "no", fatal=True)))
    await bench.until(lambda: bench.heard() == [(b"a", refused), (b"x", refused)])
    assert len(library.made) == 2, "the next attempt is after half a minute"
    assert await bench.client.close(1.0) == 0 and bench.client._outstanding == 0


async def test_callers_hear_of_messages_whose_time_is_over_when_there_is_a_new_producer(
    library: type[Library],
) -> None:
    """No other message need land for that."""
    bench = Bench()
    bench.client._thread._returned._patience = 0.001
    bench.send(b"a", b"b")
    library.refusals = 2
    library.made[0].steps.append(library.made[0].turn_fatal)
    await bench.until(lambda: len(bench.reports) == 2)
    assert bench.heard() == [(b"a", KafkaError._MSG_TIMED_OUT), (b"b", KafkaError._MSG_TIMED_OUT)]
    assert await bench.client.close(1.0) == 0


async def test_a_message_that_expires_behind_one_sent_ahead_is_reported_without_another_one(
    library: type[Library],
) -> None:
    bench = Bench()
    bench.client.gate("t", (0,))
    returned = bench.client._thread._returned
    bench.send(b"a")
    [old] = library.made
    old.steps.append(old.land)
    await bench.until(lambda: bench.reports)
    bench.send(b"b", b"c")
    library.room = 0
    bench.client._replace()
    await bench.until(lambda: not bench.client._replacing)
    [lane] = returned._lanes.values()
    lane.rest = deque(each._replace(deadline=0.0) for each in lane.rest)
    await bench.until(lambda: len(bench.reports) == 3)
    assert bench.heard()[1:] == [(b"b", KafkaError._MSG_TIMED_OUT), (b"c", KafkaError._MSG_TIMED_OUT)]
    library.room = 10
    bench.send(b"d")
    await bench.until(lambda: library.made[1].values == [b"d"])
    library.made[1].steps.append(library.made[1].land)
    assert await bench.client.close(1.0) == 0


async def test_records_that_were_sent_in_part_and_are_given_up_are_reported_once_the_part_has_landed(
    library: type[Library],
) -> None:
    bench = Bench()
    library.room = 1
    bulk = bulk_of(bench, b"a", b"b", plain=False)
    assert not bench.client.send_bulk("t", bulk, [0, 0])
    bench.client.give_up(bulk)
    library.made[0].steps.append(library.made[0].land)
    await bench.until(lambda: bench.reports)
    assert bulk.results[0] == (0, 0) and bulk.results[1].code() == KafkaError._PURGE_QUEUE
    assert bench.client._outstanding == 0
    assert await bench.client.close(1.0) == 0


async def test_a_producer_that_kafka_grants_its_rights_again_writes(
    library: type[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_producers, "_LONGEST_PAUSE", 0.01)
    bench = Bench()
    refused = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no", fatal=True)
    library.made[0].steps.append(lambda: library.made[0].turn_fatal(refused))
    await bench.until(lambda: len(library.made) == 2 and not bench.client._replacing)
    bench.send(b"a")
    library.made[1].steps.append(library.made[1].land)
    await bench.until(lambda: bench.heard() == [(b"a", None)])
    assert await bench.client.close(1.0) == 0


@pytest.mark.slow
async def test_callers_hear_of_a_missing_right_until_kafka_grants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_producers, "_LONGEST_PAUSE", 0.05)
    sandbox = Sandbox()
    refused = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    refuse_producer_ids(sandbox._owner, refused, refused)
    bench = Bench(settings.producer(Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers)), "random"))
    bench.send(b"a")
    await bench.until(lambda: bench.heard() == [(b"a", refused)])

    async def written() -> bool:
        item = Item(b"b")
        sent, told = bench.client.send("t", [item], [0])
        if sent and not told:
            await bench.until(lambda: any(report[0] is item for report in bench.reports))
        return bool(bench.heard()[1:]) and bench.heard()[-1] == (b"b", None)

    await eventually(written)
    assert bench.failed == [] and await bench.client.close(1.0) == 0


async def test_an_error_of_the_thread_itself_is_reported_with_all_messages(library: type[Library]) -> None:
    bench = Bench()
    bench.send(b"a", b"b")
    library.made[0].steps.append(lambda: raise_(RuntimeError("a defect")))
    await bench.until(lambda: bench.failed)
    assert "a defect" in str(bench.failed[0])
    code = KafkaError._PURGE_QUEUE
    assert bench.heard() == [(b"a", code), (b"b", code)], "before the client fails"
    assert await bench.client.close(1.0) == 2, "the stop is not clean"

"""Messages for a topic that no broker has named yet, or names no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from actors import ActorSystem
from actors.testing import simulate
from pixy.engine.produce.messages import DrainProducer, Produce, ProduceMany
from pixy.engine.produce.topic_lookup import Resolved
from pixy.errors import KafkaError
from tests.unit.engine.produce.scripted_client import (
    OUT_OF_BROKERS,
    Client,
    Rec,
    ask,
    start,
    until,
)


class Outage:
    """A cluster that answers nothing until it is over."""

    def __init__(self) -> None:
        self.over = False
        self.asked = self.answered = 0

    async def __call__(self, _topic: str) -> tuple[int, ...]:
        self.asked += 1
        if not self.over:
            await asyncio.sleep(5.0)
            self.answered += 1
            raise OUT_OF_BROKERS
        return (0,)


def test_asynchronous_messages_survive_an_outage_before_their_topic_is_known() -> None:
    """They wait as long as those of a known topic; callers hear after three look-ups."""

    async def play(system: ActorSystem) -> None:
        client, outage = Client(), Outage()
        ref = start(system, client, writable=outage)
        caller = ask(ref, 1)[0]
        ref.tell(Produce(None, b"0"))
        batch = ref.ask(ProduceMany([Rec(b"batch")]), block=False)
        ref.tell(Produce(None, b"1"))
        for reply in (caller, batch):
            with pytest.raises(KafkaError, match="out of brokers"):
                await reply
        assert 15 <= system.loop.time() < 17
        await asyncio.sleep(45)
        assert client.sent == [] and ref.is_alive()
        outage.over = True
        await asyncio.sleep(10)
        assert [item.value for item in client.sent] == [b"0", b"1"]
        client.land(ref, client.sent)

    simulate(play, seed=1)


def test_an_outage_that_lasts_loses_each_message_when_its_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(system: ActorSystem) -> None:
        client, outage = Client(), Outage()
        ref = start(system, client, writable=outage, retry_backoff=10, retry_max=6, timeout=10)
        ref.tell(Produce(None, b"0"))
        await asyncio.sleep(30)
        ref.tell(Produce(None, b"1"))
        lost = "an asynchronous message is lost: out of brokers"
        await asyncio.sleep(39.9)
        assert lost not in caplog.text and ref.is_alive()
        await asyncio.sleep(0.2)
        assert caplog.text.count(lost) == 1 and ref.is_alive()
        await asyncio.sleep(30)
        assert caplog.text.count(lost) == 2 and not ref.is_alive()
        assert client.sent == []

    simulate(play, seed=1)


def test_a_topic_that_does_not_exist_loses_its_messages_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def play(system: ActorSystem) -> None:
        ref = start(system, Client(), partitions=None)
        ref.tell(Produce(None, b"0"))
        await asyncio.sleep(1)
        assert caplog.text.count("an asynchronous message is lost: kafka server: Request was for") == 1
        assert not ref.is_alive()

    simulate(play, seed=1)


def test_a_drain_during_an_outage_keeps_asynchronous_messages_until_its_time_is_over() -> None:
    async def play(system: ActorSystem) -> None:
        client, outage = Client(), Outage()
        ref = start(system, client, writable=outage, shutdown_timeout=30)
        ref.tell(Produce(None, b"0"))
        assert await ref.ask(DrainProducer(), block=False) == 1
        assert system.loop.time() >= 30

    simulate(play, seed=1)


async def test_a_topic_that_a_refresh_does_not_find_keeps_its_producer_while_messages_are_on_their_way() -> (
    None
):
    client, known = Client(), [(0, 1)]

    async def writable(_topic: str) -> tuple[int, ...] | None:
        return known[0]

    async with ActorSystem() as system:
        ref = start(system, client, writable=writable, partitioner="roundrobin")
        reply = ask(ref, 1)[0]
        await until(lambda: len(client.sent) == 1)
        ref.tell(Resolved(None))
        await until(lambda: not list(ref.actor_inbox))
        client.land(ref, client.sent)
        assert await reply == (0, 0)
        ref.tell(Resolved(None))
        await until(lambda: not ref.is_alive())


class OnLoss(logging.Handler):
    """Does something when the first message is reported as lost, in the middle of the producer's step."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._acts = [act]

    def emit(self, record: logging.LogRecord) -> None:
        if self._acts and "message is lost" in record.getMessage():
            self._acts.pop()()

    def __enter__(self) -> None:
        logging.getLogger("pixy.engine").addHandler(self)

    def __exit__(self, *_exc_info: object) -> None:
        logging.getLogger("pixy.engine").removeHandler(self)


@pytest.mark.parametrize(("timeout", "under_way"), [(16, False), (20, True)])
def test_a_message_that_comes_when_the_last_one_expires_in_an_outage_has_its_topic_looked_up(
    timeout: int, under_way: bool
) -> None:
    """It is in the mailbox when the producer would stop. The topic is being looked up then, or will be in a second."""

    async def play(system: ActorSystem) -> None:
        client, outage = Client(), Outage()
        ref = start(system, client, writable=outage, retry_max=0, timeout=timeout)

        def go_on() -> None:
            assert (outage.asked == outage.answered + 1) is under_way
            outage.over = True
            ref.tell(Produce(None, b"1"))

        with OnLoss(go_on):
            ref.tell(Produce(None, b"0"))
            await asyncio.sleep(timeout + 10)
        assert [item.value for item in client.sent] == [b"1"]

    simulate(play, seed=1)


def test_a_message_that_comes_after_one_that_expired_is_not_lost_by_the_look_up_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That look-up says that the topic is missing; the topic was made after it, and before the message came."""

    async def play(system: ActorSystem) -> None:
        async def find(_topic: str) -> tuple[int, ...] | None:
            began = system.loop.time()
            await asyncio.sleep(5)
            if began < 70:
                raise OUT_OF_BROKERS
            return (0,) if began > 80 else None

        client = Client()
        ref = start(system, client, writable=find, retry_max=0, timeout=70)
        with OnLoss(lambda: ref.tell(Produce(None, b"1"))):
            ref.tell(Produce(None, b"0"))
            await asyncio.sleep(90)
        assert caplog.text.count("message is lost: out of brokers") == 1
        assert [item.value for item in client.sent] == [b"1"]

    simulate(play, seed=1)


def test_round_robin_looks_for_new_partitions_again_after_it_has_had_no_answer() -> None:
    async def play(system: ActorSystem) -> None:
        answers = [(0,), OUT_OF_BROKERS, OUT_OF_BROKERS, OUT_OF_BROKERS]

        async def find(_topic: str) -> tuple[int, ...]:
            answer = answers.pop(0) if answers else (0, 1)
            if isinstance(answer, KafkaError):
                raise answer
            return answer

        client = Client()
        ref = start(system, client, writable=find, partitioner="roundrobin")
        ask(ref, 2)
        await asyncio.sleep(15)
        assert not answers, "the second look-up has failed"
        client.land(ref, client.sent)
        await asyncio.sleep(15)
        ask(ref, 2)
        await asyncio.sleep(1)
        assert sorted(client.partitions) == [0, 0, 0, 1]

    simulate(play, seed=1)

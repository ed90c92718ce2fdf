"""A topic goes to another producer client between messages, so that none overtakes another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from actors import ActorRef, ActorSystem
from pixy.engine.produce import sender
from pixy.engine.produce.messages import Produce, ProduceMany
from tests.unit.actors.virtual_time import virtual_time
from tests.unit.engine.produce.scripted_client import BulkClient, Client, Landed, Rec, ask, start


class Two(BulkClient):
    """Two clients: this one, and the other, to which the topic moves when ``apart`` is set."""

    def __init__(self, room: int = 10**9) -> None:
        super().__init__(room)
        self.other = Client()
        self.apart = False

    def of(self, _topic: str) -> Any:
        return self.other if self.apart else self


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(600):  # of virtual time
        while not check():
            await asyncio.sleep(0.05)


def values(client: Client) -> list[bytes]:
    return [item.value for item in client.sent]


def tell(ref: ActorRef[Any], *contents: bytes) -> None:
    for each in contents:
        ref.tell(Produce(None, each))


@virtual_time
async def test_new_messages_wait_for_those_that_the_earlier_client_has() -> None:
    client = Two()
    async with ActorSystem() as system:
        ref = start(system, client)
        tell(ref, b"1", b"2")
        await until(lambda: len(client.sent) == 2)
        client.apart = True
        tell(ref, b"3")
        await asyncio.sleep(2.0)
        assert (values(client), values(client.other)) == ([b"1", b"2"], [])
        client.land(ref, client.sent)
        await until(lambda: client.other.sent)
        assert values(client.other) == [b"3"]
        assert (client.gated, client.other.gated) == ([], [("t", (0, 1))]), "its gates are shut anew"
        tell(ref, b"4")
        await until(lambda: len(client.other.sent) == 2)
        assert len(client.sent) == 2


@virtual_time
async def test_a_batch_that_was_sent_in_part_is_sent_to_its_end_by_the_same_client() -> None:
    client = Two(room=2)
    async with ActorSystem() as system:
        ref = start(system, client)
        reply = ref.ask(ProduceMany([Rec(b"%d" % at) for at in range(5)]), block=False)
        await until(lambda: len(client.sent) == 2)
        client.apart = True
        later = ask(ref, 1)
        client.room = 10
        await until(lambda: len(client.sent) == 5)
        [bulk] = client.bulks
        assert not client.other.sent
        for at in range(5):
            bulk.landed(at, None, Landed(0, at))
        client.deliver(ref)
        assert len(await reply) == 5
        await until(lambda: client.other.sent)
        client.other.land(ref, client.other.sent)
        await later[0]


@virtual_time
async def test_a_partition_without_a_leader_holds_the_topic_up_for_seconds_only() -> None:
    client = Two()
    async with ActorSystem() as system:
        ref = start(system, client)
        tell(ref, b"stuck")
        await until(lambda: client.sent)
        client.apart = True
        begun = system.loop.time()
        tell(ref, b"2")
        await until(lambda: len(client.sent) == 2)
        assert sender._MOVE_WITHIN <= system.loop.time() - begun <= sender._MOVE_WITHIN + 1
        begun = system.loop.time()
        tell(ref, b"3")
        await until(lambda: len(client.sent) == 3)
        assert system.loop.time() - begun <= 1, "it does not wait each time"
        await asyncio.sleep(sender._MOVE_AGAIN)
        tell(ref, b"4")
        await asyncio.sleep(2.0)
        assert len(client.sent) == 3, "the next attempt"
        client.land(ref, client.sent)
        await until(lambda: client.other.sent)
        assert values(client.other) == [b"4"]

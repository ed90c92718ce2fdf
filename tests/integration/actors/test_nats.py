"""Actors over a real nats-server: location-transparent ask and tell, queue groups, and everything that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from actors import Actor, ActorDeadError, ActorSystem, MailboxFull, Timeout, TraceContext, trace_as
from actors.nats import NatsTransport
from actors.remote import BadPayload, Codec, ConnectionLost, PickleCodec, RemoteError, TypedCodec
from tests.integration.actors.nats_server import NatsServer
from tests.support import eventually


@dataclass(frozen=True)
class Add:
    number: int


@dataclass(frozen=True)
class Fail:
    text: str


@dataclass(frozen=True)
class Unknown:
    pass


class Adder(Actor):
    """Adds numbers; remembers all messages."""

    mailbox_capacity = 3

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_receive(self, message: Any) -> Any:
        await self.gate.wait()
        self.seen.append(message)
        if isinstance(message, Fail):
            raise ValueError(message.text)
        if message == "trace":
            return None if self._cell.trace is None else self._cell.trace.header
        if message == "unknown":
            return Unknown()
        if message == "large":
            return bytes(2 << 20)
        if message == "never":
            await asyncio.Event().wait()
        return sum(each.number for each in self.seen if isinstance(each, Add))


class Roomy(Adder):
    """Never full in these tests, so it never refuses an ask."""

    mailbox_capacity = 100


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    made = NatsServer()
    made.start()
    yield made
    made.kill()


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_grace=0.1) as made:
        yield made


def typed() -> TypedCodec:
    return TypedCodec(Add, Fail)


async def connect(server: NatsServer, codec: Codec | None = None, **options: Any) -> NatsTransport:
    return await NatsTransport.connect(
        server.url, codec=codec or typed(), reconnect_time_wait=0.05, max_reconnect_attempts=-1, **options
    )


async def until(check: Callable[[], bool], what: str) -> None:
    async def found() -> str:
        return what if check() else f"not yet: {what}"

    await eventually(found, lambda text: text == what)


def instance(ref: Any) -> Adder:
    actor: Adder = ref._cell.actor
    return actor


async def test_ask_and_tell_by_name_in_order(server: NatsServer, system: ActorSystem) -> None:
    async with await connect(server) as there, await connect(server) as here:
        adder = system.spawn(Roomy)
        await there.serve("sums.a", adder)
        ref = here.ref("sums.a")
        for number in range(50):
            ref.tell(Add(number))
        assert await ref.ask(Add(0), block=False) == sum(range(50))
        assert instance(adder).seen == [Add(number) for number in (*range(50), 0)]
        assert await ref.ask(Add(1), block=False, timeout=30.0) == sum(range(50)) + 1
        assert await asyncio.to_thread(ref.ask, Add(1), timeout=30.0) == sum(range(50)) + 2


async def test_the_trace_goes_along(server: NatsServer, system: ActorSystem) -> None:
    async with await connect(server) as transport:
        await transport.serve("traced", system.spawn(Adder))
        context = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
        with trace_as(context):
            assert await transport.ref("traced").ask("trace", block=False) == context.header
        assert await transport.ref("traced").ask("trace", block=False) is None


async def test_a_queue_group_shares_and_goes_on_without_a_member(
    server: NatsServer, system: ActorSystem
) -> None:
    one, two, here = [await connect(server) for _ in range(3)]
    workers = [system.spawn(Adder), system.spawn(Adder)]
    await one.serve("shared", workers[0], group="g")
    await two.serve("shared", workers[1], group="g")
    ref = here.ref("shared")
    for _ in range(100):
        await ref.ask(Add(1), block=False)
    counts = [len(instance(each).seen) for each in workers]
    assert sum(counts) == 100 and min(counts) > 0, f"each message goes to one: {counts}"
    await one.close()
    for _ in range(20):
        await ref.ask(Add(1), block=False)
    assert len(instance(workers[1]).seen) == counts[1] + 20
    await two.close()
    with pytest.raises(ActorDeadError, match="nobody serves this name"):
        await ref.ask(Add(1), block=False)
    await here.close()


async def test_errors_of_the_other_side(server: NatsServer, system: ActorSystem) -> None:
    async with await connect(server) as transport:
        adder = system.spawn(Adder)
        await transport.serve("errors", adder)
        ref = transport.ref("errors")
        with pytest.raises(RemoteError, match="ValueError: no") as caught:
            await ref.ask(Fail("no"), block=False)
        assert (caught.value.kind, caught.value.text) == ("ValueError", "no")
        with pytest.raises(RemoteError, match="BadPayload: Unknown is none of the codec's types"):
            await ref.ask("unknown", block=False)
        with pytest.raises(RemoteError, match=r"BadPayload: the reply has .* max_payload"):
            await ref.ask("large", block=False)
        await transport.serve("slow", system.spawn(Adder))
        with pytest.raises(Timeout):
            await transport.ref("slow").ask("never", block=False, timeout=0.05)
        await adder.stop(block=False)
        with pytest.raises(ActorDeadError):
            await ref.ask(Add(1), block=False)


async def test_bad_payloads(server: NatsServer, system: ActorSystem) -> None:
    async with await connect(server) as transport, await connect(server, PickleCodec()) as other:
        adder = system.spawn(Adder)
        await transport.serve("payloads", adder)
        ref = transport.ref("payloads")
        with pytest.raises(BadPayload, match="Unknown is none of the codec's types: Add, Fail"):
            ref.tell(Unknown())
        with pytest.raises(BadPayload, match=r"the bytes to payloads has \d+ bytes, more than the server's"):
            await ref.ask(bytes(2 << 20), block=False)
        with pytest.raises(RemoteError, match=r"BadPayload: .* bytes cannot be decoded"):
            await other.ref("payloads").ask(Add(1), block=False)
        other.ref("payloads").tell(Add(1))
        assert await ref.ask(Add(2), block=False) == 2, "a bad tell is dropped, and the next message handled"
        for name in ("", "a..b", "a b", "a.*", "a.>"):
            with pytest.raises(ValueError, match="is no name for NATS"):
                transport.ref(name)


async def test_everything_is_bounded(server: NatsServer, system: ActorSystem) -> None:
    async with await connect(server) as there, await connect(server, max_pending=2, max_asks=6) as here:
        adder = system.spawn(Adder)
        await adder
        await there.serve("full", adder)
        ref = here.ref("full")
        instance(adder).gate.clear()
        asked = [ref.ask(Add(1), block=False)]
        await until(lambda: adder.statistics().current == "Add", "the actor is busy")
        with pytest.raises(MailboxFull, match="the transport's queue"):
            for _ in range(3):
                ref.tell(Add(1))
        for _ in range(2):
            await ref.send(Add(1))  # waits for room: the first two are written, then the third
        await until(lambda: adder.statistics().mailbox.depth == 3, "the mailbox is full")
        # The fourth tell waits for room at the actor; asks behind it wait too, up to max_asks.
        asked += [ask for _ in range(5) if (ask := await _asked(here, ref))]
        with pytest.raises(MailboxFull, match="the transport's queue"):
            await ref.ask(Add(1), block=False)
        instance(adder).gate.set()
        found = await asyncio.gather(*(_outcome(each) for each in asked))
        assert found[0] == 1 and len(found) == 6
        assert all(isinstance(each, (int, MailboxFull)) for each in found), found


async def _asked(transport: NatsTransport, ref: Any) -> Any:
    await transport.room()
    return ref.ask(Add(1), block=False)


async def _outcome(asked: Any) -> Any:
    try:
        return await asked
    except MailboxFull as error:
        return error


async def test_a_full_mailbox_answers_an_ask(server: NatsServer, system: ActorSystem) -> None:
    async with await connect(server) as transport:
        adder = system.spawn(Adder)
        await adder
        await transport.serve("mailbox", adder)
        instance(adder).gate.clear()
        asked = [transport.ref("mailbox").ask(Add(1), block=False)]
        await until(lambda: adder.statistics().current == "Add", "the actor is busy")
        asked += [transport.ref("mailbox").ask(Add(1), block=False) for _ in range(4)]
        with pytest.raises(MailboxFull, match="mailbox of /Adder-1 is full"):
            await asked[4]
        instance(adder).gate.set()
        assert [await each for each in asked[:4]] == [1, 2, 3, 4]


async def test_a_close_answers_what_is_being_handled(server: NatsServer, system: ActorSystem) -> None:
    there, here = await connect(server), await connect(server)
    adder = system.spawn(Adder)
    await adder
    await there.serve("closing", adder)
    instance(adder).gate.clear()
    asked = here.ref("closing").ask(Add(7), block=False)
    await until(lambda: adder.statistics().current == "Add", "the actor is busy")
    closing = asyncio.create_task(there.close())
    await asyncio.sleep(0)
    instance(adder).gate.set()
    assert await asked == 7
    await closing
    never = here.ref("closing").ask(Add(7), block=False)
    with pytest.raises(ActorDeadError):
        await never
    await here.close()
    with pytest.raises(ConnectionLost):
        here.ref("closing").tell(Add(1))


async def test_a_lost_connection_is_an_error_and_comes_back(system: ActorSystem) -> None:
    server = NatsServer()
    server.start()
    try:
        async with await connect(server) as there, await connect(server) as here:
            adder = system.spawn(Adder)
            await there.serve("lost", adder)
            ref = here.ref("lost")
            asked = ref.ask("never", block=False, timeout=60)
            await until(lambda: adder.statistics().current == "str", "the actor is busy")
            await asyncio.to_thread(server.kill)
            with pytest.raises(ConnectionLost, match="lost before the reply"):
                await asked
            with pytest.raises(ConnectionLost, match="is not sent"):
                ref.tell(Add(1))
            assert not ref.notify(Add(1))
            with pytest.raises(ConnectionLost):
                await ref.ask(Add(1), block=False)
            again = system.spawn(Adder)
            await asyncio.to_thread(server.start)
            await until(lambda: ref.notify(Add(1)), "it is connected again")
            await until(lambda: there._client.is_connected, "the other one too")
            await there.serve("lost.again", again)
            assert await here.ref("lost.again").ask(Add(3), block=False) == 3
    finally:
        server.kill()


async def test_no_server_is_one_clear_line() -> None:
    with pytest.raises(ConnectionLost, match=r"^no connection to nats://127\.0\.0\.1:1: "):
        await NatsTransport.connect(
            "nats://127.0.0.1:1", codec=typed(), allow_reconnect=False, connect_timeout=1
        )


async def test_a_transport_outlives_an_error_of_the_protocol(
    server: NatsServer, system: ActorSystem, caplog: pytest.LogCaptureFixture
) -> None:
    async with await connect(server) as here:
        await here.serve("sums.protocol", system.spawn(Roomy))
        ref = here.ref("sums.protocol")
        assert await ref.ask(Add(1), block=False) == 1
        await here._client.publish("x" * 5000, b"")  # past the check of names
        await until(lambda: here._client.stats["reconnects"] == 1 and here._client.is_connected, "connected")
        assert await ref.ask(Add(2), block=False) == 3, "it serves again, too"
    assert "Maximum Control Line" in caplog.text.title()

"""Refs to actors elsewhere over a transport in memory, the codecs, and errors as text."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    Future,
    MailboxFull,
    NoAnswer,
    Timeout,
    TraceContext,
    WorkerDied,
    WouldDeadlock,
    trace_as,
)
from actors.patterns import CircuitOpen
from actors.remote import (
    BadPayload,
    Codec,
    ConnectionLost,
    PickleCodec,
    RemoteError,
    RemoteRef,
    Transport,
    TypedCodec,
)
from actors.remote.errors import error_from_text, error_to_text
from tests.unit.actors.virtual_time import virtual_system, virtual_time


@dataclass(frozen=True)
class Order:
    number: int
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Other:
    pass


class ExitsWhenPickled:
    def __reduce__(self) -> Any:
        raise SystemExit(3)


class ExitsWhenLoaded:
    def __reduce__(self) -> Any:
        return sys.exit, (3,)


@dataclass(frozen=True)
class ExitsWhenMade:
    number: int

    def __post_init__(self) -> None:
        if self.number:
            sys.exit(3)


class Memory(Transport):
    """Keeps what is submitted."""

    def __init__(self, capacity: int = 2) -> None:
        self.capacity = capacity
        self.taken: list[tuple[str, Any, Future[Any] | None, float, TraceContext | None]] = []
        self.lost = False

    def submit(self, address: str, message: Any, reply: Any, timeout: float, trace: Any) -> None:
        if self.lost:
            raise ConnectionLost("gone")
        if len(self.taken) >= self.capacity:
            raise MailboxFull("full")
        self.taken.append((address, message, reply, timeout, trace))

    async def room(self) -> None:
        while len(self.taken) >= self.capacity:
            await asyncio.sleep(0.01)


@virtual_time
async def test_a_remote_ref_sends_as_other_refs_do() -> None:
    transport = Memory()
    ref = RemoteRef(transport, "a")
    ref.tell(1)
    asked = ref.ask(2, block=False, timeout=3.0)
    assert [each[:2] for each in transport.taken] == [("a", 1), ("a", 2)]
    assert transport.taken[0][2] is None and transport.taken[1][2] is asked and transport.taken[1][3] == 3.0
    with pytest.raises(MailboxFull):
        ref.tell(3)
    assert not ref.notify(3)
    with pytest.raises(MailboxFull):
        await ref.ask(3, block=False)
    with pytest.raises(MailboxFull, match="no room for a message to a in time"):
        await ref.send(3, timeout=1.0)
    asyncio.get_running_loop().call_later(0.5, transport.taken.clear)
    await ref.send(3, timeout=1.0)
    assert [each[1] for each in transport.taken] == [3]
    transport.lost = True
    with pytest.raises(ConnectionLost):
        ref.tell(4)
    with pytest.raises(WouldDeadlock):
        ref.ask(4)
    with pytest.raises(NotImplementedError, match="Memory cannot tell when a stops"):
        ref.watch(print)
    assert ref == RemoteRef(transport, "a") != RemoteRef(transport, "b")
    assert len({ref, RemoteRef(transport, "a")}) == 1


@virtual_time
async def test_the_trace_of_the_current_message_goes_along() -> None:
    transport = Memory(10)
    context = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")

    class Relay(Actor):
        def on_receive(self, message: Any) -> None:
            RemoteRef(transport, "a").tell(message)

    async with virtual_system() as system:
        relay = system.spawn(Relay)
        with trace_as(context):
            await relay.ask(1, block=False)
            RemoteRef(transport, "a").tell(2)
        await relay.ask(3, block=False)
    assert [each[4] for each in transport.taken] == [context, context, None]


async def test_a_timeout_that_is_no_number_is_refused() -> None:
    transport = Memory()
    ref = RemoteRef(transport, "a")
    with pytest.raises(ValueError, match="timeout is a number of seconds, not nan"):
        ref.ask(1, block=False, timeout=float("nan"))
    with pytest.raises(ValueError, match="timeout is a number of seconds, not nan"):
        await ref.send(1, timeout=float("nan"))
    assert not transport.taken


def test_every_ask_has_a_limit() -> None:
    transport = Memory()
    transport.ask_timeout = 0.01
    with pytest.raises(Timeout):
        RemoteRef(transport, "a").ask(1)
    assert transport.taken[0][3] == 0.01


@pytest.mark.parametrize("make", [PickleCodec, lambda: TypedCodec(Order)])
@pytest.mark.parametrize("value", [None, 1, "x", b"x", [1, {"a": 2.5}], Order(1, ("a", "b"))])
def test_codecs_return_what_was_sent(make: Callable[[], Codec], value: Any) -> None:
    codec = make()
    assert codec.decode(codec.encode(value)) == value


def test_an_exit_in_the_code_of_what_is_sent_fails_its_message_alone() -> None:
    pickled, typed = PickleCodec(), TypedCodec(ExitsWhenMade)
    with pytest.raises(BadPayload, match="ExitsWhenPickled cannot be pickled"):
        pickled.encode(ExitsWhenPickled())
    with pytest.raises(BadPayload, match="cannot be unpickled"):
        pickled.decode(pickle.dumps(ExitsWhenLoaded()))
    data = typed.encode(ExitsWhenMade(0))
    with pytest.raises(BadPayload, match="cannot be decoded"):
        typed.decode(data.replace(b"\x00", b"\x01"))


def test_what_a_codec_cannot_write_or_read_is_named() -> None:
    codec = TypedCodec(Order)
    for value, text in ((Other(), "Other is none of the codec's types: Order"), (print, "cannot be encoded")):
        with pytest.raises(BadPayload, match=text):
            codec.encode(value)
    foreign = TypedCodec(Other).encode(Other())
    wrong = codec.encode(Order(1)).replace(b"\x01", b"\xc0")
    for data in (b"", b"junk", foreign, wrong):
        with pytest.raises(BadPayload, match=f"^{len(data)} bytes cannot be decoded"):
            codec.decode(data)
    with pytest.raises(BadPayload, match="cannot be pickled"):
        PickleCodec().encode(lambda: 1)
    with pytest.raises(BadPayload, match="cannot be unpickled"):
        PickleCodec().decode(b"junk")
    for types in ((int,), (Order, Order)):
        with pytest.raises(ValueError, match="is no dataclass, or there are two"):
            TypedCodec(*types)


@pytest.mark.parametrize(
    "error",
    [ActorDeadError("a"), NoAnswer("a: b"), MailboxFull("b"), Timeout("c"), ConnectionLost("d: e")],
)
def test_the_errors_of_the_runtime_arrive_as_themselves(error: Exception) -> None:
    arrived = error_from_text(error_to_text(error))
    assert type(arrived) is type(error) and str(arrived) == str(error)


def test_other_errors_arrive_as_text() -> None:
    arrived = error_from_text(error_to_text(KeyError("x")))
    assert isinstance(arrived, RemoteError) and (arrived.kind, arrived.text) == ("KeyError", "'x'")


@pytest.mark.parametrize("error", [RemoteError("KeyError", "x"), WorkerDied("died", 7, -9), CircuitOpen(1.5)])
def test_errors_travel_between_processes(error: Exception) -> None:
    error.add_note("seen")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error)
    assert vars(copy) == vars(error)

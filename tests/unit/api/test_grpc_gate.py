"""The gate of gRPC calls without gRPC: whose place a call takes, and until when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from pixy.api.edge.pace import Pace
from pixy.api.grpc import untaken
from pixy.api.grpc.gate import Gate
from pixy.api.grpc.identity import credentials
from pixy.auth.principal import Credentials, Principal
from pixy.auth.tokens import UnknownTokenKey
from pixy.engine.guard import Guard
from pixy.errors import Unauthenticated


class Aborted(Exception):
    pass


class Context:
    """A call with a message of one byte."""

    def __init__(self, token: str = "known", address: str = "10.0.0.1", port: int = 5) -> None:
        self.token = token
        self.address = address
        self.port = port
        self.message: Callable[[], Any] = lambda: asyncio.sleep(0, b"m")
        self.ended: list[Callable[[Any], None]] = []

    def peer(self) -> str:
        return f"ipv4:{self.address}:{self.port}"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", self.token),)

    def auth_context(self) -> dict[str, Any]:
        raise AssertionError("nobody asks for certificates")

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.ended.append(callback)

    async def read(self) -> Any:
        return await self.message()

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Aborted(code.name, text)


class Authenticator:
    """Knows the token ``known``; others wait for their issuer."""

    sees_certificates = sees_uids = False

    def __init__(self) -> None:
        self.issuer = asyncio.Event()

    generation = 0

    def identify(self, seen: Credentials) -> tuple[Principal, float]:
        if seen.authorization != "known":
            raise UnknownTokenKey
        return Principal("jwt:a"), 0.0

    async def look_again(self, _seen: Credentials) -> tuple[Principal, float]:
        await self.issuer.wait()
        raise UnknownTokenKey


def made(
    most: int, timeout: float = 60.0, reads: int = 8
) -> tuple[Gate, Authenticator, Callable[[Context], Any]]:
    known = Authenticator()
    guard = cast(Guard, SimpleNamespace(authenticator=known, unknown=lambda *_args: None))
    gate = Gate(
        guard, most, reads, timeout, Pace(lambda: 0.0)
    )  # however slow the machine is, all begin at once

    async def behaviour(raw: bytes, _context: Any, caller: str) -> bytes:
        return raw + caller.encode()

    call = gate.unary(behaviour).stream_unary
    return gate, known, lambda context: call(None, context)


async def test_a_call_keeps_its_place_until_its_answer_is_taken() -> None:
    gate, _, call = made(4)
    context = Context()
    assert await call(context) == b"mjwt:a"
    assert (gate.held, gate.reading) == (1, 0)
    context.ended[0](context)
    assert gate.held == 0


async def test_a_probe_finds_a_place_whatever_other_connections_of_its_address_leave_unanswered() -> None:
    gate, _, _ = made(16)

    async def behaviour(raw: bytes, _context: Any, _caller: str) -> bytes:
        return raw

    check = gate.unary(behaviour, public=True).stream_unary
    taken = [Context(port=1) for _ in range(4)]
    for each in taken:
        assert await check(None, each) == b"m"
    with pytest.raises(Aborted, match="RESOURCE_EXHAUSTED"):
        await check(None, Context(port=1))
    prober = Context(port=2)
    assert await check(None, prober) == b"m"
    with pytest.raises(Aborted, match="RESOURCE_EXHAUSTED"):
        await check(None, Context(port=2))
    prober.ended[0](prober)
    assert await check(None, Context(port=2)) == b"m", "one after the other"
    assert gate.held == 5
    for each in taken:
        each.ended[0](each)
    assert gate.held == 1


async def test_long_messages_of_health_checks_and_reflection_are_refused() -> None:
    """Watchers and reflection last as long as their clients like, and the bytes of their messages count nowhere."""
    gate, _, call = made(16)
    kept: list[bytes] = []

    async def watched(raw: bytes, _context: Any) -> None:
        kept.append(raw)

    async def reflected(requests: Any, _context: Any) -> Any:
        async for each in requests:
            kept.append(each)
            yield each

    service: Any = SimpleNamespace(
        stream_stream=reflected,
        request_deserializer=lambda raw: raw,
        response_serializer=lambda answer: answer,
    )
    check = gate.unary(probed, public=True).stream_unary
    watch, reflect = gate.server_stream(watched).stream_stream, gate.stream(service).stream_stream
    for size in (4096, 4097):
        contexts = [Context() for _ in range(3)]
        for each in contexts:
            each.message = lambda size=size: asyncio.sleep(0, b"m" * size)

        async def reflects(context: Context) -> None:
            await anext(reflect(None, context))

        calls = (check(None, contexts[0]), watch(None, contexts[1]), reflects(contexts[2]))
        for each in calls:
            if size == 4096:
                await each
            else:
                with pytest.raises(Aborted, match=r"INVALID_ARGUMENT.*more than 4096 bytes"):
                    await each
    assert [len(each) for each in kept] == [4096, 4096]
    context = Context()
    context.message = lambda: asyncio.sleep(0, b"m" * 10_000)
    assert len(await call(context)) > 10_000, "others count"


async def probed(raw: bytes, _context: Any, caller: str) -> bytes:
    return raw + caller.encode()


async def test_probes_beyond_an_address_s_share_leave_the_places_of_others_free() -> None:
    gate, _, _ = made(16)
    check = gate.unary(probed, public=True).stream_unary
    for port in (1, 1, 1, 2, 3, 4, 5, 6):
        assert await check(None, Context(port=port)) == b"m10.0.0.1"
    with pytest.raises(Aborted, match="RESOURCE_EXHAUSTED"):
        await check(None, Context(port=2))
    other = Context(address="10.0.0.2")
    assert await check(None, other) == b"m10.0.0.2", "the fourth place"
    assert gate.held == 9
    other.ended[0](other)
    assert await check(None, Context(address="10.0.0.3")) == b"m10.0.0.3"


async def test_one_address_leaves_places_for_the_messages_of_others_however_many_connections_it_has() -> None:
    gate, _, call = made(16, reads=4)
    check = gate.unary(probed, public=True).stream_unary
    for _ in range(3):
        await check(None, Context(port=1))
    silent = [Context(port=port) for port in range(2, 12)]
    for each in silent:
        each.message = asyncio.Event().wait
    waiting = [asyncio.create_task(check(None, each)) for each in silent]
    await asyncio.sleep(0)
    assert gate.reading == 3, "three quarters"
    assert await call(Context()) == b"mjwt:a"
    assert await check(None, Context(address="10.0.0.2")) == b"m10.0.0.2"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_call_whose_message_does_not_come_is_refused() -> None:
    gate, _, call = made(4, 0.005)
    context = Context()
    context.message = asyncio.Event().wait
    with pytest.raises(Aborted, match=r"did not arrive within 0\.005 s"):
        await call(context)
    assert gate.reading == 0


async def test_those_of_an_address_who_wait_for_an_issuer_have_a_share_of_the_places() -> None:
    gate, known, call = made(8)
    waiting = [asyncio.create_task(call(Context("new"))) for _ in range(8)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    refused = [task for task in waiting if task.done()]
    assert gate.held == 6 and len(refused) == 2
    for task in refused:
        with pytest.raises(Aborted, match="RESOURCE_EXHAUSTED"):
            await task
    assert await call(Context()) == b"mjwt:a", "a caller who is known finds a place"
    known.issuer.set()
    for found in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(found, Aborted)
    assert gate.held == 1


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
def test_a_credential_that_is_sent_twice_is_refused(name: str) -> None:
    context = SimpleNamespace(invocation_metadata=lambda: ((name, "a"), ("other", "b"), (name, "a")))
    with pytest.raises(Unauthenticated, match=f"{name} was sent 2 times"):
        credentials(context, cast(Any, Authenticator()))


def test_certificates_are_asked_for_if_they_count() -> None:
    context = SimpleNamespace(
        invocation_metadata=lambda: (("traceparent", b"\xe9"),),
        auth_context=lambda: {"x509_pem_cert": [b"PEM"]},
    )
    seen = credentials(context, cast(Any, SimpleNamespace(sees_certificates=True)))
    assert seen == Credentials(certificate=b"PEM", trace="\xe9")


async def test_watches_of_one_connection_are_few_and_those_of_another_address_find_places() -> None:
    gate, _, _ = made(16 * 200)

    async def watched(_raw: bytes, _context: Any) -> None:
        pass

    watch = gate.server_stream(watched).stream_stream
    for _ in range(64):
        await watch(None, Context(port=1))
    with pytest.raises(Aborted, match="RESOURCE_EXHAUSTED"):
        await watch(None, Context(port=1))
    port = 1
    while gate.held < 150:  # three quarters of a sixteenth
        port += 1
        for _ in range(min(64, 150 - gate.held)):
            await watch(None, Context(port=port))
    await watch(None, Context(port=99))
    with pytest.raises(Aborted, match="RESOURCE_EXHAUSTED"):
        await watch(None, Context(port=99))
    await watch(None, Context(address="10.0.0.2"))
    check = gate.unary(probed, public=True).stream_unary
    assert await check(None, Context(port=1)) == b"m10.0.0.1", "a check needs no place of a watch"


async def test_a_connection_whose_client_takes_no_refusals_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untaken, "MOST", (3, 5, 100))
    ended: list[str] = []
    counted = untaken.Untaken(ended.extend, lambda: 0.0)
    taken = [contextlib.ExitStack() for _ in range(5)]
    with contextlib.ExitStack() as held:
        for each in taken[:3]:
            each.enter_context(counted.one("ipv4:10.0.0.1:1", "10.0.0.1"))
        assert counted._ending is None
        taken[0].close()
        held.enter_context(counted.one("ipv4:10.0.0.1:1", "10.0.0.1"))
        assert counted._ending is None, "they are taken"
        for _ in range(2):
            held.enter_context(counted.one("ipv4:10.0.0.1:1", "10.0.0.1"))
        assert counted._ending is not None
        await counted._ending
        assert ended == ["ipv4:10.0.0.1:1"], "once"
        held.enter_context(counted.one("ipv4:10.0.0.1:2", "10.0.0.1"))
        await counted._ending
        assert ended[1:] == ["ipv4:10.0.0.1:2"], "one of another connection is too much for the address"
        held.enter_context(counted.one("ipv4:10.0.0.2:3", "10.0.0.2"))
        assert len(ended) == 2
    for each in taken:
        each.close()
    assert (counted.held, counted._peers, counted._addresses, counted._ended) == (0, {}, {}, set())

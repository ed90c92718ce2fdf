"""Arguments that are wrong are refused at the call, before anything has happened because of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pykka
import pytest

from actors import (
    Actor,
    ActorRef,
    ActorSystem,
    Backoff,
    Broadcast,
    ConsistentHash,
    DeadLetter,
    Instrument,
    Intensity,
    Router,
    Strategy,
    Supervision,
    Terminated,
    Wait,
)
from actors.patterns import CircuitBreaker, Groups, ask_with_retry
from tests.unit.actors.virtual_time import virtual_system, virtual_time

NAN, HUGE = float("nan"), 10**400
huge = pytest.param(HUGE, id="huge")
QUICK = Supervision(backoff=Backoff(first=0.0))


class Echo(Actor):
    supervision = QUICK

    def on_receive(self, message: Any) -> Any:
        return message(self) if callable(message) else message


class Told(Actor):
    """Keeps the messages that it gets, those of all lives together."""

    def __init__(self, got: list[Any]) -> None:
        super().__init__()
        self._got = got

    def on_receive(self, message: Any) -> None:
        self._got.append(message)


class PykkaActor(pykka.ThreadingActor):
    use_daemon_thread = True


WRONG_REFS: list[Callable[[ActorRef[Any]], Any]] = [
    lambda ref: ref.proxy(),
    lambda ref: ref.path,
    lambda _: None,
    lambda ref: ref._cell.actor,
]


def fail(_: Any) -> None:
    raise ValueError("a bug")


@pytest.mark.parametrize("wrong", WRONG_REFS)
async def test_a_refused_watch_leaves_nothing_behind(wrong: Callable[[ActorRef[Any]], Any]) -> None:
    async with ActorSystem() as system:
        watcher = system.spawn(Echo, supervision=QUICK)
        other = system.spawn(Echo)
        for method in (Actor.watch, Actor.unwatch):
            with pytest.raises(TypeError, match="what is watched is an actor's ref, not"):
                await watcher.ask(lambda self, method=method: method(self, wrong(other)), block=False)
        watcher.tell(fail)
        assert await watcher.ask("still there", block=False) == "still there"
        assert watcher.statistics().restarts == 1
        assert await watcher.stop(block=False)


async def test_a_ref_of_pykka_is_not_watched() -> None:
    ref = PykkaActor.start()
    try:
        async with ActorSystem() as system:
            with pytest.raises(TypeError, match="an actor's ref"):
                await system.spawn(Echo).ask(lambda self: self.watch(ref), block=False)
    finally:
        ref.stop()


@virtual_time
@pytest.mark.parametrize("wrong", WRONG_REFS)
async def test_what_is_no_ref_joins_no_group(wrong: Callable[[ActorRef[Any]], Any]) -> None:
    async with virtual_system() as system:
        groups = Groups(system)
        first, second = system.spawn(Echo), system.spawn(Echo)
        groups.join("g", first)
        with pytest.raises(TypeError, match="a member is an actor's ref, not"):
            groups.join("g", wrong(second))
        groups.join("g", second)
        assert groups.members("g") == (first, second)
        assert groups.broadcast("g", "hi") == 2
        watcher = system.spawn(Told, got := [])
        watcher._cell.actor.watch(first)
        await first.stop(block=False)
        await second.ask("after the news to the groups' actor", block=False)
        await asyncio.sleep(0)
        assert groups.refs() == (second,)
        assert [type(each) for each in got] == [Terminated]


@pytest.mark.parametrize(
    "wrong", [lambda: Echo(), lambda: 42, lambda: "Echo", lambda: Echo.start, lambda: int]
)
async def test_an_actor_is_started_from_its_class(wrong: Callable[[], Any]) -> None:
    async with ActorSystem() as system:
        words = "an actor is started from its class, a subclass of actors.Actor, not from "
        with pytest.raises(TypeError, match=words):
            system.spawn(wrong())
        with pytest.raises(TypeError, match=words):
            await system.spawn(Echo).ask(lambda self: self.spawn(wrong()), block=False)
        with pytest.raises(TypeError, match=words):
            system.spawn_pool(wrong())
        assert len(system.paths()) == 1


async def test_an_empty_name_is_none() -> None:
    async with ActorSystem() as system:
        with pytest.raises(ValueError, match=r"^'' is no name for an actor: it is empty or has a slash$"):
            system.spawn(Echo, name="")
        with pytest.raises(ValueError, match=r"^'' is no name for an actor"):
            await system.spawn(Echo).ask(lambda self: self.spawn(Echo, name=""), block=False)


@pytest.mark.parametrize(
    ("subscriber", "kind", "words"),
    [
        (5, DeadLetter, "a subscriber is a function or an actor's ref, not 5"),
        ("ref", DeadLetter, "a subscriber is a function or an actor's ref, not 'ref'"),
        (print, "DeadLetter", "events are subscribed to by their classes, not by 'DeadLetter'"),
        (print, int, f"events are subscribed to by their classes, not by {int!r}"),
    ],
)
async def test_what_could_hear_nothing_is_no_subscription(subscriber: Any, kind: Any, words: str) -> None:
    async with ActorSystem() as system:
        with pytest.raises(TypeError, match=f"^{re.escape(words)}$"):
            system.events.subscribe(subscriber, kind)
        assert not system.events.wants(DeadLetter)


@pytest.mark.parametrize("wrong", [5, Instrument, print])
async def test_what_is_no_instrument(wrong: Any) -> None:
    async with ActorSystem() as system:
        with pytest.raises(
            TypeError, match=f"^what is installed is of class Instrument, not {re.escape(repr(wrong))}$"
        ):
            system.instrument(wrong)
        assert await system.spawn(Echo).ask("hi", block=False) == "hi"


async def test_what_is_no_pool_and_no_router() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        for wrong in ("random", Broadcast, None):
            words = re.escape(f"routing is of class Routing, not {wrong!r}")
            with pytest.raises(TypeError, match=f"^{words}$"):
                system.spawn_pool(Echo, routing=wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=f"^{words}$"):
                Router.of([ref], wrong)  # type: ignore[arg-type]
        for size in ("2", 1.5, None):
            with pytest.raises(TypeError, match=f"^a pool's size is of class int, not {size!r}$"):
                system.spawn_pool(Echo, size=size)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^what a router sends to is an actor's ref, not <ActorProxy"):
            Router.of([ref.proxy()])
        assert system.paths() == [ref.path]

        router = system.spawn_pool(Echo, size=1)
        with pytest.raises(TypeError, match=r"^a pool's size is of class int, not 1\.5$"):
            router.resize(1.5)  # type: ignore[arg-type]
        assert len(router) == 1

    with pytest.raises(TypeError, match=r"^a routing key is a function, not 'user'$"):
        ConsistentHash("user")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^replicas is 1 or more, not 0$"):
        ConsistentHash(str, 0)


async def test_a_reply_goes_to_no_other_librarys_future(caplog: pytest.LogCaptureFixture) -> None:
    """The runtime's own turn failed of it: the sender's mistake was the recipient's, and its neighbours'."""
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        for wrong in (asyncio.get_running_loop().create_future(), pykka.ThreadingFuture(), None):
            with pytest.raises(TypeError, match=r"^reply_to is of class Future, not "):
                ref.forward("message", wrong)  # type: ignore[arg-type]
        assert await ref.ask("hi", block=False) == "hi"
    assert caplog.messages == []


@pytest.mark.parametrize("wrong", ["restart", 5, 0.1, Supervision, lambda _: None])
async def test_what_is_no_supervision(wrong: Any) -> None:
    async with ActorSystem() as system:
        with pytest.raises(TypeError, match="supervision is of class Supervision, not"):
            system.spawn(Echo, supervision=wrong)
        with pytest.raises(TypeError, match="supervision is of class Supervision, not"):
            await system.spawn(Echo).ask(lambda self: self.spawn(Echo, supervision=wrong), block=False)
        with pytest.raises(TypeError, match="supervision is of class Supervision, not"):
            system.spawn_pool(Echo, supervision=wrong)
        assert len(system.paths()) == 1


async def test_none_is_no_supervision_of_a_top_level_actor() -> None:
    async with ActorSystem() as system:
        with pytest.raises(TypeError, match="supervision is of class Supervision, not None"):
            system.spawn(Echo, supervision=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Supervision(decide=5),  # type: ignore[arg-type]
        lambda: Supervision(intensity=5),  # type: ignore[arg-type]
        lambda: Supervision(backoff=0.1),  # type: ignore[arg-type]
        lambda: Supervision(strategy="one_for_one"),  # type: ignore[arg-type]
        lambda: Supervision(strategy=None),  # type: ignore[arg-type]
        lambda: Intensity("5"),  # type: ignore[arg-type]
        lambda: Intensity(window=Decimal(1)),  # type: ignore[arg-type]
        lambda: Backoff(factor=Decimal(2)),  # type: ignore[arg-type]
        lambda: Backoff(jitter=Decimal(0)),  # type: ignore[arg-type]
        lambda: Backoff(first=HUGE),
        lambda: Backoff(reset=HUGE),
        lambda: Wait("1"),  # type: ignore[arg-type]
        lambda: Wait(HUGE),
        lambda: ActorSystem(stop_grace=HUGE),
        lambda: ActorSystem(hook_timeout=HUGE),
        lambda: ActorSystem(stop_timeout=HUGE),
        lambda: ActorSystem(mailbox_capacity=2.5),  # type: ignore[arg-type]
        lambda: CircuitBreaker(failures=NAN),  # type: ignore[arg-type]
        lambda: CircuitBreaker(pause=0.1),  # type: ignore[arg-type]
        lambda: Groups(ActorSystem(), capacity=-1),
        lambda: Groups(ActorSystem(), capacity=NAN),  # type: ignore[arg-type]
    ],
)
async def test_wrong_settings(make: Callable[[], object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        make()


async def test_each_strategy_is_one() -> None:
    assert [Supervision(strategy=each).strategy for each in Strategy] == list(Strategy)


@pytest.mark.parametrize("timeout", ["1", Decimal(1), huge, NAN])
@pytest.mark.parametrize(
    "send",
    [
        lambda _, ref, timeout: ref.ask("no", block=False, timeout=timeout),
        lambda _, ref, timeout: ref.send("no", timeout=timeout),
        lambda system, _, timeout: system.pool.ask("no", block=False, timeout=timeout),
        lambda system, _, timeout: system.pool.send("no", timeout=timeout),
        lambda _, ref, timeout: ask_with_retry(ref, "no", timeout=timeout),
        lambda _, ref, timeout: ask_with_retry(ref, "no", within=timeout),
        lambda _, ref, timeout: ask_with_retry(ref, "no", errors=[timeout]),  # type: ignore[arg-type]
    ],
)
async def test_a_refused_timeout_sends_nothing(send: Callable[..., Any], timeout: Any) -> None:
    got: list[Any] = []
    async with ActorSystem() as system:
        ref = system.spawn(Told, got)
        system.pool = system.spawn_pool(Told, got, size=1)  # type: ignore[attr-defined]
        with pytest.raises((ValueError, TypeError)):
            await send(system, ref, timeout)
    assert got == []


@pytest.mark.parametrize(
    ("delay", "every"),
    [
        (0, Decimal("0.01")),
        pytest.param(0, HUGE, id="huge"),
        pytest.param(HUGE, None, id="huge delay"),
        ("0", None),
    ],
)
async def test_a_timer_that_could_not_be_set_again_is_refused(delay: Any, every: Any) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        with pytest.raises((ValueError, TypeError)):
            await ref.ask(lambda self: self.set_timer("k", delay, "tick", every=every), block=False)
        assert not await ref.ask(lambda self: self.has_timer("k"), block=False)


@pytest.mark.parametrize("wrong", [3, None, "on_receive"])
async def test_what_is_no_function_is_no_behaviour(wrong: Any) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        for discard_old in (True, False):
            with pytest.raises(TypeError, match=f"^a behaviour is a function, not {wrong!r}$"):
                await ref.ask(lambda self, old=discard_old: self.become(wrong, discard_old=old), block=False)
        assert await ref.ask("as before", block=False) == "as before"


async def test_no_limit_is_infinity() -> None:
    endless = float("inf")
    async with ActorSystem(slow_handler=endless, stop_grace=endless, hook_timeout=endless) as system:
        assert await system.spawn(Echo).ask("hi", block=False, timeout=endless) == "hi"

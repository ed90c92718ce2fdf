"""Context variables: they travel with messages and into new actors, and nothing leaks between messages."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from actors import Actor, ActorRef, ActorSystem, Backoff, Supervision, ThreadedActor, TraceContext, trace_as
from actors._core.stack import stack_of
from actors.testing import simulate

USER: contextvars.ContextVar[Any] = contextvars.ContextVar("user", default=None)
OTHER: contextvars.ContextVar[Any] = contextvars.ContextVar("other", default=None)


class Plain(Actor):
    """Answers the variable's value; a message that is a tuple sets it first, a ref is asked in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [USER.get()]

    def on_start(self) -> Any:
        self.seen.append(USER.get())

    def on_receive(self, message: Any) -> Any:
        if message == "seen":
            return self.seen
        if isinstance(message, tuple):
            USER.set(message[0])
        return USER.get()


class Coroutine(Plain):
    async def on_receive(self, message: Any) -> Any:
        answer, before = super().on_receive(message), USER.get()
        await asyncio.sleep(0)
        assert USER.get() == before, "a step of the handler ran in another context"
        return answer


class Immediate(Plain):
    async def on_receive(self, message: Any) -> Any:
        return super().on_receive(message)


class Threaded(Plain, ThreadedActor):
    pass


KINDS = pytest.mark.parametrize("kind", [Plain, Coroutine, Immediate, Threaded])


@KINDS
async def test_a_message_has_the_variables_of_its_sender(kind: type[Plain]) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        asks = []
        for name in ("ada", "bob", "cid"):
            USER.set(name)
            asks.append(ref.ask("who", block=False))
        assert await asyncio.gather(*asks) == ["ada", "bob", "cid"]


@KINDS
async def test_what_a_handler_sets_is_seen_by_no_other_message(kind: type[Plain]) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        asks = [ref.ask(message, block=False) for message in [("ada",), "who", ("bob",), "who", "who"]]
        assert await asyncio.gather(*asks) == ["ada", None, "bob", None, None]
        USER.set("sender")
        asks = [ref.ask(message, block=False) for message in [("ada",), "who", ("bob",), "who"]]
        assert await asyncio.gather(*asks) == ["ada", "sender", "bob", "sender"]
        assert USER.get() == "sender", "the handler changed the sender's own context"


@KINDS
def test_without_any_variables_nothing_leaks_either(kind: type[Plain]) -> None:
    """All these messages share one context, until a handler leaves something in it."""

    async def main() -> list[Any]:
        async with ActorSystem() as system:
            ref = system.spawn(kind)
            messages = [("ada",), "who", "who", ("bob",), "who"]
            waiting = [ref.ask(message, block=False) for message in messages]
            return [await reply for reply in waiting] + [
                await ref.ask(message, block=False) for message in [("cid",), "who", "who"]
            ]

    found = contextvars.Context().run(asyncio.run, main())
    assert found == ["ada", None, None, "bob", None, "cid", None, None]


@KINDS
async def test_constructor_and_start_have_the_variables_of_the_spawner(kind: type[Plain]) -> None:
    async with ActorSystem() as system:
        USER.set("spawner")
        ref = system.spawn(kind)
        assert await ref.ask("seen", block=False) == ["spawner", "spawner"]
        # A sender without variables: a thread, here a context of its own.
        bare = contextvars.Context()
        asks = [bare.run(ref.ask, message, block=False) for message in [("ada",), "who", "who"]]
        assert await asyncio.gather(*asks) == ["ada", "spawner", "spawner"]
        # A sender with others: exactly its own.
        bare.run(OTHER.set, 1)
        assert await bare.run(ref.ask, "who", block=False) is None


async def test_variables_go_from_actor_to_actor_and_to_children() -> None:
    class Middle(Actor):
        def on_receive(self, message: Any) -> Any:
            if message == "child":
                return self.spawn(Plain)
            reply = self.take_reply()

            async def answer() -> None:
                reply.try_set(await last.ask(message, block=False))

            self.start_task(answer())
            return None

    async with ActorSystem() as system:
        last = system.spawn(Plain)
        ref = system.spawn(Middle)
        assert await ref.ask("who", block=False) is None
        USER.set("ada")
        assert await ref.ask("who", block=False) == "ada"
        child: ActorRef[Plain] = await ref.ask("child", block=False)
        USER.set("bob")
        assert await child.ask("seen", block=False) == ["ada", "ada"]


async def test_each_way_to_send_carries_the_variables() -> None:
    got: list[Any] = []

    class Log(Actor):
        def on_receive(self, message: Any) -> None:
            got.append((message, USER.get()))

        def method(self) -> Any:
            return USER.get()

    async with ActorSystem() as system:
        ref = system.spawn(Log)
        pool = system.spawn_pool(Log, size=1)
        await ref
        USER.set("ada")
        ref.tell("tell")
        ref.tell("urgent", urgent=True)
        ref.notify("notify")
        await ref.send("send")
        await ref.ask("ask", block=False)
        pool.tell("pool tell")
        await pool.ask("pool ask", block=False)
        assert await ref.proxy().method() == "ada"
        thread = threading.Thread(target=contextvars.copy_context().run, args=(ref.tell, "thread"))
        thread.start()
        await asyncio.to_thread(thread.join)
        await ref.ask("end", block=False)
        assert len(got) == 9 and {user for _, user in got} == {"ada"}, got


async def test_a_timer_runs_with_the_actors_own_variables() -> None:
    class Clock(Plain):
        def on_start(self) -> Any:
            self.set_timer("tick", 0.0, "tick")

        def on_receive(self, message: Any) -> Any:
            if message == "tick":
                self.seen.append(USER.get())
                return None
            return super().on_receive(message)

    async with ActorSystem() as system:
        USER.set("spawner")
        ref = system.spawn(Clock)
        USER.set("sender")

        async def ticked() -> bool:
            return len(await ref.ask("seen", block=False)) == 2

        while not await ticked():
            await asyncio.sleep(0)
        assert await ref.ask("seen", block=False) == ["spawner", "spawner"]


async def test_what_on_start_sets_holds_for_the_actors_own_messages() -> None:
    class Named(Plain):
        def on_start(self) -> Any:
            USER.set("own")

    class NamedThread(Named, ThreadedActor):
        pass

    async with ActorSystem() as system:
        for kind in (Named, NamedThread):
            ref = system.spawn(kind)
            bare = contextvars.Context()
            asks = [bare.run(ref.ask, message, block=False) for message in [("other",), "who"]]
            assert await asyncio.gather(*asks) == ["other", "own"]


async def test_the_current_span_of_opentelemetry_travels() -> None:
    tracer = TracerProvider().get_tracer("test")

    class Traced(Actor):
        async def on_receive(self, message: Any) -> Any:
            with tracer.start_as_current_span("handler") as span:
                await asyncio.sleep(0)
                if message is not None:
                    return await message.ask(None, block=False)
                return span

    async with ActorSystem() as system:
        first, second = system.spawn(Traced), system.spawn(Traced)
        with tracer.start_as_current_span("request") as request:
            inner = await first.ask(second, block=False)
        assert inner.context.trace_id == request.get_span_context().trace_id
        assert (
            inner.parent.span_id != request.get_span_context().span_id
        )  # the first handler's span is between
        alone = await second.ask(None, block=False)
        assert alone.parent is None, "the span of an earlier message is still current"
        assert not trace.get_current_span().get_span_context().is_valid


async def test_a_trace_of_the_sender_does_not_hide_the_messages_own() -> None:
    """``trace_as`` is for the block that it stands around, not for what handlers send later."""
    first, second = (TraceContext(f"{n:032x}", f"{n:016x}") for n in (1, 2))
    seen: list[Any] = []

    class Last(Actor):
        def on_receive(self, message: Any) -> None:
            seen.append(self._cell.trace)

    class Relay(Actor):
        def on_receive(self, message: Any) -> None:
            self._cell.trace = second  # as a tracer does with its own span
            last.tell(message)

    async with ActorSystem() as system:
        last, relay = system.spawn(Last), system.spawn(Relay)
        USER.set("ada")
        with trace_as(first):
            relay.tell(1)
        await relay.ask(2, block=False)
        await last.ask(3, block=False)
    assert seen[0] == second


async def test_a_handler_in_a_context_can_be_seen_waiting_and_cancelled() -> None:
    waiting = asyncio.Event()
    ends: list[str] = []

    class Waits(Actor):
        async def on_receive(self, message: Any) -> None:
            try:
                await self.wait_here()
            finally:
                ends.append(USER.get())

        async def wait_here(self) -> None:
            waiting.set()
            await asyncio.Event().wait()

    async with ActorSystem(stop_grace=0.0) as system:
        USER.set("ada")
        ref = system.spawn(Waits)
        ref.tell(1)
        await waiting.wait()
        stack = stack_of(ref._cell.task)
        assert stack is not None and "on_receive" in stack and "wait_here" in stack, stack
        assert "_core/context.py" not in stack, stack
    assert ends == ["ada"]


async def test_sending_copies_nothing_into_an_envelope_without_variables() -> None:
    """The common case costs a look at the length of a context."""

    class Keeps(Actor):
        def on_receive(self, message: Any) -> Any:
            if isinstance(message, ActorRef):
                message.tell("from an actor")
            return self._cell.envelope

    async with ActorSystem() as system:
        ref = system.spawn(Keeps)
        ask = contextvars.Context().run(ref.ask, "from outside", block=False)
        assert (await ask)[5] is None
        handling = ref._cell.handling
        assert (await contextvars.Context().run(ref.ask, ref, block=False))[5] is None
        assert ref._cell.handling is handling, "the context was replaced although nothing was set in it"


@pytest.mark.parametrize("mode", ["actors", "loop"])
def test_in_a_simulation(mode: str) -> None:
    async def scenario(sim: Any) -> None:
        USER.set("ada")
        ref = sim.system.spawn(Coroutine)
        asks = [ref.ask(message, block=False) for message in [("bob",), "who", "who"]]
        assert await asyncio.gather(*asks) == ["bob", "ada", "ada"]

    for seed in range(20):
        simulate(scenario, seed=seed, mode=mode)


class Setting(Actor):
    """Notes what its constructor and ``on_start`` see; sets the variable in both."""

    seen: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.seen.append(USER.get())
        USER.set("constructed")

    def on_start(self) -> None:
        self.seen.append(USER.get())
        USER.set("started")

    def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError
        return USER.get()


class SettingInThread(ThreadedActor):
    use_daemon_thread = True
    seen: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.seen.append(USER.get())
        USER.set("constructed")

    on_start = Setting.on_start
    on_receive = Setting.on_receive


@pytest.mark.parametrize("spawner", [None, "spawner"])
@pytest.mark.parametrize("kind", [Setting, SettingInThread])
async def test_each_life_begins_with_the_variables_of_the_spawner(kind: Any, spawner: Any) -> None:
    kind = type(kind.__name__, (kind,), {"seen": []})
    at_once = Supervision(backoff=Backoff(first=0.0))
    async with ActorSystem() as system:
        token = USER.set(spawner)
        ref = await system.spawn(kind, supervision=at_once)
        USER.reset(token)
        for _ in range(2):
            contextvars.Context().run(ref.tell, "fail")
            assert (
                await contextvars.Context().run(lambda: ref.ask("set", block=False, timeout=30)) == "started"
            )
        assert kind.seen == [spawner, "constructed"] * 3

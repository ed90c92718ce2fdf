"""What an idle actor keeps in memory, of itself and of what it has handled."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import tracemalloc
import weakref
from typing import Any

import pytest
from pykka import ActorDeadError

from actors import Actor, ActorRef, ActorSystem, ThreadedActor
from actors._core.cell import Cell
from actors._core.mailbox import Mailbox
from tests.unit.actors.pools import until
from tests.unit.actors.virtual_time import virtual_system, virtual_time

MANY = 500
MOST_KIB = 3.9
"""Per actor that is idle after one message. ``make bench-actors`` measures resident memory beside it."""


class Value:
    """An object that a reply may be."""


class Plain(Actor):
    def on_receive(self, message: Any) -> Any:
        return Value()


class Coroutine(Actor):
    async def on_receive(self, message: Any) -> Any:
        return Value()


class InThread(ThreadedActor):
    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return Value()


async def test_an_idle_actor_takes_no_more_memory_than_it_may() -> None:
    async with ActorSystem() as system:

        async def idle(count: int) -> list[Any]:
            refs = [system.spawn(Plain) for _ in range(count)]
            for ref in refs:
                await ref.ask("once", block=False)
            gc.collect()
            return refs

        first = await idle(10)  # what all actors share
        assert not tracemalloc.is_tracing()
        tracemalloc.start()
        try:
            refs = await idle(MANY)
            taken = tracemalloc.get_traced_memory()[0] / MANY / 1024
        finally:
            tracemalloc.stop()
        assert taken <= MOST_KIB, f"{taken:.2f} KiB an actor"
        assert all(ref.is_alive() for ref in (*first, *refs))


@pytest.mark.parametrize("kind", [Plain, Coroutine, InThread])
async def test_an_idle_actor_does_not_keep_what_it_has_answered(kind: type[Actor]) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        for _ in range(2):
            value = weakref.ref(await ref.ask("ask", block=False))
            while ref._cell.envelope is not None or not ref._cell.mailbox.asleep:
                await asyncio.sleep(0)
            gc.collect()
            assert value() is None


@virtual_time
async def test_a_message_counts_once_however_long_it_waits_and_runs() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Plain)
        await ref
        times = [0, 0, 1_000_000_000_000]  # sent, begun, ended, in ns: a plain handler of 1,000 s
        clock, ref._cell.clock = ref._cell.clock, lambda: times.pop(0)
        try:
            await ref.ask("slow", block=False)
        finally:
            ref._cell.clock = clock
        assert not times
        found = ref.statistics()
        assert found.processed == found.run.total == found.wait.total == 1
        assert found.run.counts[-1] == 1 and len(found.run.counts) == len(found.wait.counts)
        assert found.run.quantile(0.5) > 500 and found.wait.quantile(0.5) < 1e-5


class Later(Actor):
    """Takes each reply over, and settles it or lets another actor do that."""

    other: Any = None

    def on_receive(self, message: Any) -> Any:
        if message == "forward":
            self.other.forward("once", self.take_reply())
        elif message == "raise":
            self.take_reply()
            raise ValueError
        else:
            self.take_reply().try_set(Value())


class LaterInThread(ThreadedActor):
    use_daemon_thread = True
    other: Any = None
    on_receive = Later.on_receive


@pytest.mark.parametrize("kind", [Later, LaterInThread])
@pytest.mark.parametrize("how", ["set", "forward", "raise"])
async def test_a_reply_taken_over_is_forgotten_when_it_is_settled(kind: type[Actor], how: str) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        kind.other = system.spawn(Plain)  # type: ignore[attr-defined]
        asked = ref.ask(how, block=False)
        with contextlib.suppress(ValueError):
            await asked
        await ref.ask("set", block=False)  # what handled the first one is over
        left = weakref.ref(asked)
        del asked
        gc.collect()
        assert left() is None


async def test_a_pool_forgets_the_replies_of_its_resizes() -> None:
    async with ActorSystem() as system:
        pool = system.spawn_pool(Plain, size=2)
        left = []
        for size in (5, 2, 3, 1):
            resized = pool.resize(size)
            left.append(weakref.ref(resized))
            assert await resized == size
            del resized
        await asyncio.sleep(0)
        gc.collect()
        assert [each() for each in left] == [None] * 4


class Failing(Actor):
    """Fails with groups of exceptions whose tracebacks have the handler's frames."""

    async def on_receive(self, message: Any) -> Any:
        if message == "task group":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.fails())
        try:
            await self.fails()
        except ValueError as cause:
            try:
                raise KeyError from cause
            except KeyError as error:
                raise ExceptionGroup("outer", [ExceptionGroup("inner", [error])]) from cause

    async def fails(self) -> None:
        try:
            raise LookupError(self)
        except LookupError:
            raise ValueError


@pytest.mark.parametrize("how", ["task group", "nested"])
async def test_a_dead_actors_ref_keeps_no_instance_through_groups_of_exceptions(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest keeps records of the log, which have the tracebacks.
    monkeypatch.setattr(logging.getLogger("pykka"), "disabled", True)
    monkeypatch.setattr(logging.getLogger("actors"), "disabled", True)
    async with ActorSystem() as system:
        ref = system.spawn(Failing)
        await ref
        instance = weakref.ref(ref._actor_weakref())
        ref.tell(how)
        while ref.is_alive():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        assert instance() is None
        assert isinstance(ref._cell.error, ExceptionGroup)


SPAWNER: contextvars.ContextVar[Value] = contextvars.ContextVar("spawner")
STARTED: contextvars.ContextVar[Actor] = contextvars.ContextVar("started")


class Starting(Actor):
    def on_start(self) -> None:
        STARTED.set(self)


class StartingInThread(ThreadedActor):
    use_daemon_thread = True
    on_start = Starting.on_start


@pytest.mark.parametrize("kind", [Starting, StartingInThread])
async def test_a_dead_actors_ref_keeps_no_context_variables(kind: type[Actor]) -> None:
    async with ActorSystem() as system:

        async def request() -> tuple[Any, Any, Any]:
            value = Value()
            SPAWNER.set(value)
            ref = system.spawn(kind)
            await ref
            instance = weakref.ref(ref._actor_weakref())
            await ref.stop(block=False)
            return ref, weakref.ref(value), instance

        ref, value, instance = await asyncio.create_task(request())
        assert not ref.is_alive()
        # A thread ends a moment later.
        await until(lambda: gc.collect() >= 0 and value() is None and instance() is None, seconds=5)


@pytest.mark.parametrize("kind", [Plain, Coroutine, InThread])
async def test_a_dead_actor_needs_no_cycle_collector(kind: type[Actor]) -> None:
    """A program that has stopped it, or frozen what it finds, would keep every dead actor."""

    def left() -> int:
        return sum(isinstance(each, (ActorRef, Cell, Mailbox)) for each in gc.get_objects())

    async with ActorSystem() as system:
        gc.collect()
        gc.disable()
        try:
            before = left()
            refs = [system.spawn(kind) for _ in range(20)]
            for ref in refs:
                await ref.ask("work", block=False)
                await ref.stop(block=False)
            assert left() == before + 3 * len(refs)
            del ref, refs
            async with asyncio.timeout(20):
                while left() > before:
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


async def test_a_dead_actors_ref_is_what_it_was() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Plain)
        await ref.ask("work", block=False)
        cell = ref._cell
        await ref.stop(block=False)
        assert cell.ref is ref and cell.mailbox is ref.actor_inbox
        assert ref.statistics().processed == 1
        del ref
        gc.collect()
        again = cell.ref
        assert again is cell.ref and not again.is_alive() and again.path == "/Plain-1"
        with pytest.raises(ActorDeadError, match="not found"):
            again.tell("late")
        with pytest.raises(AttributeError):
            _ = cell.nothing

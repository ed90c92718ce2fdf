"""Messages that are handled inside the ``await`` of their reply, and tasks that stand by for coroutine handlers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from actors import Actor, ActorSystem, Interrupted, Supervision
from actors._core import following
from actors._core.turns import TURN_TIME
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Plain(Actor):
    def on_receive(self, message: Any) -> Any:
        return message


class Coroutine(Actor):
    """Runs the function that it is sent, as its handler."""

    async def on_receive(self, message: Any) -> Any:
        return await message() if callable(message) else message


async def warm(system: ActorSystem, **options: Any) -> Any:
    """Start an actor whose task stands by."""
    ref = system.spawn(Coroutine, **options)
    for number in range(2):  # on_start's turn, then the task's own
        assert await ref.ask(number, block=False) == number
        await asyncio.sleep(0.01)
    assert ref._cell.standby.idle
    return ref


def parked(system: ActorSystem) -> list[asyncio.Task[Any]]:
    """The tasks that stand by."""
    return [cell.standby.task for cell in system.walk() if cell.standby is not None and cell.standby.idle]


def shown() -> list[asyncio.Task[Any]]:
    """Those among all tasks that run handlers."""
    return [task for task in asyncio.all_tasks() if "_follow" in repr(task.get_coro())]


class Turns:
    """Counts the loop's turns."""

    def __init__(self) -> None:
        self.count, self._ended = 0, False
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._turn)

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *args: object) -> None:
        self._ended = True


@virtual_time
@pytest.mark.parametrize("kind", [Plain, Coroutine])
async def test_a_reply_of_an_idle_actor_needs_no_turn_of_the_loop(kind: type[Actor]) -> None:
    # No time passes while the process waits for a processor: it would be over its turn's time.
    async with virtual_system() as system:
        ref = await warm(system) if kind is Coroutine else await system.spawn(Plain)
        with Turns() as turns:
            for number in range(5):
                assert await ref.ask(number, block=False) == number
            assert turns.count == 0
            await asyncio.sleep(0)
            assert turns.count == 1


@virtual_time
@pytest.mark.parametrize("kind", [Plain, Coroutine])
async def test_who_asks_without_a_pause_gives_way_after_a_turns_time(kind: type[Actor]) -> None:
    """Each reading of the clock takes 10 us here, of the 1 ms that a turn may take."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += 10_000
        return now

    async with ActorSystem(clock=clock) as system:
        ref = await warm(system) if kind is Coroutine else await system.spawn(Plain)
        with Turns() as turns:
            seen = 0
            for _ in range(20):
                before = now
                while turns.count == seen:
                    await ref.ask(1, block=False)
                seen = turns.count
                assert now - before <= 3 * TURN_TIME * 1e9


@virtual_time
async def test_an_actor_waits_for_its_turn_behind_others() -> None:
    handled = []

    class Noting(Actor):
        def on_receive(self, message: Any) -> None:
            handled.append(message)

    async with ActorSystem() as system:
        first, second = system.spawn(Noting), system.spawn(Noting)
        await first, await second
        first.tell("told before")
        await second.ask("asked", block=False)
        assert handled == ["told before", "asked"]


@virtual_time
async def test_the_first_step_has_the_handlers_own_task_and_context() -> None:
    async with ActorSystem() as system:
        ref = await warm(system)
        asker = asyncio.current_task()

        async def tasks() -> list[Any]:
            first = asyncio.current_task()
            await asyncio.sleep(0)
            return [first, asyncio.current_task(), ref._cell.task]

        for _ in range(2):
            found = await ref.ask(tasks, block=False)
            assert found[0] is found[1] is found[2] is not asker
            assert asyncio.current_task() is asker


@virtual_time
@pytest.mark.parametrize("pause", [0, 1])
async def test_timeouts_and_task_groups_work_from_the_first_step_on(pause: float) -> None:
    async with ActorSystem() as system:
        ref = await warm(system)

        async def timed() -> str:
            try:
                async with asyncio.timeout(2):
                    await asyncio.sleep(pause)
                    await asyncio.sleep(60)
            except TimeoutError:
                return f"in time, cancelling {asyncio.current_task().cancelling()}"  # type: ignore[union-attr]
            return "never"

        async def grouped() -> Any:
            with pytest.raises(ExceptionGroup) as caught:
                async with asyncio.TaskGroup() as group:
                    group.create_task(failing())
                    await asyncio.sleep(60)
            return str(caught.value.exceptions[0])

        async def failing() -> None:
            await asyncio.sleep(pause)
            raise ValueError("bad")

        for _ in range(2):
            assert await ref.ask(timed, block=False) == "in time, cancelling 0"
            assert await ref.ask(grouped, block=False) == "bad"


@virtual_time
@pytest.mark.parametrize("wait", ["future", "bare", "none"])
async def test_a_handler_that_cancels_itself_in_its_first_step(wait: str) -> None:
    async with ActorSystem() as system:
        ref = await warm(system)

        async def suicidal() -> str:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if wait == "none":
                return "returned"
            try:
                await asyncio.sleep(60 if wait == "future" else 0)
            except asyncio.CancelledError:
                assert task.cancelling() == 1
                raise
            return "not cancelled"

        if wait == "none":
            assert await ref.ask(suicidal, block=False) == "returned"
        else:
            with pytest.raises(Interrupted):
                await ref.ask(suicidal, block=False)
        assert await ref.ask("on", block=False) == "on"
        assert ref.is_alive()


@virtual_time
async def test_a_cancelled_handler_cancels_what_it_waits_for_since_its_first_step() -> None:
    async with ActorSystem() as system:
        ref = await warm(system)
        work = asyncio.ensure_future(asyncio.sleep(60))

        async def waits() -> None:
            await work

        asked = asyncio.ensure_future(ref.ask(waits, block=False).as_coroutine())
        await asyncio.sleep(0.01)
        ref._cell.task.cancel()
        with pytest.raises(Interrupted):
            await asked
        assert work.cancelled()
        assert await ref.ask("on", block=False) == "on"


@virtual_time
@pytest.mark.parametrize("odd", ["no future", "another loop's"])
async def test_a_bad_yield_fails_as_in_a_task(odd: str) -> None:
    other = asyncio.new_event_loop()

    class Odd:
        def __await__(self) -> Any:
            yield 1 if odd == "no future" else other.create_future()

    async def odd_wait() -> None:
        await Odd()

    async with ActorSystem() as system:
        ref = await warm(system)
        with pytest.raises(RuntimeError, match="bad yield"):
            await ref.ask(odd_wait, block=False)
        assert await ref.ask("on", block=False) == "on"
    other.close()


@virtual_time
async def test_errors_and_values_of_what_a_first_step_waits_for_arrive() -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("late")

    async def waits() -> Any:
        with pytest.raises(ValueError, match="late"):
            await asyncio.create_task(fails())
        return await asyncio.wait_for(asyncio.sleep(1, "value"), 5)

    async with ActorSystem() as system:
        ref = await warm(system)
        assert await ref.ask(waits, block=False) == "value"


@virtual_time
async def test_a_task_that_is_cancelled_while_it_stands_by_is_replaced() -> None:
    async with ActorSystem() as system:
        ref = await warm(system)
        (task,) = parked(system)
        task.cancel()
        assert await ref.ask("at once", block=False) == "at once"
        await asyncio.sleep(0.01)
        assert task.cancelled()
        (other,) = parked(system)
        assert other is not task
        assert system.turns.standbys == 1


@virtual_time
async def test_a_life_that_fails_in_a_first_step_takes_its_task_along() -> None:
    async with ActorSystem() as system:
        ref = await warm(system, supervision=Supervision())
        (task,) = parked(system)

        async def fails() -> None:
            raise ValueError("a tell's failure restarts the actor")

        ref.tell(fails)
        await asyncio.sleep(1)
        assert task.done()
        assert not task.cancelled()
        assert ref._cell.restarts == 1
        assert await ref.ask("on", block=False) == "on"


@virtual_time
async def test_a_stopped_actors_task_ends_and_nothing_holds_the_actor() -> None:
    async with ActorSystem() as system:
        refs = [await warm(system) for _ in range(3)]
        assert system.turns.standbys == 3
        life = weakref.ref(refs[0]._cell.actor)
        await refs[0].stop(block=False)
        await asyncio.sleep(0.01)
        gc.collect()
        assert life() is None
        assert system.turns.standbys == len(parked(system)) == 2
    await asyncio.sleep(0.01)
    assert system.turns.standbys == 0


@virtual_time
async def test_an_actor_that_stops_itself_in_a_first_step_stops() -> None:
    class Ending(Coroutine):
        async def on_receive(self, message: Any) -> Any:
            if message == "end":
                self.stop()
            return message

    async with ActorSystem() as system:
        ref = system.spawn(Ending)
        for word in ("a", "b", "end"):
            assert await ref.ask(word, block=False) == word
            await asyncio.sleep(0.01)
        assert not ref.is_alive()
        assert parked(system) == []


@virtual_time
async def test_the_tasks_that_stand_by_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_STANDBYS", 2)
    async with ActorSystem() as system:
        refs = [system.spawn(Coroutine) for _ in range(5)]
        for number in range(3):
            for ref in refs:
                assert await ref.ask(number, block=False) == number
                await asyncio.sleep(0.01)
        assert system.turns.standbys == len(parked(system)) == 2


@virtual_time
async def test_what_one_first_step_sets_the_next_one_does_not_see() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)

    async def counts() -> int:
        variable.set(variable.get() + 1)
        await asyncio.sleep(0)
        return variable.get()

    async with ActorSystem() as system:
        ref = await warm(system)
        assert [await ref.ask(counts, block=False) for _ in range(4)] == [1] * 4


def test_ctrl_c_in_a_first_step_leaves_the_loop_and_the_task_ends() -> None:
    # The interrupt between two handlers: what accounts for the message raises it.
    loop = asyncio.new_event_loop()
    try:
        system = loop.run_until_complete(_started())
        ref = loop.run_until_complete(warm(system))
        task = ref._cell.standby.task

        def interrupt(*args: object) -> None:
            following.account = account
            raise KeyboardInterrupt

        account, following.account = following.account, interrupt
        asked = ref.ask("interrupted", block=False)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.sleep(1))
        assert asked.done()
        loop.run_until_complete(asyncio.sleep(0.01))
        assert task.done()
        assert loop.run_until_complete(ref.ask("on", block=False).as_coroutine()) == "on"
        loop.run_until_complete(system.stop())
    finally:
        loop.close()


async def _started() -> ActorSystem:
    return await ActorSystem().__aenter__()


@virtual_time
async def test_who_waits_for_all_tasks_does_not_wait_for_those_that_stand_by() -> None:
    async with ActorSystem() as system:
        ref = await warm(system)

        async def waits() -> None:
            assert len(shown()) == (asyncio.current_task() in shown())
            await asyncio.sleep(1)
            assert shown() == [asyncio.current_task()]

        assert shown() == []
        for _ in range(2):
            await ref.ask(waits, block=False)
            await asyncio.sleep(0.01)
            assert shown() == []


@virtual_time
async def test_a_handler_that_awaits_its_own_task_fails() -> None:
    async with ActorSystem() as system:
        ref = await warm(system)

        async def awaits_itself() -> None:
            await asyncio.current_task()  # type: ignore[misc]

        with pytest.raises(RuntimeError, match="cannot await on itself"):
            await ref.ask(awaits_itself, block=False)
        assert await ref.ask("on", block=False) == "on"


@virtual_time
async def test_a_cancellation_in_the_first_step_keeps_its_message() -> None:
    async with ActorSystem() as system:
        ref = await warm(system)

        async def cancels(pause: float) -> Any:
            asyncio.current_task().cancel("why")  # type: ignore[union-attr]
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError as error:
                asyncio.current_task().uncancel()  # type: ignore[union-attr]
                return error.args

        for pause in (0, 1):
            assert await ref.ask(lambda pause=pause: cancels(pause), block=False) == ("why",)


@virtual_time
@pytest.mark.parametrize("first", [True, False])
async def test_a_handler_that_ends_with_generator_exit_fails(first: bool) -> None:
    class Odd(Coroutine):
        pass

    async def exits() -> None:
        raise GeneratorExit

    async with ActorSystem() as system:
        ref = (
            system.spawn(Odd, supervision=Supervision())
            if first
            else await warm(system, supervision=Supervision())
        )
        with pytest.raises(GeneratorExit):
            await ref.ask(exits, block=False, timeout=5)


@virtual_time
async def test_tasks_that_ask_side_by_side_get_as_much() -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(Plain)
        asks, over = [0] * 5, False

        async def ask(who: int) -> None:
            while not over:
                await ref.ask(who, block=False)
                asks[who] += 1

        tasks = [asyncio.ensure_future(ask(who)) for who in range(5)]
        for _ in range(300):
            await asyncio.sleep(0)
        begun = list(asks)
        for _ in range(300):
            await asyncio.sleep(0)
        over = True
        await asyncio.gather(*tasks)
        rates = [after - before for after, before in zip(asks, begun, strict=True)]
        assert min(rates) > 0.8 * max(rates), rates


@virtual_time
@pytest.mark.parametrize("kind", [Plain, Coroutine])
@pytest.mark.parametrize("how", ["tell", "ask", "await"])
async def test_a_sender_at_its_recursion_limit_harms_no_actor(kind: type[Actor], how: str) -> None:
    async with ActorSystem() as system:
        ref = await warm(system) if kind is Coroutine else await system.spawn(Plain)

        async def deep(left: int) -> None:
            if left:
                await deep(left - 1)
            elif how == "tell":
                ref.tell("message")
            elif how == "ask":
                ref.ask("message", block=False)
            else:
                await ref.ask("message", block=False)

        limit = sys.getrecursionlimit()
        for left in range(limit - 150, limit):
            with contextlib.suppress(RecursionError):
                await asyncio.create_task(deep(left))
            assert await ref.ask("on", block=False, timeout=5) == "on", left


def test_ctrl_c_in_a_handler_leaves_the_loop_before_the_asker_goes_on() -> None:
    class Interrupting(Actor):
        def on_receive(self, message: Any) -> Any:
            if message == "ctrl-c":
                raise KeyboardInterrupt
            return message

    async def main() -> None:
        async with ActorSystem() as system:
            ref = await system.spawn(Interrupting)
            for message in ("warm", "ctrl-c"):
                await ref.ask(message, block=False)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())

"""Regressions: defects once found in this runtime, each tested by its visible effect."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorRegistry,
    ActorStarted,
    ActorStopped,
    ActorSystem,
    AskCycle,
    Backoff,
    DeadLetter,
    Future,
    Piped,
    Supervision,
    Terminated,
    ThreadedActor,
    Wait,
    WouldDeadlock,
)
from tests.unit.actors.virtual_time import virtual_time


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        return message


@virtual_time
async def test_a_stop_whose_wait_was_cancelled_goes_on() -> None:
    gate = asyncio.Event()

    class Busy(Actor):
        async def on_receive(self, message: Any) -> None:
            await gate.wait()

    async with ActorSystem() as system:
        ref = system.spawn(Busy)
        ref.tell("work")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ref.stop(block=False)
        gate.set()
        await asyncio.sleep(0.01)
        assert not ref.is_alive()


async def test_senders_that_wait_for_room_are_not_overtaken() -> None:
    class Slow(Actor):
        mailbox_capacity = 1

        def __init__(self, seen: list[Any]) -> None:
            super().__init__()
            self.seen = seen

        async def on_receive(self, message: Any) -> None:
            self.seen.append(message)
            await asyncio.sleep(0)

    seen: list[Any] = []
    async with ActorSystem() as system:
        ref = system.spawn(Slow, seen)

        async def sender(name: str) -> None:
            for number in range(50):
                await ref.send((name, number))

        await asyncio.gather(*(sender(name) for name in "abc"))
        await ref.stop(block=False)
    for name in "abc":
        assert [number for who, number in seen if who == name] == list(range(50))
    assert seen.index(("c", 5)) < seen.index(("a", 8)), "taken in turn"


async def test_stashed_timers_and_terminations_come_back() -> None:
    got: list[Any] = []

    class Stashing(Actor):
        def on_start(self) -> None:
            self.set_timer("t", 0.0, "tick")
            self.watch(self.spawn(Echo, name="child"))

        def on_receive(self, message: Any) -> Any:
            if message == "open":
                self.become(got.append)
                self.unstash_all()
            else:
                self.stash()

    async with ActorSystem() as system:
        ref = system.spawn(Stashing, name="s")
        child = system.lookup("/s/child")
        while child is None:
            await asyncio.sleep(0)
            child = system.lookup("/s/child")
        await child.stop(block=False)
        while ref.statistics().mailbox.stashed < 2:
            await asyncio.sleep(0.001)
        ref.tell("open")
        await ref.stop(block=False)
    assert len(got) == 2 and {type(each) for each in got} == {str, Terminated}


async def test_a_message_is_stashed_once() -> None:
    class Twice(Actor):
        def on_receive(self, message: Any) -> None:
            self.stash()
            self.stash()

    async with ActorSystem() as system:
        ref = system.spawn(Twice)
        with pytest.raises(ValueError, match="already"):
            await ref.ask("x", block=False)


async def test_an_error_after_the_reply_was_taken_reaches_the_asker() -> None:
    class Taking(Actor):
        def on_receive(self, message: Any) -> None:
            self.take_reply()
            raise ValueError("too late")

    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="too late"):
            await asyncio.wait_for(_reply(system.spawn(Taking), "x"), 30)


async def _reply(ref: Any, message: Any) -> Any:
    return await ref.ask(message, block=False)


async def test_a_child_spawned_by_the_last_hook_is_stopped_too() -> None:
    class Late(Actor):
        def on_stop(self) -> None:
            self.system.spawn(Echo, name="late")

    system = ActorSystem()
    await system.spawn(Late)
    assert (await system.stop(5)).clean
    assert system.paths() == []


def test_actors_of_a_closed_loop_are_dead_and_nothing_hangs() -> None:
    refs: list[Any] = []

    async def main() -> None:
        refs.append(await Echo.start())

    for _ in range(3):
        asyncio.run(main())
    ActorRegistry.stop_all(timeout=5)
    with pytest.raises(ActorDeadError):
        refs[0].ask("x", timeout=5)
    assert not set(refs) & set(ActorRegistry.get_all())
    assert not any(ref.is_alive() for ref in refs)


def test_spawning_on_a_closed_loop_leaves_no_actor_behind() -> None:
    async def main() -> ActorSystem:
        return ActorSystem()

    system = asyncio.run(main())
    with pytest.raises(RuntimeError, match="closed"):
        system.spawn(Echo)
    assert system.paths() == []


async def test_subscriptions_of_one_function_end_one_by_one() -> None:
    heard: list[Any] = []
    async with ActorSystem() as system:
        end = system.events.subscribe(heard.append, DeadLetter, ActorStarted)
        system.events.subscribe(heard.append, ActorStopped)
        end()
        ref = await system.spawn(Echo)
        await ref.stop(block=False)
    assert [type(event) for event in heard] == [ActorStopped]


async def test_piping_cancelled_work_delivers_the_cancellation() -> None:
    got: list[Any] = []

    class Piping(Actor):
        def on_start(self) -> None:
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            self.pipe_to_self(cancelled, tag="c")

        def on_receive(self, message: Any) -> None:
            got.append(message)

    async with ActorSystem() as system:
        system.spawn(Piping)
        while not got:
            await asyncio.sleep(0)
    assert isinstance(got[0], Piped) and isinstance(got[0].error, asyncio.CancelledError)


async def test_a_refused_wait_for_room_delivers_nothing() -> None:
    seen: list[Any] = []
    errors: list[Any] = []

    class Filling(ThreadedActor):
        use_daemon_thread = True
        mailbox_capacity = 1
        overflow = Wait()

        def on_receive(self, message: Any) -> None:
            seen.append(message)
            if message == "go":
                self.actor_ref.tell("one")
                try:
                    self.actor_ref.tell("two")
                except AskCycle as error:
                    errors.append(error)

    async with ActorSystem() as system:
        ref = system.spawn(Filling)
        ref.tell("go")
        while "one" not in seen:
            await asyncio.sleep(0.001)
        await ref.stop(block=False)
    assert seen == ["go", "one"] and len(errors) == 1


async def test_a_stop_that_its_own_actor_awaits_is_accepted() -> None:
    class Leaving(Actor):
        async def on_receive(self, message: Any) -> str:
            with pytest.raises(AskCycle):
                await self.actor_ref.stop(block=False)
            return "stops"

    async with ActorSystem() as system:
        ref = await system.spawn(Leaving)
        assert await ref.ask("leave", block=False) == "stops"
        async with asyncio.timeout(5):
            while ref.is_alive():
                await asyncio.sleep(0)


async def test_a_mailbox_capacity_below_one_is_refused() -> None:
    class Roomless(Echo):
        mailbox_capacity = 0

    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="one message at least"):
            system.spawn(Roomless)


async def test_assigning_through_a_proxy_names_set_attr_as_the_remedy() -> None:
    async with ActorSystem() as system:
        proxy = system.spawn(Echo).proxy()
        with pytest.raises(WouldDeadlock, match=r"await proxy.set_attr\('x', value\)"):
            proxy.x = 1


async def test_a_replaced_on_receive_takes_effect_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        assert await ref.ask(1, block=False) == 1
        monkeypatch.setattr(Echo, "on_receive", lambda _self, message: message + 1)
        assert await ref.ask(1, block=False) == 2


async def test_ask_and_stop_race_from_many_threads() -> None:
    async with ActorSystem() as system:
        for _ in range(50):
            ref = system.spawn(Echo)
            threads = [
                threading.Thread(target=lambda ref=ref: [ref.ask(n, block=False) for n in range(50)])
                for _ in range(2)
            ]
            replies: list[Any] = []
            for thread in threads:
                thread.start()
            replies.extend(ref.ask(n, block=False) for n in range(50))
            ref.stop(block=False)
            for thread in threads:
                await asyncio.to_thread(thread.join)
            for reply in replies:
                try:
                    async with asyncio.timeout(30):
                        await reply
                except ActorDeadError:
                    continue


@virtual_time
async def test_a_handler_that_outlives_its_life_answers_nobody_else() -> None:
    class Lingering(Actor):
        async def on_receive(self, message: Any) -> Any:
            if message == "first":
                self.start_task(_fail_soon())
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.02)
                    return "the first one's answer"
            await asyncio.sleep(0.05)
            return message

    soon = Supervision(backoff=Backoff(first=0.001, most=0.001))
    async with ActorSystem() as system:
        ref = system.spawn(Lingering, supervision=soon)
        first = ref.ask("first", block=False)
        second = ref.ask("second", block=False)
        with pytest.raises(ActorDeadError):
            async with asyncio.timeout(30):
                await first
        assert await second == "second"


async def _fail_soon() -> None:
    await asyncio.sleep(0)
    raise OSError("beside the mailbox")


@pytest.mark.parametrize("passes", range(6))
async def test_an_ask_is_answered_when_the_life_ends_before_its_handler_ran(passes: int) -> None:
    class Failing(Actor):
        def on_start(self) -> None:
            self.start_task(self._fail())

        async def _fail(self) -> None:
            for _ in range(passes):
                await asyncio.sleep(0)
            raise OSError("beside the mailbox")

        async def on_receive(self, message: Any) -> Any:
            return message

    async with ActorSystem() as system:
        ref = system.spawn(Failing)
        replies = [ref.ask(number, block=False) for number in range(300)]
        for number, reply in enumerate(replies):
            try:
                async with asyncio.timeout(30):
                    assert await reply == number
            except ActorDeadError:
                continue


async def test_a_timed_asks_timer_ends_with_the_reply() -> None:
    class Echo(Actor):
        def on_receive(self, message: Any) -> Any:
            return message

    loop = asyncio.get_running_loop()
    async with ActorSystem() as system:
        echo = system.spawn(Echo)
        before = sum(not timer.cancelled() for timer in loop._scheduled)  # type: ignore[attr-defined]
        for number in range(50):
            assert await echo.ask(number, block=False, timeout=3600) == number
        after = sum(not timer.cancelled() for timer in loop._scheduled)  # type: ignore[attr-defined]
        assert after == before


async def test_a_message_held_back_until_its_actor_is_dead_is_a_dead_letter() -> None:
    async with ActorSystem() as system:
        letters: list[DeadLetter] = []
        system.events.subscribe(letters.append, DeadLetter)
        ref = system.spawn(Actor)
        await ref.stop(block=False)
        reply: Future[Any] = Future()
        ref.actor_inbox.deliver(("late", reply, 0, None, None, None))
        assert [letter.message for letter in letters] == ["late"]
        assert isinstance(reply.exception(), ActorDeadError)
        assert ref.statistics().mailbox.dropped == 0


async def test_patterns_stay_within_a_part_of_the_path() -> None:
    class Parent(Actor):
        def on_start(self) -> None:
            self.spawn(Actor, name="orders.3")

    async with ActorSystem() as system:
        await system.spawn(Parent, name="g1")
        await system.spawn(Parent, name="g2")

        def found(pattern: str) -> list[str]:
            return [ref.path for ref in system.find(pattern)]

        assert found("/*") == ["/g1", "/g2"]
        assert found("/*/orders.?") == ["/g1/orders.3", "/g2/orders.3"]
        assert found("/g[!1]/*") == ["/g2/orders.3"]
        assert found("/**") == ["/g1", "/g1/orders.3", "/g2", "/g2/orders.3"]
        assert found("/g1.") == []


@virtual_time
async def test_a_dump_shows_where_a_handler_waits() -> None:
    class Waiting(Actor):
        async def on_receive(self, message: Any) -> None:
            await self.inner(message)

        async def inner(self, gate: asyncio.Event) -> None:
            await gate.wait()

    async with ActorSystem() as system:
        gate = asyncio.Event()
        done = system.spawn(Waiting).ask(gate, block=False)
        await asyncio.sleep(0.01)
        assert "in inner" in system.dump()
        gate.set()
        await done


@pytest.mark.parametrize("kind", [Actor, ThreadedActor])
@pytest.mark.parametrize("early", [True, False])
async def test_an_actor_that_is_stopped_beside_its_constructor_leaves_nothing_behind(
    kind: type[Any], early: bool
) -> None:
    constructing, stopped = threading.Event(), threading.Event()

    class Slow(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            if early:
                self.begin()
            constructing.set()
            assert stopped.wait(30)
            if not early:
                self.begin()

        def begin(self) -> None:
            super().__init__()
            if early:
                self.spawn(Echo)
            self.start_task(background())

    system = ActorSystem(registered=True)
    spawning = asyncio.create_task(asyncio.to_thread(system.spawn, Slow))
    assert await asyncio.to_thread(constructing.wait, 30)
    try:
        async with asyncio.timeout(30):
            assert (await system.stop()).clean
    finally:
        stopped.set()
    ref = await spawning
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ref.is_alive() and ref not in ActorRegistry.get_all()
    assert not any(map(_is_background, asyncio.all_tasks()))


async def background() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("kind", [Actor, ThreadedActor])
@pytest.mark.parametrize("early", [True, False])
async def test_a_task_that_a_constructor_in_a_thread_begins_does_not_outlive_its_failure(
    kind: type[Any], early: bool
) -> None:
    """Early: the constructor has failed before the task reaches the loop."""
    begun, failures = threading.Event(), []

    class Broken(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.start_task(background())
            if not early:
                assert begun.wait(30)
            raise OSError("broken")

    def spawn() -> None:
        try:
            system.spawn(Broken)
        except OSError as error:
            failures.append(error)

    system = ActorSystem()
    thread = threading.Thread(target=spawn)
    thread.start()
    if early:
        thread.join(30)  # the loop is busy meanwhile
    while thread.is_alive():
        if any(map(_is_background, asyncio.all_tasks())):
            begun.set()
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert failures and system.paths() == []
    assert not any(map(_is_background, asyncio.all_tasks())), "the task of an actor that does not exist"
    assert (await system.stop()).clean


def _is_background(task: asyncio.Task[Any]) -> bool:
    coroutine = task.get_coro()
    return coroutine is not None and coroutine.__name__ == background.__name__

"""The loop under the actors: closed, moved to another thread, forked away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorSystem,
    Backoff,
    Strategy,
    Supervision,
    Terminated,
    ThreadedActor,
)
from tests.alone import run_alone


class Echo(Actor):
    async def on_receive(self, message: Any) -> Any:
        if message == "wait":
            await asyncio.sleep(3600)
        if message == "later":
            self.take_reply()
        return message


class EchoInThread(ThreadedActor):
    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


def asking(ref: Any, message: Any, outcomes: list[Any], asked: threading.Event) -> threading.Thread:
    """Start a thread that is blocked in an ask."""

    def ask() -> None:
        future = ref.ask(message, block=False)
        asked.set()
        try:
            outcomes.append(future.get(timeout=20))
        except BaseException as error:
            outcomes.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("messages", [("wait",), ("wait", "queued"), ("later",)])
def test_a_loop_closed_under_actors_fails_asks_and_ends_them(messages: tuple[str, ...]) -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    refs: list[Any] = []

    async def main() -> None:
        refs.append(await ActorSystem("closed").spawn(Echo, name="echo"))

    loop.run_until_complete(main())
    [ref] = refs
    outcomes: list[Any] = []
    threads = []
    for message in messages:
        asked = threading.Event()
        threads.append(asking(ref, message, outcomes, asked))
        assert asked.wait(20)
    loop.run_until_complete(asyncio.sleep(0.05))
    tasks = asyncio.all_tasks(loop)
    loop.close()
    for thread in threads:
        thread.join(30)
    assert len(outcomes) == len(messages)
    assert all(isinstance(outcome, ActorDeadError) for outcome in outcomes), outcomes
    assert "closed" in str(outcomes[0].__cause__)
    assert not ref.is_alive() and ref.actor_stopped.wait(0)
    with pytest.raises(ActorDeadError):
        ref.tell("anybody?")
    with pytest.raises(ActorDeadError):
        ref.ask("anybody?", timeout=5)
    assert ref.stop(timeout=5) is False
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_closed_in_a_restart_of_several_actors_ends_all_of_them() -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    refs: list[Any] = []

    class Slow(Echo):
        async def after_restart(self, _: BaseException) -> None:  # type: ignore[override]
            loop.stop()
            await asyncio.sleep(3600)

        async def on_receive(self, message: Any) -> Any:
            raise OSError

    async def main() -> None:
        system = ActorSystem("closed")
        together = Supervision(strategy=Strategy.ONE_FOR_ALL, backoff=Backoff(first=0.001, most=0.001))
        for _ in range(2):
            refs.append(await system.spawn(Slow, supervision=together))
        refs[0].tell("fail")

    begun = loop.create_task(main())
    loop.run_forever()
    loop.close()
    assert begun.done()
    assert not any(ref.is_alive() for ref in refs)


@pytest.mark.parametrize("kind", [Echo, EchoInThread])
async def test_watchers_in_other_systems_hear_of_a_loop_that_was_closed(kind: type[Actor]) -> None:
    heard: asyncio.Future[Terminated] = asyncio.get_running_loop().create_future()

    class Watcher(Actor):
        def on_receive(self, message: Any) -> Any:
            if isinstance(message, Terminated):
                heard.set_result(message)
            else:
                self.watch(message)

    async def main() -> Any:
        return await ActorSystem("other").spawn(kind)

    async with ActorSystem() as system:
        loop = asyncio.new_event_loop()
        ref = await asyncio.to_thread(loop.run_until_complete, main())
        await system.spawn(Watcher).ask(ref, block=False)
        await asyncio.to_thread(loop.close)
        terminated = await asyncio.wait_for(heard, 20)
        assert terminated.ref is ref and "closed" in str(terminated.error)


@pytest.mark.parametrize("noticed", [True, False])
def test_a_system_whose_loop_was_closed_stops_on_another_loop(noticed: bool) -> None:
    async def make() -> ActorSystem:
        system = ActorSystem()
        await system.spawn(Echo)
        return system

    loop = asyncio.new_event_loop()
    system = loop.run_until_complete(make())
    if noticed:
        loop.close()
    else:
        type(loop).close(loop)  # as of a loop whose methods cannot be replaced
    assert asyncio.run(system.stop()).clean
    assert not system.children


def test_a_loop_set_up_in_one_thread_and_run_in_another_answers_both() -> None:
    loop = asyncio.new_event_loop()
    made: list[Any] = []

    async def main() -> None:
        made.append(ActorSystem("moved"))
        made.append(await made[0].spawn(Echo))

    loop.run_until_complete(main())
    system, ref = made
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        for number in range(50):
            assert ref.ask(number, timeout=20) == number
        answers: list[Any] = []
        other = asking(ref, "other", answers, threading.Event())
        other.join(30)
        assert answers == ["other"]
        assert asyncio.run_coroutine_threadsafe(system.stop(), loop).result(20).clean
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


FORK = """
import os, sys
from actors import Actor, ActorDeadError, ActorRegistry, ThreadedActor

class Echo(Actor):
    def on_receive(self, message):
        return message, os.getpid()

class Threaded(ThreadedActor):
    def on_receive(self, message):
        return message, os.getpid()

old = Echo.start()
assert old.ask(1, timeout=20) == (1, os.getpid())
child = os.fork()
if child == 0:
    code = 1
    try:
        assert not old.is_alive() and old not in ActorRegistry.get_all()
        try:
            old.ask(1, timeout=20)
        except ActorDeadError:
            pass
        for kind in (Echo, Threaded):
            new = kind.start()
            assert new.ask(2, timeout=20) == (2, os.getpid())
            new.stop(timeout=20)
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert old.ask(3, timeout=20) == (3, os.getpid())
old.stop(timeout=20)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_after_a_fork_the_child_has_actors_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


FORK_IN_A_HANDLER = """
import concurrent.futures, multiprocessing, os
from actors import Actor, ActorRegistry, ThreadedActor

class Echo(Actor):
    def on_receive(self, message):
        return message, os.getpid()

class Threaded(ThreadedActor):
    def on_receive(self, message):
        return message, os.getpid()

def job():
    for kind in (Echo, Threaded):
        new = kind.start()
        assert new.ask(2, timeout=20) == (2, os.getpid())
        assert new.stop(timeout=20)
    return "done"

class Forking(ThreadedActor):
    use_daemon_thread = True

    def on_receive(self, message):
        return getattr(self, message)()

    def pool(self):
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            return pool.submit(job).result()

    def process(self):
        child = multiprocessing.get_context("fork").Process(target=job)
        child.start()
        child.join()
        return "done" if child.exitcode == 0 else child.exitcode

    def fork(self):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                job()
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return "done" if code == 0 else code

old = Forking.start()
for how in ("pool", "process", "fork"):
    assert old.ask(how, timeout=60) == "done", how
assert Echo.start().ask(3, timeout=20) == (3, os.getpid()), "the parent's system is as it was"
assert ActorRegistry.stop_all(timeout=20)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_child_of_a_fork_in_a_handler_has_actors_of_its_own() -> None:
    done = run_alone(FORK_IN_A_HANDLER)
    assert done.returncode == 0, done.stderr


FORK_ON_THE_LOOP = """
import asyncio, os
from actors import Actor, ActorDeadError, ActorSystem

class Echo(Actor):
    def on_receive(self, message):
        return message

async def main():
    async with ActorSystem() as system:
        ref = await system.spawn(Echo)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert not ref.is_alive()
                try:
                    ref.tell(1)
                except ActorDeadError:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert await ref.ask(1, block=False) == 1

asyncio.run(main())

loop = asyncio.new_event_loop()
async def start():
    return ActorSystem().spawn(Echo)
async def ask():
    return await ref.ask(2, block=False)
ref = loop.run_until_complete(start())
child = os.fork()
if child == 0:
    os._exit(0 if ref.is_alive() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a loop that does not run may begin to"
assert loop.run_until_complete(ask()) == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_after_a_fork_on_the_loops_own_thread_its_actors_are_dead_in_the_child() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK_ON_THE_LOOP], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


ABANDONED = """
import asyncio
from actors import Actor, ActorSystem

class Leaf(Actor):
    async def on_receive(self, message):
        await asyncio.Event().wait()

    async def on_stop(self):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            raise

class Inner(Leaf):
    def __init__(self, depth):
        super().__init__()
        self.below = [self.spawn(Inner, depth - 1) if depth else self.spawn(Leaf) for _ in range(2)]

async def main(system_timeout, busy, again):
    system = ActorSystem(stop_grace=0.01)
    top = system.spawn(Inner, 3)
    for ref in (top, *top._cell.actor.below) if busy else ():
        ref.tell("wait")
    await asyncio.sleep(0)
    assert not (await system.stop(system_timeout)).clean
    if again:
        waiting.append(asyncio.ensure_future(system.stop(60)))
        await asyncio.sleep(0)

waiting = []
for busy in (False, True):
    for again in (False, True):
        for _ in range(3):
            asyncio.run(main(0.02, busy, again))
print("done")
"""


@pytest.mark.slow
def test_a_stop_that_the_loop_does_not_see_the_end_of_is_abandoned_without_a_crash() -> None:
    done = run_alone(ABANDONED)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]


def test_who_awaits_in_another_loop_of_the_same_thread_does_not_run_the_actor_there() -> None:
    """The system's loop has run in this thread, and is to go on in another one, which is not awake yet."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    class Where(Actor):
        def on_receive(self, message: Any) -> Any:
            return asyncio.get_running_loop()

    async def make() -> tuple[ActorSystem, Any]:
        system = ActorSystem()
        ref = await system.spawn(Where)
        await turns()
        return system, ref

    async def turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def begin(future: Any) -> Any:
        task = asyncio.ensure_future(future.as_coroutine())
        await turns()
        return task

    system, ref = first.run_until_complete(make())
    asked = ref.ask("where?", block=False)
    task = second.run_until_complete(begin(asked))
    assert not asked.done(), "the actor has run in another loop"
    first.run_until_complete(turns())
    assert second.run_until_complete(task) is first
    assert first.run_until_complete(system.stop()).clean
    first.close()
    second.close()


HOOK_AT_THE_END = """
import asyncio
from actors import Actor, ActorSystem

class Failing(Actor):
    async def on_receive(self, message):
        await asyncio.sleep(100)

    async def on_failure(self, *failure):
        await asyncio.sleep(100)

async def main():
    system = ActorSystem()
    system.spawn(Failing).tell(1)
    await asyncio.sleep(0.05)

asyncio.run(main())
"""


def test_a_program_that_ends_in_the_middle_of_its_actors_has_no_pending_tasks_to_report() -> None:
    done = run_alone(HOOK_AT_THE_END)
    assert done.returncode == 0 and "Task was destroyed" not in done.stderr, done.stderr

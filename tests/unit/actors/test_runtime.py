"""The runtime: asks, mailboxes, supervision, stop order, timers."""

from __future__ import annotations

import asyncio
import gc
import pickle
import random
import subprocess
import sys
import threading
import time
from typing import Any

import pykka
import pytest

from actors import (
    ESCALATE,
    Actor,
    ActorDeadError,
    ActorSystem,
    Backoff,
    Directive,
    Escalated,
    Future,
    Intensity,
    MailboxFull,
    Supervision,
    WouldDeadlock,
)
from tests.unit.actors.virtual_time import virtual_time

QUICK = Supervision(backoff=Backoff(first=0.001, most=0.002))


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message


class Slow(Actor):
    """Holds each message until the gate opens."""

    def __init__(self, gate: asyncio.Event, handled: list[Any]) -> None:
        super().__init__()
        self.gate, self.handled = gate, handled

    async def on_receive(self, message: Any) -> Any:
        self.handled.append(message)
        await self.gate.wait()
        return message


async def test_it_is_a_pykka_actor() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo, name="echo")
        assert issubclass(Echo, pykka.Actor) and isinstance(ref, pykka.ActorRef)
        future = ref.ask("hello", block=False)
        assert isinstance(future, pykka.Future)
        assert await future == "hello"
        assert ref.path == "/echo" and system.paths() == ["/echo"]


async def test_order_per_sender_and_sync_and_async_handlers() -> None:
    gate, handled = asyncio.Event(), []
    gate.set()
    async with ActorSystem() as system:
        ref = system.spawn(Slow, gate, handled)
        for number in range(200):
            ref.tell(number)
        assert await ref.ask("last", block=False) == "last"
    assert handled == [*range(200), "last"]


async def test_the_error_of_an_ask_goes_to_the_asker_and_the_actor_lives() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        with pytest.raises(ValueError, match="mine"):
            await ref.ask(ValueError("mine"), block=False)
        assert await ref.ask(1, block=False) == 1


async def test_system_exit_in_an_ask_answers_the_asker() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        with pytest.raises(SystemExit):
            await ref.ask(SystemExit(3), block=False)


async def test_blocking_calls_on_the_loop_name_the_remedy() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        with pytest.raises(WouldDeadlock, match="await"):
            ref.ask(1)
        with pytest.raises(WouldDeadlock, match="await"):
            ref.stop()
        with pytest.raises(WouldDeadlock, match="await"):
            ref.ask(1, block=False).get()


def test_blocking_calls_work_in_a_thread() -> None:
    ref = Echo.start()
    assert ref.ask(5, timeout=5) == 5
    assert ref in pykka.ActorRegistry.get_all()
    assert ref.stop(timeout=5) is True
    assert ref.stop(timeout=5) is False
    assert ref not in pykka.ActorRegistry.get_all()
    with pytest.raises(ActorDeadError):
        ref.tell(1)


async def test_awaiting_does_not_block_the_loop() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    gate = asyncio.Event()
    async with ActorSystem() as system:
        ref = system.spawn(Slow, gate, [])
        ticker = asyncio.create_task(tick())
        waiting = asyncio.create_task(_await(ref.ask(1, block=False)))
        while ticks < 100:
            await asyncio.sleep(0)
        gate.set()
        assert await waiting == 1
        ticker.cancel()


async def _await(future: Future[Any]) -> Any:
    return await future


async def test_a_future_can_be_awaited_on_another_loop() -> None:
    async with ActorSystem() as system:
        gate = asyncio.Event()
        ref = system.spawn(Slow, gate, [])
        future = ref.ask("x", block=False)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(_await(future))))
        thread.start()
        gate.set()
        await asyncio.to_thread(thread.join, 10)
    assert found == ["x"]


async def test_a_cancelled_ask_that_has_not_begun_is_not_executed() -> None:
    gate, handled = asyncio.Event(), []
    async with ActorSystem() as system:
        ref = system.spawn(Slow, gate, handled)
        first = ref.ask("first", block=False)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ref.ask("second", block=False)
        gate.set()
        assert await first == "first"
        assert await ref.ask("third", block=False) == "third"
    assert handled == ["first", "third"]


async def test_a_full_mailbox_refuses_and_the_urgent_lane_works() -> None:
    gate, handled = asyncio.Event(), []

    class Small(Slow):
        mailbox_capacity = 3

    async with ActorSystem() as system:
        ref = system.spawn(Small, gate, handled)
        ref.tell("busy")
        while not handled:
            await asyncio.sleep(0)
        for number in range(3):
            ref.tell(number)
        with pytest.raises(MailboxFull):
            ref.tell("one too many")
        with pytest.raises(MailboxFull):
            await ref.ask("one too many", block=False)
        ref.tell("urgent", urgent=True)
        gate.set()
        stopped = ref.stop(block=False)
        assert await stopped is True
    assert handled == ["busy", "urgent", 0, 1, 2]


async def test_an_ask_that_races_stop_always_resolves() -> None:
    async with ActorSystem() as system:
        for _ in range(300):
            ref = system.spawn(Echo)
            replies: list[Future[Any]] = []

            def ask_on(ref: Any = ref, replies: list[Future[Any]] = replies) -> None:
                for number in range(20):
                    replies.append(ref.ask(number, block=False))

            thread = threading.Thread(target=ask_on)
            thread.start()
            ref.stop(block=False)
            await asyncio.to_thread(thread.join)
            for reply in replies:
                try:
                    async with asyncio.timeout(30):
                        await reply
                except ActorDeadError:
                    continue


async def test_messages_before_stop_are_handled_those_after_are_refused() -> None:
    gate, handled = asyncio.Event(), []
    async with ActorSystem() as system:
        ref = system.spawn(Slow, gate, handled)
        before = ref.ask("before", block=False)
        ref.stop(block=False)
        after = ref.ask("after", block=False)
        gate.set()
        assert await before == "before"
        with pytest.raises(ActorDeadError):
            await after


class Fragile(Actor):
    lives = 0
    log: list[str]

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        type(self).lives += 1
        self.log = log
        self.count = 0

    def on_start(self) -> None:
        self.log.append("start")

    def on_failure(self, *exc_info: Any) -> None:
        self.log.append(f"failure {exc_info[1]}")

    def on_stop(self) -> None:
        self.log.append("stop")

    def on_receive(self, message: Any) -> Any:
        if message == "boom":
            raise RuntimeError("boom")
        self.count += 1
        return self.count


class Parent(Actor):
    supervision = QUICK

    def __init__(self, *children: Any, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.specs = children
        self.refs: list[Any] = []
        self.gone: list[str] = []

    def on_start(self) -> None:
        for number, (kind, *args) in enumerate(self.specs):
            self.refs.append(self.spawn(kind, *args, name=f"c{number}"))

    def on_receive(self, message: Any) -> Any:
        return self.refs if message == "refs" else self.gone

    def on_child_stopped(self, ref: Any) -> None:
        self.gone.append(ref.path)


async def test_a_restart_keeps_ref_and_mailbox_and_loses_state() -> None:
    log: list[str] = []
    async with ActorSystem() as system:
        parent = system.spawn(Parent, (Fragile, log), name="p")
        [child] = await parent.ask("refs", block=False)
        assert await child.ask("count", block=False) == 1
        child.tell("boom")
        replies = [child.ask("count", block=False) for _ in range(3)]
        assert [await reply for reply in replies] == [1, 2, 3]
        assert child.path == "/p/c0" and child.is_alive()
    assert log == ["start", "failure boom", "start", "stop"]


async def test_one_for_one_leaves_siblings_alone() -> None:
    first, second = [], []
    async with ActorSystem() as system:
        parent = system.spawn(Parent, (Fragile, first), (Fragile, second))
        one, two = await parent.ask("refs", block=False)
        assert await two.ask("count", block=False) == 1
        one.tell("boom")
        await one.ask("count", block=False)
        assert await two.ask("count", block=False) == 2
    assert second == ["start", "stop"]


async def test_too_many_restarts_escalate_to_the_system() -> None:
    class Stubborn(Parent):
        supervision = Supervision(
            intensity=Intensity(restarts=2, window=60), backoff=Backoff(first=0.001, most=0.001)
        )

    log: list[str] = []
    async with ActorSystem() as system:
        parent = system.spawn(Stubborn, (Fragile, log), name="p", supervision=ESCALATE)
        [child] = await parent.ask("refs", block=False)
        for _ in range(3):
            child.tell("boom")
        failure = await asyncio.wait_for(asyncio.shield(system.failure), 30)
        assert isinstance(failure, Escalated) and failure.path == "/p"
        copy = pickle.loads(pickle.dumps(failure))
        assert (str(copy), copy.path) == (str(failure), "/p"), "a worker process's failure travels"
        assert isinstance(failure.__cause__, Escalated) and failure.__cause__.path == "/p/c0"
        assert isinstance(failure.__cause__.__cause__, RuntimeError)
        assert not child.is_alive() and not parent.is_alive()
    assert log.count("start") == 3


async def test_directives_and_a_policy_that_fails() -> None:
    def decide(error: BaseException) -> Directive:
        if str(error) == "boom":
            return Directive.STOP
        raise LookupError("bad policy")

    class Stopping(Parent):
        supervision = Supervision(decide=decide)

    async with ActorSystem() as system:
        parent = system.spawn(Stopping, (Fragile, []), name="p")
        [child] = await parent.ask("refs", block=False)
        child.tell("boom")
        while child.is_alive():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await parent.ask("gone", block=False) == ["/p/c0"]


async def test_a_failure_in_on_start_is_supervised() -> None:
    attempts: list[int] = []

    class Late(Actor):
        def on_start(self) -> None:
            attempts.append(1)
            if len(attempts) < 3:
                raise OSError("not yet")

        def on_receive(self, message: Any) -> Any:
            return "up"

    async with ActorSystem() as system:
        parent = system.spawn(Parent, (Late,))
        [child] = await parent.ask("refs", block=False)
        assert await child.ask("?", block=False) == "up"
    assert len(attempts) == 3


@virtual_time
async def test_children_stop_first_and_youngest_first() -> None:
    order: list[str] = []

    class Noting(Actor):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        async def on_stop(self) -> None:
            await asyncio.sleep(0)
            order.append(self.name)

    class Root(Parent):
        def on_stop(self) -> None:
            order.append("root")

    system = ActorSystem()
    system.spawn(Root, (Noting, "a"), (Noting, "b"), (Noting, "c"))
    await asyncio.sleep(0.01)
    assert (await system.stop()).clean
    assert order == ["c", "b", "a", "root"]


async def test_a_stop_that_hangs_is_reported_with_the_current_message() -> None:
    class Stuck(Actor):
        async def on_stop(self) -> None:
            await asyncio.Event().wait()

    system = ActorSystem()
    system.spawn(Stuck, name="stuck")
    await asyncio.sleep(0)
    report = await system.stop(timeout=0.05)
    assert not report.clean and report.left[0].startswith("/stuck (stopping")


async def test_a_taken_reply_is_failed_when_its_actor_dies() -> None:
    class Promising(Actor):
        def on_receive(self, message: Any) -> Any:
            if message == "boom":
                raise RuntimeError("boom")
            self.take_reply()
            return "this is not the reply"

    async with ActorSystem() as system:
        ref = system.spawn(Promising)
        reply = ref.ask("promise", block=False)
        ref.tell("boom")
        with pytest.raises(ActorDeadError):
            await reply


async def test_settled_replies_that_were_taken_do_not_pile_up() -> None:
    class Giving(Actor):
        def on_receive(self, message: Any) -> Any:
            if message == "owed":
                return len(self._cell.owed)
            self.take_reply().try_set(message)
            return None

    async with ActorSystem() as system:
        ref = system.spawn(Giving)
        for number in range(5000):
            assert await ref.ask(number, block=False) == number
        assert await ref.ask("owed", block=False) <= 512


@virtual_time
async def test_timers_are_keyed_and_a_stale_one_is_not_delivered() -> None:
    class Timed(Actor):
        def __init__(self) -> None:
            super().__init__()
            self.got: list[str] = []

        def on_receive(self, message: Any) -> Any:
            if message == "set":
                self.set_timer("k", 0.0, "old")
                time.sleep(0.001)  # its message is due when it is replaced
                self.set_timer("k", 0.0, "new")
                self.set_timer("x", 0.0, "cancelled")
                self.cancel_timer("x")
                return None
            if message == "got":
                return self.got
            self.got.append(message)
            return None

    async with ActorSystem() as system:
        ref = system.spawn(Timed)
        await ref.ask("set", block=False)
        while not await ref.ask("got", block=False):
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert await ref.ask("got", block=False) == ["new"]


def test_backoff_grows_to_its_bound_and_jitters() -> None:
    backoff = Backoff(first=1.0, factor=2.0, most=5.0, jitter=0.5)
    rng = random.Random(1)
    delays = [backoff.delay(n, rng) for n in (1, 2, 3, 4, 5000)]
    for delay, most in zip(delays, (1, 2, 4, 5, 5), strict=True):
        assert most / 2 <= delay <= most


@pytest.mark.slow
async def test_ten_thousand_actors_stop_in_linear_time() -> None:
    async def stop(count: int) -> float:
        system = ActorSystem()
        for _ in range(count):
            system.spawn(Echo)
        await asyncio.sleep(0)
        # A collection costs what the whole process holds, thousands of tests' leavings, and not what the actors do.
        gc.collect()
        gc.disable()
        try:
            begun = time.process_time()
            await system.stop()
            return time.process_time() - begun
        finally:
            gc.enable()

    await stop(100)
    small, large = await stop(1000), await stop(10_000)
    assert large < 40 * small, f"{small:.3f} s for 1,000, {large:.3f} s for 10,000"


def test_the_runtime_imports_nothing_of_kafka_or_the_transports() -> None:
    script = "import sys, actors; print([m for m in ('grpc','aiohttp','confluent_kafka','pixy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_call_is_a_call_through_a_proxy() -> None:
    class Base(Actor):
        async def add(self, number: int, *, more: int = 0) -> int:
            return number + more

        def name(self) -> str:
            return "base"

    class Derived(Base):
        def name(self) -> str:
            return "derived"

    async with ActorSystem() as system:
        ref = system.spawn(Derived)
        assert await ref.call(Base.add, 1, more=2) == 3
        assert await ref.call(Base.name) == "derived", "an override is called"
        for method in (Base._handle_receive, lambda _self: None):
            with pytest.raises(AttributeError, match="has no public method"):
                ref.call(method)  # type: ignore[arg-type]
        await ref.stop(block=False)
        with pytest.raises(ActorDeadError):
            await ref.call(Base.name)

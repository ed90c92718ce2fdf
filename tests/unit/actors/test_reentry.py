"""A signal handler, or a finalizer, that uses actors in the middle of something: in the same thread, between any two lines."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from actors import DROP_OLD, FAIL, Actor, ActorRef, ActorSystem, Future, MailboxFull, Overflow, Wait
from actors._core import mailbox, waiting
from actors._core.mailbox import Mailbox
from actors.patterns import Groups

TRACED = {mailbox.__file__, waiting.__file__}


class Interrupted:
    """Calls a function once, before the n-th line of the mailbox's code that this thread runs."""

    def __init__(self, line: int, interrupt: Callable[[], object]) -> None:
        self.left, self._interrupt = line, interrupt

    def __enter__(self) -> Interrupted:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                self._interrupt()
        return self._trace


class Collecting(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        self.seen.append(message)
        return self.seen


PUTS: dict[str, Callable[[ActorRef[Any], Any], object]] = {
    "tell": lambda ref, message: ref.notify(message),
    "urgent": lambda ref, message: ref.notify(message, urgent=True),
    "ask": lambda ref, message: ref.ask(message, block=False),
    "stop": lambda ref, _message: ref.stop(block=False),
}


@pytest.mark.parametrize(
    ("first", "overflow"),
    [("tell", FAIL), ("urgent", FAIL), ("ask", FAIL), ("tell", DROP_OLD), ("tell", Wait(5))],
    ids=["tell", "urgent", "ask", "drop_old", "wait"],
)
def test_a_put_inside_of_a_put(first: str, overflow: Overflow) -> None:
    """A put, interrupted before each of its lines by each other, on the loop's thread and on another one."""

    class Small(Collecting):
        mailbox_capacity = 3

    async def one(system: ActorSystem, line: int, second: str, elsewhere: bool, there: int) -> bool:
        ref = await system.spawn(Small)
        for _ in range(there):
            ref.tell("there")
        interrupted = Interrupted(line, lambda: PUTS[second](ref, "second"))
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def put() -> None:
            with interrupted:
                PUTS[first](ref, "first")
            loop.call_soon_threadsafe(ended.set)

        if elsewhere:
            threading.Thread(target=put, daemon=True).start()
        else:
            put()
        where = f"{first} interrupted by {second} before line {line}"
        try:
            await asyncio.wait_for(ended.wait(), 10)
        except TimeoutError:
            pytest.fail(f"{where} never ends")
        if second != "stop":
            await ref.send("last")  # the mailbox may be full
            while ref.statistics().mailbox.depth:
                await asyncio.sleep(0)
            texts = [each for each in await ref.ask("seen", block=False) if each in ("first", "second")]
            wanted = {"first", "second"} if interrupted.left <= 0 else {"first"}
            assert set(texts) == wanted or (there and overflow is not DROP_OLD), where
            assert len(set(texts)) == len(texts), where
        await ref.stop(block=False)
        assert not ref.is_alive()
        return interrupted.left <= 0

    async def scenario() -> None:
        async with ActorSystem(overflow=overflow) as system:
            for second in ("tell", "urgent", "stop"):
                lines = 0
                for elsewhere, there in ((True, 0), (True, 3), (False, 3)):
                    line = 1
                    while await one(system, line, second, elsewhere, there):
                        line += 1
                    lines += line
                assert lines > 10

    asyncio.run(scenario())


async def test_a_signal_handler_does_not_wait_inside_of_a_put() -> None:
    class Small(Collecting):
        mailbox_capacity = 1
        overflow = Wait(None)

    async with ActorSystem() as system:
        ref = system.spawn(Small)
        ref.tell("there")
        box: Mailbox = ref.actor_inbox
        errors: list[BaseException] = []

        def inside() -> None:
            with box.lock:  # as a put that a signal handler interrupts
                try:
                    ref.tell("more")
                except MailboxFull as error:
                    errors.append(error)

        thread = threading.Thread(target=inside, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive() and errors


def test_a_future_that_is_settled_inside_of_its_settling() -> None:
    future: Future[int] = Future()
    inner: list[bool] = []

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        if frame.f_code.co_name == "_settle" and event == "line" and "_claim" in vars(future):
            sys.settrace(None)
            inner.append(future.try_set(2))
        return trace

    def settle() -> None:
        sys.settrace(trace)
        future.try_set(1)
        sys.settrace(None)

    thread = threading.Thread(target=settle, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and inner == [False]
    assert future.get(timeout=0) == 1


def test_a_signal_handler_wakes_an_actor_on_a_loop_that_sleeps() -> None:
    class Setting(Actor):
        def on_receive(self, message: asyncio.Event) -> None:
            message.set()

    async def scenario() -> bool:
        late: list[bool] = []
        async with ActorSystem() as system:
            told = asyncio.Event()
            ref = await system.spawn(Setting)
            before = signal.signal(signal.SIGALRM, lambda *_: ref.tell(told))
            try:
                # Nothing else ends the loop's sleep until then.
                asyncio.get_running_loop().call_later(10, late.append, True)
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                await told.wait()
            finally:
                signal.signal(signal.SIGALRM, before)
        return bool(late)

    assert not asyncio.run(scenario()), "the message waited until something else woke the loop"


async def test_other_locks_can_be_entered_again() -> None:
    async with ActorSystem() as system:
        groups, pool = Groups(system), system.spawn_pool(Actor, size=1)
        await pool

        def inside() -> None:
            with system._add_lock, groups._lock, pool._lock:
                ref = system.spawn(Actor)
                groups.join("g", ref)
                pool.tell(1)
                pool.publish((ref,), ("a",))

        thread = threading.Thread(target=inside, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()

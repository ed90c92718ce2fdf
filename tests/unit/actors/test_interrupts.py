"""Ctrl-C that hits a handler: the program gets it, and the actor goes on as after any failure."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from actors import (
    STOP_ON_FAILURE,
    Actor,
    ActorDeadError,
    ActorRef,
    ActorRestarting,
    ActorStopped,
    ActorSystem,
    Backoff,
    Instrument,
    Interrupted,
    Strategy,
    Supervision,
    Terminated,
    Timeout,
)
from actors._core import following, handling, procedure, stopping, supervision, termination
from actors._core.cell import Cell
from actors._core.interruption import of_program
from actors.remote import PickleCodec

SOON = Supervision(backoff=Backoff(first=0.001, most=0.001, jitter=0.0))


class Plain(Actor):
    def on_receive(self, message: Any) -> Any:
        if message == "ctrl-c":
            raise KeyboardInterrupt  # as the signal's handler does, in the middle of any code
        if message == "fail":
            raise ValueError
        return message


class Waiting(Actor):
    async def on_receive(self, message: Any) -> Any:
        await asyncio.sleep(0)
        if message == "ctrl-c":
            raise KeyboardInterrupt
        if message == "fail":
            raise ValueError
        return message


@pytest.mark.parametrize("kind", [Plain, Waiting])
@pytest.mark.parametrize("asked", [True, False])
def test_ctrl_c_in_a_supervised_handler_ends_run_forever(kind: type[Actor], asked: bool) -> None:
    loop = asyncio.new_event_loop()
    made: list[Any] = []

    async def begin() -> None:
        made.append(ActorSystem())
        made.append(await made[0].spawn(kind, supervision=SOON))
        made.append(made[1].ask("ctrl-c", block=False) if asked else made[1].tell("ctrl-c"))

    async def end() -> None:
        system, ref, reply = made
        if asked:
            with pytest.raises(Interrupted):
                await reply
        assert await ref.ask("still here", block=False) == "still here"
        assert (await system.stop(30)).clean

    try:
        begun = loop.create_task(begin())
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert begun.done()
        loop.run_until_complete(end())
    finally:
        loop.close()


def test_ctrl_c_in_a_background_task_leaves_the_loop_once() -> None:
    made: list[Any] = []

    class Working(Actor):
        def on_receive(self, message: Any) -> Any:
            if message == "work":
                self.start_task(self._work())
            return message

        async def _work(self) -> None:
            raise KeyboardInterrupt

    async def begin() -> None:
        system = ActorSystem()
        made.extend((system, await system.spawn(Working, supervision=SOON)))
        made[1].tell("work")

    async def end() -> None:
        system, ref = made
        await asyncio.sleep(0)
        assert await ref.ask("here", block=False) == "here" and ref._cell.restarts == 1
        assert (await system.stop(30)).clean

    interrupted(begin, end)


async def test_a_constructors_error_is_the_spawners_whatever_happens_meanwhile() -> None:
    class Broken(Actor):
        def __init__(self) -> None:
            super().__init__()
            self.system.top.clear()  # as the end of the loop does
            raise OSError("broken")

    async with ActorSystem() as system:
        with pytest.raises(OSError, match="broken"):
            system.spawn(Broken)


# -- Ctrl-C that hits code that the runtime calls, or the runtime itself ------------------------------


def once(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Have Ctrl-C hit the first line of a function of the runtime, the first time; the list is empty then."""
    whole, left = getattr(owner, name), [None]

    def hit(*args: Any, **options: Any) -> Any:
        if left:
            left.clear()
            if name == "Procedure":
                args[0].close()
            raise KeyboardInterrupt
        return whole(*args, **options)

    monkeypatch.setattr(owner, name, hit)
    return left


def interrupted(
    begin: Callable[[], Coroutine[Any, Any, None]],
    end: Callable[[], Coroutine[Any, Any, None]],
    by: type[BaseException] = KeyboardInterrupt,
) -> None:
    """Run a program that Ctrl-C ends, or another interrupt, and what it does then."""
    loop = asyncio.new_event_loop()

    async def within_seconds() -> None:
        async with asyncio.timeout(5):
            await end()

    try:
        begun = loop.create_task(begin())
        with pytest.raises(by):
            loop.run_forever()
        assert begun.done()
        loop.run_until_complete(within_seconds())
    finally:
        loop.close()


class Told(Actor):
    """Fails, or echoes."""

    def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError
        return message


class Hooked(Told):
    """Notes its last hook."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes

    async def on_stop(self) -> None:  # type: ignore[override]
        self.notes.append("stop")


@pytest.mark.parametrize("where", ["subscriber", "instrument", "filter", "decide"])
def test_ctrl_c_in_code_that_the_runtime_calls_ends_the_loop_and_nothing_else(where: str) -> None:
    left, made, logger = [None], [], logging.getLogger("actors")  # type: ignore[var-annotated]

    def hit(*_: Any) -> Any:
        if left:
            left.clear()
            raise KeyboardInterrupt
        return supervision.Directive.RESTART

    odd = type("Odd", (Instrument,), {"begin": staticmethod(hit)})()

    async def begin() -> None:
        system = ActorSystem()
        policy = Supervision(decide=hit, backoff=SOON.backoff) if where == "decide" else SOON
        made.extend((system, await system.spawn(Told, supervision=policy)))
        if where == "subscriber":
            system.events.subscribe(hit, ActorRestarting)
        elif where == "instrument":
            system.instrument(odd)
        elif where == "filter":
            logger.addFilter(hit)
        made[1].tell("fail")

    async def end() -> None:
        system, ref = made
        if where == "decide":
            assert isinstance((await system.failure).__cause__, ValueError), "no decision escalates"
        else:
            assert await ref.ask("here", block=False) == "here"
            assert system.events.wants(ActorRestarting) is (where == "subscriber"), "it stays"
            assert (system.hooks_in_use is not None) is (where == "instrument"), "it stays"
        assert (await system.stop(30)).clean

    try:
        interrupted(begin, end)
    finally:
        logger.removeFilter(hit)


@pytest.mark.parametrize(
    ("kind", "owner", "name", "answered"),
    [
        (Told, Cell, "handling_context", True),
        (Told, Cell, "go_on", True),
        (Waiting, Cell, "go_on", True),
        (Waiting, following, "begin", False),
        (Waiting, following, "_take_turn", False),
    ],
)
def test_an_actor_hears_after_ctrl_c_between_two_handlers(
    kind: type[Actor], owner: Any, name: str, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    async def begin() -> None:
        system = ActorSystem()
        ref = await system.spawn(kind, supervision=SOON)
        once(owner, name, monkeypatch)
        made.extend((system, ref, ref.ask("asked", block=False)))

    async def end() -> None:
        system, ref, asked = made
        if answered:
            assert await asked == "asked"
        else:
            with pytest.raises(Interrupted):
                await asked
        assert await ref.ask("here", block=False) == "here"
        assert (await system.stop(30)).clean

    interrupted(begin, end)


@pytest.mark.parametrize("kind", [Plain, Waiting])
def test_a_failed_ask_is_answered_though_ctrl_c_hits_the_look_at_its_error(
    kind: type[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    async def begin() -> None:
        system = ActorSystem()
        ref = await system.spawn(kind, supervision=SOON)
        once(handling, "as_failure", monkeypatch)
        made.extend((system, ref, ref.ask("fail", block=False)))

    async def end() -> None:
        system, ref, asked = made
        with pytest.raises(Interrupted):
            await asked
        assert await ref.ask("here", block=False) == "here"
        assert (await system.stop(30)).clean

    interrupted(begin, end)


class Watcher(Actor):
    """Notes the end of another actor."""

    def __init__(self, ref: ActorRef[Any], notes: list[str]) -> None:
        super().__init__()
        self.ref, self.notes = ref, notes

    def on_start(self) -> None:
        self.watch(self.ref)

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Terminated):
            self.notes.append("terminated")


@pytest.mark.parametrize(
    ("owner", "name", "hooked", "notes"),
    [
        (termination, "Procedure", True, ["stop", "terminated"]),
        (termination, "stop_children", True, ["terminated"]),
        (termination, "end_life", True, ["terminated"]),
        (stopping, "settle", True, ["stop", "terminated"]),
        (stopping, "settle", False, ["terminated"]),
        (termination, "depart", False, ["terminated"]),
    ],
)
def test_a_stop_that_ctrl_c_hits_comes_to_its_end(
    owner: Any, name: str, hooked: bool, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    noted: list[str] = []
    ended: list[ActorStopped] = []

    async def begin() -> None:
        system = ActorSystem()
        ref = await (system.spawn(Hooked, noted) if hooked else system.spawn(Told))
        await system.spawn(Watcher, ref, noted)
        system.events.subscribe(ended.append, ActorStopped)
        once(owner, name, monkeypatch)
        made.extend((system, ref, ref.stop(block=False)))

    async def end() -> None:
        system, ref, stopped = made
        assert await stopped is True and not ref.is_alive()
        while "terminated" not in noted:
            await asyncio.sleep(0)
        assert noted == notes and ended[0].path == ref.path
        assert len(system.children) == 1, "the watcher is there yet"
        assert (await system.stop(30)).clean

    interrupted(begin, end)


@pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (supervision.Restart, "_announce"),
        (supervision, "rebirth"),
        (supervision, "Procedure"),
        (supervision, "end_life"),
    ],
)
def test_a_restart_that_ctrl_c_hits_becomes_a_stop(
    strategy: Strategy, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    async def begin() -> None:
        system = ActorSystem()
        policy = Supervision(backoff=SOON.backoff, strategy=strategy)
        made.extend((system, [await system.spawn(Told, supervision=policy) for _ in range(2)]))
        once(owner, name, monkeypatch)
        made[1][0].tell("fail")

    async def end() -> None:
        system, (failed, sibling) = made
        with pytest.raises(ActorDeadError) as caught:
            await failed.ask("here", block=False)
        assert isinstance(caught.value.__cause__, Interrupted)
        alone = strategy is Strategy.ONE_FOR_ONE or name == "Procedure"  # it was not suspended yet
        while sibling.is_alive() and not alone:
            await asyncio.sleep(0)
        if alone:
            assert await sibling.ask("here", block=False) == "here"
        assert (await system.stop(30)).clean

    interrupted(begin, end)


def test_an_actor_that_is_given_up_ends_although_ctrl_c_hits_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    async def begin() -> None:
        system = ActorSystem()
        made.extend((system, await system.spawn(Told, supervision=STOP_ON_FAILURE)))
        once(supervision, "depart", monkeypatch)
        made[1].tell("fail")

    async def end() -> None:
        system, ref = made
        with pytest.raises(ActorDeadError) as caught:
            await ref.ask("here", block=False)
        assert isinstance(caught.value.__cause__, ValueError), "the failure that has ended it"
        assert (await system.stop(30)).clean

    interrupted(begin, end)


async def test_a_defect_of_the_runtime_in_a_stop_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noticed.append(context["exception"]))
    whole, left = termination.stop_children, [None]

    async def broken(cell: Any) -> None:
        if left:
            left.clear()
            raise AssertionError("a defect")
        await whole(cell)

    monkeypatch.setattr(termination, "stop_children", broken)
    system = ActorSystem()
    ref = await system.spawn(Hooked, [])
    async with asyncio.timeout(5):
        assert await ref.stop(block=False) is True
        assert (await system.stop(5)).clean
    assert [str(each) for each in noticed] == ["a defect"]


async def test_a_wait_of_a_broken_procedure_continues_nothing() -> None:
    loop = asyncio.get_running_loop()
    waits, steps, broken = loop.create_future(), [], []  # type: ignore[var-annotated]
    loop.set_exception_handler(lambda *_: None)

    class Hit:
        """Registers the callback, and is interrupted then."""

        _asyncio_future_blocking = True

        def __await__(self) -> Any:
            yield self

        def add_done_callback(self, *args: Any, **options: Any) -> None:
            waits.add_done_callback(*args, **options)
            raise ArithmeticError

    async def work() -> None:
        await Hit()
        steps.append("went on")

    procedure.Procedure(work(), loop, contextvars.copy_context(), broken.append)
    await asyncio.sleep(0)
    waits.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not steps and [type(each) for each in broken] == [ArithmeticError]


async def test_a_stop_makes_up_for_a_turn_that_ctrl_c_has_lost_in_the_loop() -> None:
    class Flushing(Told):
        def __init__(self, ref: ActorRef[Any]) -> None:
            super().__init__()
            self.ref = ref

        async def on_stop(self) -> None:  # type: ignore[override]
            await self.ref.ask("flush", block=False)

    system = ActorSystem()
    refs = [await system.spawn(Told) for _ in range(2)]
    await system.spawn(Flushing, refs[1])
    while system.turns.pending:
        await asyncio.sleep(0)
    system.turns.pending = True  # asyncio has taken the turn out of its queue, and was interrupted
    refs[0].tell("waits for the turn")
    assert (await system.stop(5)).clean


async def test_an_ask_that_times_out_makes_up_for_a_turn_that_ctrl_c_has_lost_in_the_loop() -> None:
    async with ActorSystem() as system:
        ref, other = [await system.spawn(Told) for _ in range(2)]
        while system.turns.pending:
            await asyncio.sleep(0)
        system.turns.pending = True  # as above
        other.tell("waits for the turn")
        told = ref.ask("waits, too", block=False)
        with pytest.raises(Timeout):
            await ref.ask("waits, and not for ever", block=False, timeout=0.001)
        async with asyncio.timeout(60):
            assert await told == "waits, too"


# -- SystemExit that the program's own signal handler raises ---------------------------------------------


class Handler:
    """A signal handler, as a method of the program's."""

    def handle(self, _number: int, _frame: Any) -> None:
        self.shut_down()

    def delete(self, _what: str, number: int, frame: Any) -> None:
        del number, frame
        self.shut_down()

    def shut_down(self) -> None:
        sys.exit(3)


class Terminating(logging.Handler):
    """A handler of the log in which the signal arrives, at the first line."""

    def __init__(self) -> None:
        super().__init__()
        self.left = [None]

    def emit(self, _: logging.LogRecord) -> None:
        self.strike()

    def strike(self, *_: Any) -> None:
        if self.left:
            self.left.clear()
            signal.raise_signal(signal.SIGTERM)


def deletes(*arguments: Any) -> None:
    del arguments
    sys.exit(3)


@pytest.mark.parametrize(
    "by", [lambda *_: sys.exit(3), Handler().handle, deletes, functools.partial(Handler().delete, "all")]
)
@pytest.mark.parametrize("where", ["log", "subscriber", "instrument", "handler", "codec"])
def test_the_exit_of_a_signal_handler_ends_the_loop_and_nothing_else(where: str, by: Any) -> None:
    made: list[Any] = []
    log, logger = Terminating(), logging.getLogger("actors")
    odd = type("Odd", (Instrument,), {"begin": staticmethod(log.strike)})()

    class Struck(Told):
        def on_receive(self, message: Any) -> Any:
            if message == "fail" and where == "handler":
                log.strike()
            if message == "fail" and where == "codec":
                PickleCodec().encode(Pickled())
            return super().on_receive(message)

    class Pickled:
        def __reduce__(self) -> Any:
            log.strike()
            return super().__reduce__()

    async def begin() -> None:
        system = ActorSystem()
        made.extend((system, await system.spawn(Struck, supervision=SOON)))
        if where == "log":
            logger.addHandler(log)
        elif where == "subscriber":
            system.events.subscribe(log.strike, ActorRestarting)
        elif where == "instrument":
            system.instrument(odd)
        made[1].tell("fail")

    async def end() -> None:
        system, ref = made
        assert await ref.ask("here", block=False) == "here"
        assert system.events.wants(ActorRestarting) is (where == "subscriber"), "it stays"
        assert (system.hooks_in_use is not None) is (where == "instrument"), "it stays"
        assert (await system.stop(30)).clean

    before = signal.signal(signal.SIGTERM, by)
    try:
        interrupted(begin, end, SystemExit)
    finally:
        signal.signal(signal.SIGTERM, before)
        logger.removeHandler(log)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_that_no_signal_has_brought_is_of_the_code_that_raises_it(error: type[BaseException]) -> None:
    def raised() -> BaseException:
        try:
            raise error
        except BaseException as caught:
            return caught

    found = []
    thread = threading.Thread(target=lambda: found.append(of_program(raised())))
    thread.start()
    thread.join()
    assert found == [False], "no signal comes to other threads"
    assert of_program(raised()) is (error is KeyboardInterrupt)


def test_the_exit_of_a_signal_handler_that_the_code_calls_itself_is_the_codes() -> None:
    def leave(_number: Any = None, _frame: Any = None) -> None:
        sys.exit(3)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit) as caught:
            leave()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not of_program(caught.value)


class Untouchable:
    """Neither iterated, nor compared, nor looked at."""

    def _touched(self, *_: Any) -> Any:
        raise AssertionError("code of others was called")

    __iter__ = __eq__ = __hash__ = __len__ = __getattr__ = __getitem__ = _touched  # type: ignore[assignment]


class Names(dict[str, Any]):
    """The names of a class's body, kept by its metaclass."""

    def get(self, *_: Any) -> Any:
        raise AssertionError("code of others was called")


class Meta(type):
    @classmethod
    def __prepare__(cls, *_: Any) -> Any:
        return Names()


@pytest.mark.parametrize("where", ["none", "iterable", "deleted", "class", "handler"])
async def test_the_exit_of_a_handler_is_settled_whatever_its_arguments_have_become(where: str) -> None:
    def rebinds(*argv: Any) -> None:
        argv = None if where == "none" else Untouchable()  # type: ignore[assignment]  # as argv = parser.parse_args(argv)
        sys.exit(4 if argv is where else 3)

    def deletes_one(kept: Any, deleted: Any) -> None:
        del deleted
        sys.exit(4 if kept is where else 3)

    class Leaving(Actor):
        def on_receive(self, message: Any) -> Any:
            if where == "class":

                class Odd(metaclass=Meta):
                    sys.exit(3)

            if where in ("deleted", "handler"):
                deletes_one(Untouchable(), None)
            rebinds(message)

    touched = []

    class Installed:
        def __call__(self, *_: Any) -> None:
            pass

        def __hash__(self) -> int:
            touched.append("hashed")
            return 0

    before = signal.signal(signal.SIGTERM, Installed()) if where == "handler" else None
    try:
        system = ActorSystem()
        ref = await system.spawn(Leaving)
        async with asyncio.timeout(5):
            with pytest.raises(SystemExit):
                await ref.ask("leave", block=False)
            assert (await system.stop()).clean
        assert not touched
    finally:
        if where == "handler":
            signal.signal(signal.SIGTERM, before)

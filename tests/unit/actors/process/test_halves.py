"""What the two halves of a process actor tell each other, without a process: replies, failures, stops, log records."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import pickle
import socket
import sys
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from actors import (
    DROP_NEW,
    DROP_OLD,
    STOP_ON_FAILURE,
    Actor,
    ActorDeadError,
    ActorError,
    ActorFailed,
    ActorRef,
    ActorSystem,
    Backoff,
    DeadLetter,
    Directive,
    Dropped,
    Future,
    MailboxFull,
    NoAnswer,
    OnError,
    ProcessActor,
    Supervision,
    Timeout,
    WorkerDied,
)
from actors.process.actor import ProcessCell
from actors.process.frames import Frame, Kind
from actors.process.output import LINES_AT_ONCE, Lines
from actors.process.worker import WorkerProcess
from tests.support import eventually
from tests.unit.actors.process.halves import Here, in_this_process, settled
from tests.unit.actors.process.kinds import OddError

LIMIT = 1 << 20
SOON = Supervision(backoff=Backoff(first=0.001, most=0.002))


class Queue(ProcessActor):
    """Does what its messages say; what is told to it, it puts aside until ``open`` has come twice."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.replies: list[Future[Any]] = []
        self.told: list[Any] = []
        self.asked: list[bool] = []
        self.child: ActorRef[Any] | None = None

    def on_receive(self, message: Any) -> Any:
        self.asked.append(self.is_asked)
        if isinstance(message, BaseException):
            raise message
        action = getattr(self, message.split()[0])
        return action(message)

    def open(self, _: Any) -> str:
        self.opened += 1
        self.unstash_all()
        return "opened"

    def wait(self, message: Any) -> Any:
        if self.opened < 2:
            return self.stash()
        if message == "wait and fail":
            raise KeyError(message)
        return f"{message} is done"

    def get(self, _: Any) -> None:
        self.replies.append(self.take_reply())

    def put(self, message: Any) -> bool:
        return any(self.replies.pop(0).try_set(message) for _ in tuple(self.replies))

    def spoil(self, _: Any) -> None:
        self.replies.pop(0).try_fail(ValueError("spoilt"))

    def cancel(self, _: Any) -> None:
        self.replies.pop(0).cancel()

    def expire(self, _: Any) -> None:
        self.replies.pop(0).expire(1.5)

    def delegate(self, message: Any) -> None:
        if self.child is None:
            self.child = self.spawn(Later)
        self.child.forward(message, self.take_reply())

    def exit(self, _: Any) -> None:
        self.set_timer("exit", 0.0, SystemExit(3))

    def no_more(self, _: Any) -> None:
        self.set_timer("exit", 0.0, StopIteration())

    def leave(self, _: Any) -> None:
        self.actor_ref.stop(block=False)

    def echo(self, message: Any) -> Any:
        return message

    async def beside(self, _: Any) -> None:
        self.start_task(boom())
        await asyncio.Event().wait()

    def behind(self, _: Any) -> str:
        self.actor_ref.tell("wedge")
        return "later"

    async def wedge(self, _: Any) -> None:
        self.start_task(self.fail_when_called())
        await asyncio.Event().wait()

    async def fail_when_called(self) -> None:
        while self._cell.mailbox.empty():
            await asyncio.sleep(0)
        raise OSError("boom")

    def last(self, _: Any) -> str:
        self._cell.loop.call_soon(self._cell.fail, OSError("boom"), "task")
        return "answered"

    def leave_if_idle(self, _: Any) -> bool:
        return self.stop_if_idle()

    async def unpicklable(self, message: Any) -> Any:
        return Exits()


async def boom() -> None:
    raise OSError("boom")


class Exits:
    def __reduce__(self) -> Any:
        raise SystemExit(3)


class Later(Actor):
    """Takes replies over, and answers when the next message comes."""

    replies: list[Future[Any]]

    def __init__(self) -> None:
        super().__init__()
        self.replies = []

    def on_receive(self, message: Any) -> None:
        for each in self.replies:
            each.set(f"not {message}")
        self.replies = [self.take_reply()]


class Hooks(Queue):
    """Its last hooks fail."""

    def before_restart(self, error: BaseException) -> None:
        raise OSError("before_restart")

    def on_stop(self) -> None:
        raise OSError("on_stop")


class Slow(Queue):
    async def before_restart(self, error: BaseException) -> None:
        await asyncio.Event().wait()


class Small(Queue):
    max_message = 5000


class Failing(Queue):
    """Its start takes too long for somebody else."""

    async def on_start(self) -> None:
        raise TimeoutError("no answer from the database")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Here]:
    return in_this_process(monkeypatch)


@pytest.fixture
async def system(made: list[Here]) -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_grace=0.1) as system:
        yield system


def asked(ref: ActorRef[Any], message: Any) -> Future[Any]:
    return ref.ask(message, block=False, timeout=30)


async def restarted(ref: ActorRef[Any], times: int = 1) -> None:
    await eventually(lambda: _restarts(ref), lambda found: found == times)


async def _restarts(ref: ActorRef[Any]) -> int:
    return ref.statistics().restarts


# -- replies ----------------------------------------------------------------------------------------


def frame(kind: Kind, call: int, value: Any = None) -> Frame:
    return Frame(kind, call, 0, memoryview(pickle.dumps(value)))


async def test_a_call_is_taken_once() -> None:
    """What the worker says of a message that it handles again concerns neither its asker nor the call under way."""
    loop = asyncio.get_running_loop()
    askers = [Future(), Future()]
    left = list(askers)
    worker = WorkerProcess(
        loop,
        "/k",
        LIMIT,
        on_taken=lambda: left.pop(0),
        on_failed=pytest.fail,
        on_died=pytest.fail,
        on_leave=pytest.fail,
    )
    calls = []
    for _ in askers:
        calls.append(worker.call(Kind.CALL, "m", "it"))
        worker._read(frame(Kind.TAKEN, len(calls)))
    third = worker.call(Kind.CALL, "m", "it")
    worker._read(frame(Kind.DONE, 3, "third"))
    worker._read(frame(Kind.TAKEN, 1))
    assert await third == "third" and [await each for each in calls] == [None, None]
    assert not any(each.done() for each in askers)
    worker._read(frame(Kind.DONE, 2, "second"))
    worker._read(frame(Kind.FAILED, 1, ValueError("first")))
    assert askers[1].value() == "second" and isinstance(askers[0].exception(), ValueError)
    assert not worker._calls


async def test_messages_that_are_put_aside_twice_are_answered_once_each(system: ActorSystem) -> None:
    ref = system.spawn(Queue)
    waiting = [asked(ref, f"wait {number}") for number in range(3)]
    assert await asked(ref, "open") == "opened"
    assert await asked(ref, "echo") == "echo"
    assert not any(each.done() for each in waiting), "put aside again"
    assert await asked(ref, "open") == "opened"
    assert [await each for each in waiting] == [f"wait {number} is done" for number in range(3)]


async def test_a_reply_that_a_child_takes_over_too(system: ActorSystem) -> None:
    ref = system.spawn(Queue)
    first = asked(ref, "delegate a")
    assert await asked(ref, "echo") == "echo" and not first.done()
    ref.tell("delegate b")
    assert await first == "not delegate b"


@pytest.mark.parametrize("directive", [Directive.RESTART, Directive.RESUME])
async def test_a_tell_that_fails_after_it_was_put_aside_is_supervised(
    system: ActorSystem, directive: Directive
) -> None:
    failures: list[Any] = []
    system.events.subscribe(failures.append, ActorFailed)
    ref = system.spawn(
        Queue, supervision=Supervision(OnError((KeyError, directive)), backoff=Backoff(first=0.001))
    )
    ref.tell("wait and fail")
    for _ in range(2):
        with contextlib.suppress(KeyError, ActorDeadError):
            await asked(ref, "open")
    await eventually(lambda: _count(failures), lambda found: found == 1)
    assert isinstance(failures[0].error, KeyError) and failures[0].directive == directive.value
    assert await asked(ref, "echo") == "echo"
    assert ref.statistics().restarts == (directive is Directive.RESTART)


async def _count(found: list[Any]) -> int:
    return len(found)


@pytest.mark.parametrize("how", ["cancel", "expire"])
async def test_an_asker_that_gives_up_is_told_to_the_worker(
    system: ActorSystem, made: list[Here], how: str
) -> None:
    ref = system.spawn(Queue)
    first, second = asked(ref, "get"), asked(ref, "get")
    await asked(ref, "echo")
    _ = first.cancel() if how == "cancel" else first.expire(0.5)
    await settled()
    assert await asked(ref, "put item") is True
    assert await second == "put item", "the item went to an asker that was gone"
    assert not made[0]._calls
    assert all(each.done() for each in made[0].worker._replies.values()), "the worker keeps an open reply"


async def test_a_message_that_was_put_aside_and_given_up_is_not_handled(
    system: ActorSystem, made: list[Here]
) -> None:
    ref = system.spawn(Queue)
    waiting = asked(ref, "wait")
    await asked(ref, "echo")
    waiting.cancel()
    await settled()
    for _ in range(2):
        await asked(ref, "open")
    assert made[0].actor.asked == [True] * 4, "the message was handled again"


async def test_a_reply_that_the_actor_cancels_or_expires(system: ActorSystem) -> None:
    ref = system.spawn(Queue)
    first, second = asked(ref, "get"), asked(ref, "get")
    ref.tell("cancel")
    with pytest.raises(asyncio.CancelledError):
        await first
    ref.tell("expire")
    with pytest.raises(Timeout, match=r"1\.5 seconds"):
        await second
    assert await asked(ref, "echo") == "echo"


async def test_a_tell_is_no_ask(system: ActorSystem, made: list[Here]) -> None:
    ref = system.spawn(Queue)
    for message in ("get", "get", "get", "spoil", "put item"):
        ref.tell(message)
    assert await asked(ref, "echo") == "echo"
    assert made[0].actor.asked == [False] * 5 + [True]
    assert not made[0]._calls, "a reply to nobody keeps a call"
    assert ref.statistics().restarts == 0, "an error that nobody waits for fails the actor"


async def test_a_reply_whose_pickling_exits_is_an_error(system: ActorSystem) -> None:
    ref = system.spawn(Queue)
    with pytest.raises(ActorError, match="the reply cannot be pickled: SystemExit: 3"):
        await asked(ref, "unpicklable")
    assert await asked(ref, "echo") == "echo"


async def test_an_actor_that_stops_by_its_own_ref_stops(system: ActorSystem, made: list[Here]) -> None:
    ref = system.spawn(Queue)
    ref.tell("leave")
    last = asked(ref, "echo")
    assert await last == "echo", "a message that was there before the stop is handled"
    await eventually(lambda: _alive(ref), lambda alive: not alive)
    await eventually(lambda: _ends(made), lambda found: found == [True])


async def _alive(ref: ActorRef[Any]) -> bool:
    return ref.is_alive()


async def _ends(made: list[Here]) -> list[bool]:
    return [each.exited.done() for each in made]


# -- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("message", "kind"), [("exit", SystemExit), ("no_more", StopIteration)])
async def test_an_exit_outside_of_a_call_is_a_failure_of_its_actor_alone(
    system: ActorSystem, made: list[Here], message: str, kind: type[BaseException]
) -> None:
    failures: list[Any] = []
    system.events.subscribe(failures.append, ActorFailed)
    ref = system.spawn(Queue, supervision=SOON)
    ref.tell(message)
    await restarted(ref)
    assert await asked(ref, "echo") == "echo"
    assert type(failures[0].error) is kind
    assert [each.exited.done() for each in made] == [True, False]


async def test_a_failure_beside_a_message_is_what_supervision_sees(system: ActorSystem) -> None:
    failures: list[Any] = []
    system.events.subscribe(failures.append, ActorFailed)
    ref = system.spawn(Queue, supervision=SOON)
    ref.tell("beside")
    await restarted(ref)
    with pytest.raises(NoAnswer):
        await asked(ref, "beside")
    await restarted(ref, 2)
    assert [(type(each.error), each.message) for each in failures] == [(OSError, "str"), (OSError, "str")]


@pytest.mark.parametrize("failing", ["beside", "behind"])
async def test_a_failure_beside_an_asked_message_leaves_those_behind_it_to_the_next_process(
    system: ActorSystem, made: list[Here], failing: str
) -> None:
    """Behind: what fails is beside a message of the worker's own, while a call waits for its turn there."""
    ref = system.spawn(Queue, supervision=SOON)
    first, second = asked(ref, failing), asked(ref, "echo")
    ref.tell("put x")
    if failing == "beside":
        with pytest.raises(NoAnswer):
            await first
    assert await second == "echo"
    if failing == "behind":
        assert await first == "later"
    assert await asked(ref, "echo") == "echo"
    assert ref.statistics().restarts == 1
    assert made[1].actor.asked == [True, False, True], "a message was lost"


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_message_that_a_dead_process_cannot_have_read_goes_to_the_next_one(
    system: ActorSystem, made: list[Here], noticed: bool
) -> None:
    """Noticed: the parent has seen the connection's end, but not yet that of the process."""
    failures: list[Any] = []
    system.events.subscribe(failures.append, ActorFailed)
    ref = system.spawn(Queue, supervision=SOON)
    assert await asked(ref, "echo") == "echo"
    dies = asyncio.Event()
    made[0].wait_for = dies.wait
    made[0].worker._sock.shutdown(socket.SHUT_RDWR)
    if noticed:
        await settled()
    ref.tell("put x")
    behind = asked(ref, "echo behind")
    await settled()
    dies.set()
    assert await behind == "echo behind"
    assert made[1].actor.asked == [False, True], "what was told is lost"
    assert [(type(each.error), each.message) for each in failures] == [(WorkerDied, None)]


async def test_a_message_that_is_answered_before_a_failure_has_its_answer(system: ActorSystem) -> None:
    ref = system.spawn(Queue, supervision=SOON)
    first, second = asked(ref, "last"), asked(ref, "echo")
    assert await first == "answered" and await second == "echo"
    assert ref.statistics().restarts == 1


async def test_a_start_that_fails_with_a_timeout_of_its_own_says_so(system: ActorSystem) -> None:
    failures: list[Any] = []
    system.events.subscribe(failures.append, ActorFailed)
    with pytest.raises(ActorDeadError) as caught:
        await system.spawn(Failing, supervision=STOP_ON_FAILURE)
    assert [(type(each.error), str(each.error)) for each in failures] == [
        (TimeoutError, "no answer from the database")
    ]
    assert isinstance(caught.value.__cause__, TimeoutError)


async def test_told_messages_that_were_put_aside_do_not_vanish(system: ActorSystem, made: list[Here]) -> None:
    lost: list[Any] = []
    system.events.subscribe(lost.append, Dropped, DeadLetter)
    ref = system.spawn(Queue, supervision=SOON)
    for message in ("wait a", "wait b"):
        ref.tell(message)
    for _ in range(2):
        await asked(ref, "open")
    assert await asked(ref, "echo") == "echo"
    assert ref.statistics().mailbox.stashed == 0, "both were handled"
    ref.tell(OSError("restart"))
    await restarted(ref)
    ref.tell("wait c")
    kept = asked(ref, "wait d")
    await asked(ref, "echo")
    assert lost == [] and ref.statistics().mailbox.stashed == 1
    ref.tell(OSError("restart"))
    with pytest.raises(NoAnswer):
        await kept
    await restarted(ref, 2)
    assert [(type(each), each.message) for each in lost] == [(Dropped, "wait c")]
    ref.tell("wait e")
    await asked(ref, "echo")
    await ref.stop(block=False)
    assert [(type(each), each.message) for each in lost[1:]] == [(DeadLetter, "wait e")]


async def test_an_actor_that_does_not_see_its_mailbox_does_not_stop_because_it_is_empty(
    system: ActorSystem,
) -> None:
    ref = system.spawn(Queue)
    with pytest.raises(RuntimeError, match=r"does not see its mailbox, which is in the parent; use stop\(\)"):
        await asked(ref, "leave_if_idle")
    assert await asked(ref, "echo") == "echo"


async def test_a_method_is_called_by_its_name(system: ActorSystem) -> None:
    def forget() -> None: ...

    ref: Any = system.spawn(Queue)
    assert await ref.call(Queue.echo, "said") == "said"
    with pytest.raises(AttributeError, match="has no public method 'forget'"):
        ref.call(forget)


async def test_a_worker_ends_although_its_last_hook_fails(system: ActorSystem, made: list[Here]) -> None:
    ref = system.spawn(Hooks, supervision=SOON)
    ref.tell(ValueError("fail"))
    await restarted(ref)
    assert await asked(ref, "echo") == "echo"
    assert [each.exited.done() for each in made] == [True, False]
    await ref.stop(block=False)
    assert made[1].exited.done()


async def test_a_worker_ends_although_the_error_is_too_large_for_its_last_hook(
    system: ActorSystem, made: list[Here]
) -> None:
    ref = system.spawn(Small, supervision=SOON)
    await ref
    ref._cell.fail(ValueError("x" * 6000), "task")
    await restarted(ref)
    assert await asked(ref, "echo") == "echo"
    assert [each.exited.done() for each in made] == [True, False]


async def test_a_worker_is_killed_when_its_last_hook_is_cut_short(made: list[Here]) -> None:
    async with ActorSystem(stop_grace=30.0, hook_timeout=0.01) as system:
        ref = system.spawn(Slow, supervision=SOON)
        ref.tell(ValueError("fail"))
        await restarted(ref)
        assert await asked(ref, "echo") == "echo"
        assert [each.killed for each in made] == [True, False]
        assert made[0].exited.done()


# -- log records ----------------------------------------------------------------------------------------


async def test_a_worker_that_prints_without_end_leaves_the_loop_to_others() -> None:
    logged: list[str] = []
    ended = asyncio.Event()
    calls: list[str] = []
    pipe = SimpleNamespace(
        pause_reading=lambda: calls.append("pause"), resume_reading=lambda: calls.append("resume")
    )
    lines = Lines(lambda _, line: logged.append(line), logging.INFO, ended.set)
    lines.connection_made(pipe)  # type: ignore[arg-type]
    for number in range(2):
        lines.data_received(f"{number}\n".encode() * (LINES_AT_ONCE * 3) + b"rest ")
        assert len(logged) == LINES_AT_ONCE, "the loop has other work, too"
        turns = 0
        while calls[-1] != "resume":
            await asyncio.sleep(0)
            turns += 1
        assert calls == ["pause", "resume"] and turns >= 2
        assert logged == (["rest 1"] * number + [str(number)] * (LINES_AT_ONCE * 3))[: len(logged)]
        logged.clear()
        calls.clear()
    lines.data_received(b"x\n" * (LINES_AT_ONCE + 1))
    lines.connection_lost(None)
    assert not ended.is_set()
    await ended.wait()
    assert len(logged) == LINES_AT_ONCE + 1


@pytest.mark.parametrize("text", ["cannot be unpickled", "cannot be logged: KeyError"])
async def test_a_record_that_the_parent_cannot_log_does_not_end_the_connection(
    system: ActorSystem, made: list[Here], caplog: pytest.LogCaptureFixture, text: str
) -> None:
    ref = system.spawn(Queue, name="k")
    await ref
    fields: dict[str, Any] = {"name": "tests.worker", "levelno": logging.WARNING, "msg": "hello"}
    if text == "cannot be unpickled":
        fields["error"] = OddError("a", "b")
    link, logger = made[0].worker._link, logging.getLogger("tests.worker")

    def refuse(_: Any) -> bool:
        raise KeyError("the filter's own")

    logger.addFilter(refuse)
    try:
        link.send(Kind.LOG, 0, fields, "the record")
        assert await asked(ref, "echo") == "echo", "the connection is closed"
    finally:
        logger.removeFilter(refuse)
    assert any(text in each.getMessage() for each in caplog.records)
    link.send(Kind.LOG, 0, {**fields, "error": None}, "the record")
    await asked(ref, "echo")
    assert "hello" in [each.getMessage() for each in caplog.records]


async def test_a_last_hook_whose_loop_is_gone_ends_at_once(system: ActorSystem, made: list[Here]) -> None:
    ref = await system.spawn(Slow)
    host: Any = ref._cell.actor
    hook = host._last_hook("before_restart", (ValueError("fail"),))
    hook.send(None)  # it waits for the worker
    hook.close()  # as the interpreter does when it collects the coroutine
    assert made[0].killed


class Narrow(Queue):
    """Has room for one message of its own."""

    mailbox_capacity = 1
    gate: asyncio.Event

    def fill(self, _: Any) -> None:
        self.gate = asyncio.Event()
        self.actor_ref.tell("hold")

    async def hold(self, _: Any) -> None:
        self.actor_ref.tell("echo")
        await self.gate.wait()
        with contextlib.suppress(MailboxFull):
            self.actor_ref.tell("echo")

    def note(self, message: Any) -> None:
        self.told.append(message)


class NarrowNew(Narrow):
    overflow = DROP_NEW


class NarrowOld(Narrow):
    overflow = DROP_OLD


@pytest.mark.parametrize("kind", [Narrow, NarrowNew, NarrowOld])
async def test_what_the_actor_tells_itself_in_the_worker_does_not_keep_the_parents_messages_out(
    system: ActorSystem, made: list[Here], kind: type[Narrow]
) -> None:
    ref = await system.spawn(kind, supervision=SOON)
    ref.tell("fill")
    await eventually(lambda: _filled(made), lambda found: found == 1)
    ref.tell("note x")
    await settled()
    made[0].actor.gate.set()
    assert await asked(ref, "echo") == "echo"
    assert ref.statistics().restarts == 0 and made[0].actor.told == ["note x"]


async def _filled(made: list[Here]) -> int:
    return len(made[0].worker._cell.mailbox) if hasattr(made[0].actor, "gate") else 0  # type: ignore[union-attr]


async def test_a_host_without_an_instance_has_no_process_to_kill(system: ActorSystem) -> None:
    cell = ProcessCell(system, None, Queue, (), {}, "k", SOON)
    cell.retire()


async def test_an_awaiter_that_is_cancelled_gives_the_call_up(system: ActorSystem, made: list[Here]) -> None:
    ref = system.spawn(Queue)
    first, second = asked(ref, "get"), asked(ref, "get")
    await asked(ref, "echo")
    waiting = asyncio.ensure_future(first.as_coroutine())
    await settled()
    waiting.cancel()
    await settled()
    assert first.cancelled()
    assert await asked(ref, "put item") is True
    assert await second == "put item"


async def test_a_worker_for_which_there_is_no_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is not waited for."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker = WorkerProcess(
        asyncio.get_running_loop(),
        "/k",
        LIMIT,
        on_taken=pytest.fail,
        on_failed=pytest.fail,
        on_died=pytest.fail,
        on_leave=pytest.fail,
    )
    with monkeypatch.context() as patch, pytest.raises(WorkerDied, match="can't start new thread"):
        patch.setattr(threading.Thread, "start", refuse)
        await worker.start([])
    assert worker.exited.done() and worker._all_closed.is_set()


@pytest.mark.parametrize("missing", ["descriptors", "interpreter"])
async def test_a_worker_that_cannot_be_launched_has_ended(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    worker = WorkerProcess(
        asyncio.get_running_loop(),
        "/k",
        LIMIT,
        on_taken=pytest.fail,
        on_failed=pytest.fail,
        on_died=pytest.fail,
        on_leave=pytest.fail,
    )
    with monkeypatch.context() as patch:
        if missing == "descriptors":
            patch.setattr(socket, "socketpair", refuse)
        else:
            patch.setattr(sys, "executable", None)
        with pytest.raises(WorkerDied, match="its worker process could not be launched: "):
            async with asyncio.timeout(30):
                await worker.start([])
    assert worker.exited.done() and worker._all_closed.is_set()

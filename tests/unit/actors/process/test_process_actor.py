"""Actors in worker processes: real processes, few and short."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorError,
    ActorFailed,
    ActorRef,
    ActorSystem,
    Backoff,
    Directive,
    Dropped,
    Interrupted,
    MailboxFull,
    NotPicklable,
    OnError,
    Supervision,
    Terminated,
    TraceContext,
    WorkerDied,
    trace_as,
)
from actors.process.frames import FrameReader, Kind as FrameKind, decode
from actors.process.host import _sendable
from actors.process.link import PARENT_IS_GONE, Link
from actors.testing import CannotSimulate, simulate
from tests.support import eventually
from tests.unit.actors.process import kinds
from tests.unit.actors.process.kinds import (
    Add,
    Allocate,
    Blob,
    Broken,
    Exit,
    Fail,
    Full,
    Impatient,
    Kind,
    Later,
    Measure,
    Open,
    Pid,
    Slow,
    Small,
    Spin,
    Tight,
    Unloadable,
    Wait,
)

SOON = Supervision(backoff=Backoff(first=0.001, most=0.002))


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_grace=0.1) as made:
        yield made


async def ask(ref: ActorRef[Any], message: Any) -> Any:
    return await ref.ask(message, block=False, timeout=30)


async def until(check: Callable[[], bool], what: str) -> None:
    async def found() -> str:
        return what if check() else f"not yet: {what}"

    await eventually(found, lambda text: text == what)


def is_running(pid: int) -> bool:
    """Whether a process exists that is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def gone(pid: int) -> None:
    await until(lambda: not is_running(pid), f"process {pid} has ended")


async def reads(path: Path, text: str) -> None:
    await until(lambda: path.exists() and text in path.read_text(), f"{path.name} has {text!r}")


async def test_it_answers_from_another_process(system: ActorSystem) -> None:
    ref = system.spawn(Kind, name="k")
    pid = await ask(ref, Pid())
    assert pid != os.getpid() and is_running(pid)
    ref.tell(Add(1))
    assert await ask(ref, Add(2)) == 3
    assert await ask(ref, "child") == "/k", "the path is the parent's; a child answers in the worker"
    proxy = ref.proxy()
    assert await proxy.twice(21) == 42 and await proxy.name == "kind"
    assert ref.actor_class is Kind and str(ref) == "Kind (/k)"
    assert await ref.stop(block=False)
    await gone(pid)


def test_it_answers_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def program() -> None:
        async with ActorSystem() as system:
            ref = system.spawn(Kind)
            assert await ask(ref, Add(2)) == 2
            with pytest.raises(ValueError, match="no"):
                await ask(ref, Fail(ValueError("no")))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(program())


async def test_a_process_that_a_handler_forks_has_no_connection(
    system: ActorSystem, caplog: pytest.LogCaptureFixture
) -> None:
    ref = system.spawn(Kind)
    assert await ask(ref, "fork") == [7, PARENT_IS_GONE], "the second one went on as the worker"
    assert await ask(ref, "here") == "here"
    await ref.stop(block=False)
    assert caplog.text.count("in the child") == 2, "on its standard error"
    assert "end it with os._exit()" in caplog.text


async def test_an_error_goes_to_the_asker_and_the_process_lives_on(system: ActorSystem) -> None:
    ref = system.spawn(Kind)
    pid = await ask(ref, Pid())
    with pytest.raises(ValueError, match="no") as caught:
        await ask(ref, Fail(ValueError("no")))
    note = "".join(caught.value.__notes__)
    assert f"In the worker process {pid}" in note and "in fail" in note, note
    with pytest.raises(ActorError, match="OddError, which cannot be pickled"):
        await ask(ref, "odd error")
    assert await ask(ref, Pid()) == pid


async def test_supervision_decides_on_a_failed_tell(system: ActorSystem, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    policy = Supervision(OnError((KeyError, Directive.RESUME)), backoff=SOON.backoff)
    ref = system.spawn(Kind, str(notes), supervision=policy)
    first = await ask(ref, Pid())
    ref.tell(Add(5))
    ref.tell(Fail(KeyError("resume")))
    assert await ask(ref, Add(0)) == 5 and await ask(ref, Pid()) == first
    ref.tell(Fail(ValueError("restart")))
    assert await ask(ref, Add(0)) == 0, "a new life has the state"
    assert await ask(ref, Pid()) != first
    await gone(first)
    await ref.stop(block=False)
    assert notes.read_text().split("\n")[:-1] == [
        "start",
        "failure restart",
        "before restart",
        "after restart",
        "start",
        "stop",
    ]


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (Exit(3), 3, r"/k: its worker process \(pid \d+\) ended with exit code 3"),
        ("kill", -signal.SIGKILL, r"/k: its worker process \(pid \d+\) was ended by SIGKILL"),
        (Allocate(4 << 30), 97, r"/k: its worker process \(pid \d+\) reached its memory limit"),
    ],
)
async def test_the_death_of_the_process_is_the_failure(
    system: ActorSystem, tmp_path: Path, message: Any, code: int, text: str
) -> None:
    failures: list[Any] = []
    system.events.subscribe(failures.append, ActorFailed)
    ref = system.spawn(Small, name="k", supervision=SOON)
    pid = await ask(ref, Pid())
    if message == "kill":
        asked = ref.ask(Wait(str(tmp_path / "waits")), block=False, timeout=30)
        await reads(tmp_path / "waits", "waits")
        behind = ref.ask(Add(1), block=False, timeout=30)
        os.kill(pid, signal.SIGKILL)
    else:
        asked = ref.ask(message, block=False, timeout=30)
        behind = ref.ask(Add(1), block=False, timeout=30)
    with pytest.raises(WorkerDied, match=text) as caught:
        await asked
    assert (caught.value.pid, caught.value.exit_code) == (pid, code)
    if message == Exit(3):
        assert "last words" in "".join(caught.value.__notes__)
    assert await behind == 1, "the messages behind it are handled by the next process"
    assert await ask(ref, Pid()) != pid
    assert [(each.path, each.error, each.message) for each in failures] == [
        ("/k", caught.value, type(message).__name__ if message != "kill" else "Wait")
    ]


async def test_an_idle_process_that_dies_is_noticed_by_its_watchers(system: ActorSystem) -> None:
    seen: asyncio.Future[Terminated] = asyncio.get_running_loop().create_future()

    class Watcher(Actor):
        def on_receive(self, message: Any) -> None:
            if isinstance(message, Terminated):
                seen.set_result(message)
            else:
                self.watch(message)

    ref = system.spawn(Kind)
    await ask(system.spawn(Watcher), ref)
    os.kill(await ask(ref, Pid()), signal.SIGKILL)
    notice = await asyncio.wait_for(seen, 30)
    assert notice.ref is ref and isinstance(notice.error, WorkerDied)
    assert not ref.is_alive()
    with pytest.raises(ActorDeadError):
        await ask(ref, Pid())


async def test_what_cannot_be_pickled_fails_one_ask(system: ActorSystem) -> None:
    dropped: list[Any] = []
    system.events.subscribe(dropped.append, Dropped)
    ref = system.spawn(Small, name="k")
    pid = await ask(ref, Pid())
    for message, text in (
        ((lambda: 1), r"the function to /k cannot be pickled"),
        (bytes(3 << 20), r"the bytes to /k has \d+ bytes when pickled, more than max_message"),
        (Unloadable(), r"a message to /k cannot be unpickled: ValueError: not today"),
        ("lambda", r"the reply cannot be pickled"),
        (kinds.Exits(), r"a message to /k cannot be unpickled: SystemExit: 3"),
        ("exits", r"the reply of /k cannot be unpickled: SystemExit: 3"),
    ):
        with pytest.raises(NotPicklable, match=text):
            await ask(ref, message)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await ask(ref, "no more")
    ref.tell(lambda: 1)
    assert await ask(ref, Pid()) == pid, "it lives on"
    assert [each.reason for each in dropped] == ["cannot be pickled"]
    with pytest.raises(NotPicklable, match="Kind with its arguments cannot be pickled"):
        system.spawn(Kind, lambda: 1)

    class Local(Kind):
        pass

    with pytest.raises(NotPicklable, match="Local"):
        system.spawn(Local)


@pytest.mark.slow
async def test_constructors_and_starts_that_fail(system: ActorSystem) -> None:
    with pytest.raises(ActorDeadError) as caught:
        await system.spawn(Broken, OSError("no such host"))
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(ActorDeadError) as caught:
        await system.spawn(Broken, SystemExit(4))
    with pytest.raises(ActorDeadError) as caught:
        await system.spawn(Slow, name="slow")
    assert "/slow: its worker process was not ready after 0.5 s" in str(caught.value.__cause__)


async def test_a_failure_outside_of_a_handler(system: ActorSystem) -> None:
    ref = system.spawn(Kind, supervision=SOON)
    pid = await ask(ref, Pid())
    ref.tell("timer")
    await until(lambda: ref.statistics().restarts == 1, "it is restarted")
    assert await ask(ref, Pid()) != pid


async def test_the_mailbox_is_bounded_in_the_parent(system: ActorSystem, tmp_path: Path) -> None:
    fifo = str(tmp_path / "gate")
    os.mkfifo(fifo)
    ref = system.spawn(Full)
    await ref
    ref.tell(Open(fifo))
    await until(lambda: ref.statistics().current == "Open", "the worker is busy")
    ref.tell(Add(1))
    ref.tell(Add(1))
    with pytest.raises(MailboxFull):
        ref.tell(Add(1))
    sent = asyncio.create_task(ref.send(Add(1)))
    await asyncio.sleep(0)
    # Opens when the worker reads: its handler blocks its process, and only that.
    await asyncio.to_thread(Path(fifo).write_text, "go")
    await sent
    await until(lambda: ref.statistics().mailbox.depth == 0, "there is room")
    assert await ask(ref, Add(0)) == 3


async def test_a_reply_that_comes_later(system: ActorSystem) -> None:
    ref = system.spawn(Kind)
    later = ref.ask(Later(), block=False, timeout=30)
    assert await ask(ref, Add(4)) == 4
    assert await later == 4


async def test_a_stop_cancels_the_handler_and_runs_the_last_hook(system: ActorSystem, tmp_path: Path) -> None:
    notes, waits = tmp_path / "notes", tmp_path / "waits"
    ref = system.spawn(Kind, str(notes))
    asked = ref.ask(Wait(str(waits)), block=False)
    await reads(waits, "waits")
    report = await system.stop(timeout=30)
    assert report.clean
    with pytest.raises(ActorDeadError):
        await asked
    assert waits.read_text().split() == ["waits", "cancelled"]
    assert notes.read_text().split() == ["start", "stop"]


async def test_a_handler_that_computes_for_ever_is_killed_at_the_stop(
    system: ActorSystem, tmp_path: Path
) -> None:
    spins = tmp_path / "spins"
    ref = system.spawn(Impatient)
    ref.tell(Spin(str(spins)))
    await reads(spins, "spins ")
    assert (await system.stop(timeout=30)).clean
    await gone(int(spins.read_text().split()[1]))


async def test_it_can_stop_itself(system: ActorSystem, tmp_path: Path) -> None:
    ref = system.spawn(Kind)
    pid = await ask(ref, Pid())
    ref.tell("stop")
    last = ref.ask(Add(1), block=False, timeout=30)
    assert await last == 1, "messages that were there before it are handled"
    await until(lambda: not ref.is_alive(), "it has stopped")
    await gone(pid)


async def test_large_data(system: ActorSystem) -> None:
    ref = system.spawn(Kind)
    large = b"abc" + bytes(20_000_000)
    assert await ask(ref, Measure(large)) == ("bytes", len(large), b"abc")
    buffer = pickle.PickleBuffer(bytearray(large))
    assert await ask(ref, Measure(buffer)) == ("memoryview", len(large), b"abc")
    back = await ask(ref, Blob(bytearray(large)))
    assert len(back.data) == len(large) and bytes(back.data[:3]) == b"\x07bc"


async def test_a_memory_limit_below_what_the_worker_needs_is_refused_with_the_least(
    system: ActorSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def error_of_start() -> BaseException:
        with pytest.raises(ActorDeadError) as dead:
            await system.spawn(Tight)
        assert dead.value.__cause__ is not None
        return dead.value.__cause__

    error = await error_of_start()
    words = re.fullmatch(
        r"Tight\.memory_limit is (\d+) bytes or more, not 4096: its worker has (\d+) when it starts, with all libraries",
        str(error),
    )
    assert type(error) is ValueError and words is not None, error
    assert not getattr(error, "__notes__", []), "it has no traceback of the worker: the mistake is not there"
    least, has = map(int, words.groups())
    assert least == has + (16 << 20) and has > 20 << 20

    # With what the error names, a little more for what differs between two starts, the worker works, and ends by itself.
    monkeypatch.setattr(Tight, "memory_limit", least + (4 << 20))
    ref = system.spawn(Tight)
    assert "libgcc_s" in await ask(ref, "libraries"), (
        "what the end of a thread loads: it would abort the process"
    )
    with pytest.raises(WorkerDied, match="reached its memory limit"):
        await ask(ref, Allocate(64 << 20))


async def test_output_and_logs_come_to_the_parent(
    system: ActorSystem, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ref = system.spawn(Kind, name="k")
    pid = await ask(ref, Pid())
    await ask(ref, "print")
    lines = (("actors.worker", logging.INFO, f"/k (pid {pid}): said"),)
    lines += (("actors.worker", logging.WARNING, f"/k (pid {pid}): complained"),)
    lines += (("kind", logging.WARNING, "logged 1"),)
    await until(lambda: set(lines) <= set(caplog.record_tuples), "all three lines")
    record = next(each for each in caplog.records if each.name == "kind")
    assert record.process == pid and "ZeroDivisionError" in str(record.exc_text)


async def test_the_trace_goes_with_the_message(system: ActorSystem) -> None:
    ref = system.spawn(Kind)
    context = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    with trace_as(context):
        assert await ask(ref, "trace") == context.header
    assert await ask(ref, "trace") is None


async def test_a_pool_of_processes(system: ActorSystem) -> None:
    router = system.spawn_pool(Kind, size=2, supervision=SOON)
    pids = {await router.ask(Pid(), block=False, timeout=30) for _ in range(4)}
    assert len(pids) == 2
    os.kill(min(pids), signal.SIGKILL)
    await until(lambda: sum(each.restarts for each in router.statistics().workers) == 1, "a restart")
    again = {await router.ask(Pid(), block=False, timeout=30) for _ in range(4)}
    assert len(again) == 2 and max(pids) in again and min(pids) not in again


def test_a_simulation_refuses_it() -> None:
    async def scenario(system: ActorSystem) -> None:
        with pytest.raises(CannotSimulate, match="process of its own"):
            system.spawn(Kind)

    simulate(scenario, seed=1)


PARENT = """
import asyncio, dataclasses, os, sys
from actors import ActorSystem, ProcessActor

@dataclasses.dataclass
class Reply:
    text: str

class Local(ProcessActor):  # defined in the main program
    def on_receive(self, message):
        return Reply(f"{message} {os.getpid() != int(sys.argv[1] or 0)}")

async def main():
    async with ActorSystem() as system:
        reply = await system.spawn(Local).ask("hello", block=False)
        assert type(reply) is Reply
        print(reply.text, flush=True)
        print("main" if __name__ == "__main__" else "imported")

GUARD
    asyncio.run(main())
"""


@pytest.mark.parametrize(("guarded", "text"), [(True, "hello True\nmain\n"), (False, "if __name__ ==")])
def test_classes_of_the_main_program(tmp_path: Path, guarded: bool, text: str) -> None:
    program = tmp_path / "program.py"
    guard = 'if __name__ == "__main__":' if guarded else "if True:"
    program.write_text(PARENT.replace("GUARD", guard))
    root = str(Path(kinds.__file__).parents[4])
    done = subprocess.run(
        [sys.executable, str(program), "0"],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) is guarded, done.stderr
    assert text in (done.stdout if guarded else done.stderr), done.stderr


@pytest.mark.parametrize("how", [["-c"], ["-"]])
def test_a_class_of_a_program_without_a_file_is_refused_by_spawn(how: list[str]) -> None:
    program = """
from actors import Actor, ActorError, ActorSystem, ProcessActor
import asyncio

class Mine(ProcessActor):
    pass

async def main():
    async with ActorSystem() as system:
        try:
            system.spawn(Mine)
        except ActorError as error:
            print(error)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, *how, *([program] if how == ["-c"] else [])],
        input=program,
        env={**os.environ, "PYTHONPATH": str(Path(kinds.__file__).parents[4])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == (
        "Mine is in a main program that a worker process cannot import (from standard input, -c, a session or a "
        "package's __main__): put it into a module\n",
        "",
    )


def test_a_loop_that_is_closed_under_it() -> None:
    async def scenario() -> tuple[ActorRef[Any], ActorRef[Any]]:
        system = ActorSystem()
        return await system.spawn(Kind), await system.spawn(Actor)

    ref, bystander = asyncio.run(scenario())
    for each in (ref, bystander):
        with pytest.raises(ActorDeadError):
            each.ask(Pid(), timeout=10)
        assert not each.is_alive() and each.actor_stopped.is_set()


async def test_a_log_record_inside_of_another_one() -> None:
    """A finalizer that logs while a frame is being written must not begin a frame in its middle."""
    ours, theirs = socket.socketpair()
    frames: list[Any] = []
    reader = FrameReader(lambda frame: frames.append(decode(frame, "it")), lambda: None, 1 << 20)
    transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: reader, sock=ours)
    link = Link(theirs.fileno())
    write, nested = link._write, iter([True])

    def interrupted(part: memoryview) -> None:
        half = len(part) // 2
        write(part[:half])
        if next(nested, False):
            link.send(FrameKind.LOG, 0, "inner", "it")
        write(part[half:])

    link._write = interrupted  # type: ignore[method-assign]
    link.send(FrameKind.LOG, 0, "outer", "it")
    while len(frames) < 2:
        await asyncio.sleep(0)
    assert frames == ["outer", "inner"]
    transport.close()
    theirs.close()


ORPHAN = """
import asyncio, sys
from actors import ActorSystem
from tests.unit.actors.process.kinds import Kind, Pid, Spin

async def main():
    async with ActorSystem() as system:
        idle, busy = system.spawn(Kind), system.spawn(Kind)
        print(await idle.ask(Pid(), block=False), await busy.ask(Pid(), block=False), flush=True)
        await busy.ask(Spin(sys.argv[1], sys.argv[2] == "hard"), block=False)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("pdeathsig", [True, False])
async def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path, pdeathsig: bool) -> None:
    """Idle and computing ones; by a thread that watches, or if a handler lets none run by the kernel's signal."""
    spins = tmp_path / "spins"
    root = str(Path(kinds.__file__).parents[4])
    env = {**os.environ, "PYTHONPATH": root, **({} if pdeathsig else {"ACTORS_NO_PDEATHSIG": "1"})}
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(spins), "hard" if pdeathsig else "soft"],
        stdout=subprocess.PIPE,
        env=env,
    )
    try:
        assert parent.stdout is not None
        pids = [int(each) for each in (await asyncio.to_thread(parent.stdout.readline)).split()]
        assert len(pids) == 2
        await reads(spins, f"spins {pids[1]}")
        parent.kill()
        for pid in pids:
            await gone(pid)
    finally:
        parent.kill()
        await asyncio.to_thread(parent.wait)
        assert parent.stdout is not None
        parent.stdout.close()


async def test_ctrl_c_that_a_handler_raises_fails_the_actor_and_no_message_behind_it(
    system: ActorSystem, tmp_path: Path
) -> None:
    """As SystemExit does: those that the process has got already go to the next one."""
    notes = tmp_path / "notes"
    failures: list[Any] = []
    system.events.subscribe(failures.append, ActorFailed)
    ref = system.spawn(Kind, str(notes), supervision=SOON)
    first = await ask(ref, Pid())
    failed, *behind = (
        ref.ask(message, block=False, timeout=30)
        for message in (Fail(KeyboardInterrupt()), Pid(), Add(1), Add(1))
    )
    with pytest.raises(Interrupted, match="KeyboardInterrupt"):
        await failed
    second, *sums = [await each for each in behind]
    assert second != first and sums == [1, 2]
    ref.tell(Fail(KeyboardInterrupt()))
    assert await ask(ref, Add(1)) == 1
    assert [type(each.error) for each in failures] == [Interrupted, Interrupted]
    ends = [each.split()[0] for each in notes.read_text().splitlines()]
    assert ends == ["start", *2 * ["failure", "before", "after", "start"]]


def test_what_exits_when_it_is_pickled_is_not_sent() -> None:
    class Exits(Exception):
        def __reduce__(self) -> Any:
            raise SystemExit(3)

    assert type(_sendable(Exits("why"))) is ActorError and str(_sendable(Exits("why"))).endswith("Exits: why")


async def test_arguments_that_exit_when_they_are_pickled_are_the_spawners(system: ActorSystem) -> None:
    class Exits:
        def __reduce__(self) -> Any:
            raise SystemExit(3)

    with pytest.raises(NotPicklable, match="Kind with its arguments cannot be pickled"):
        system.spawn(Kind, Exits())

"""The program of a worker process: one actor in a system of its own, driven by frames from the parent.

The worker ends when its parent does. A thread watches the connection, so that this also holds while a handler keeps
the loop; on Linux the kernel kills the process besides (``PR_SET_PDEATHSIG``), which also covers a handler in C
code that keeps the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import runpy
import select
import signal
import socket
import sys
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any, cast

from actors._core import forking, supervision, termination
from actors._core.cell import Cell
from actors._core.context import origin
from actors._core.interruption import interrupted, of_program
from actors._core.lifecycle import RESTARTING, RUNNING
from actors._core.mailbox import NORMAL, PRIORITY, ControlMessage, Mailbox
from actors._policy import STOP_ON_FAILURE
from actors._system import ActorSystem
from actors._trace import TraceContext, trace_as
from actors.process.frames import Frame, FrameReader, Kind, NotPicklable, decode
from actors.process.link import PARENT_IS_GONE, Link, LogHandler, Reply, Taken
from actors.process.spec import Spec

if TYPE_CHECKING:
    import io

    from actors._core.envelope import Envelope

loading_main = False
"""Whether this process is a worker that is loading its parent's main program."""


class WorkerMailbox(Mailbox):
    """The actor's mailbox in the worker. Its bound is for what comes from inside of the worker.

    The parent has applied bound and policy to a call before it has sent it, and sends one at a time.
    """

    __slots__ = ()

    def put_call(self, envelope: Envelope) -> bool:
        """Add a call of the parent's, also beyond the bound; False if the actor has stopped."""
        lane = PRIORITY if isinstance(envelope[0], ControlMessage) else NORMAL
        if self.hooks is not None and not self.hooks.admits(self.cell, envelope, lane):
            return True
        with self.lock:
            if self.closed:
                return False
            if lane == NORMAL:
                self.normal.append(envelope)
            else:
                self.priority_lane().append(envelope)
                self.rare = True
        self.rouse()
        return True

    def never_dropped(self, envelope: Envelope) -> bool:
        """See :meth:`Mailbox.never_dropped`."""
        return isinstance(envelope[1], Reply) or super().never_dropped(envelope)


class WorkerCell(Cell):
    """The actor's cell in the worker: failures and stops are the parent's to decide on."""

    __slots__ = ("cut", "ending", "link", "restarted_for")

    mailbox_class = WorkerMailbox

    cut: asyncio.Task[None] | None
    """The task of the handler that a failure has cut off."""
    ending: bool
    """Whether the parent has begun to stop the actor."""
    link: Link
    restarted_for: BaseException | None

    def leave(self) -> None:
        """Ask the parent for the actor's stop, after the messages that wait there."""
        self.link.send(Kind.LEAVE, 0, None, "")

    def request_stop(self) -> None:
        """Ask the parent for the stop, unless it comes from there."""
        if self.ending:
            super().request_stop()
        else:
            self.leave()

    async def call(self, hook: str, *args: Any) -> None:
        """Run a hook; after a restart, ``after_restart`` before ``on_start``."""
        if hook == "on_start" and self.restarted_for is not None:
            await super().call("after_restart", self.restarted_for)
        await super().call(hook, *args)

    def fail(self, error: BaseException, where: str, *, resumable: bool = False) -> None:
        """Suspend the actor and tell the parent, whose supervision decides.

        The parent hears of the failure first: after the end of the call it would send the next message, which
        nobody here would handle.
        """
        message, under_way = (None, None) if self.envelope is None else self.envelope[:2]
        if isinstance(under_way, Reply):
            self.failed_message = message
        elif where != "on_receive":
            self.failed_message = None
        self.link.fail(Kind.DIED, under_way.call if isinstance(under_way, Reply) else 0, error)
        self._suspend()

    def handler_failed(self, envelope: Envelope, error: BaseException) -> None:
        """See :meth:`Cell.handler_failed`; each call has a reply here, also a tell, on which the parent decides."""
        if isinstance(envelope[1], Reply) and not envelope[1].wanted:
            self.failed_message = envelope[0]  # for on_failure
        if not of_program(error):
            super().handler_failed(envelope, error)
            return
        # There is no program here whose loop it could end: as with another SystemExit, the actor has failed. If the process
        # ended of it, whether it had begun with the next message would be unknown.
        error = interrupted(self, error)
        super().handler_failed(envelope, error)
        if self.state is RUNNING:
            self.failed_message = envelope[0]
            self.fail(error, "on_receive")

    def _suspend(self) -> None:
        if isinstance(self.reply, Reply) and not self.reply.wanted:
            self.reply.give_up()  # that a tell has no answer is no failure of its own
        self.cut = supervision.suspend(self, RESTARTING) or self.cut

    async def end_work(self) -> None:
        """End what the actor does beside its last hooks: the parent has decided that this life ends of a failure."""
        if self.state is RUNNING:
            self._suspend()
        await self.end_handler(self.cut, 0.0)
        await termination.end_work(self)


class _LazyMain(types.ModuleType):
    """Stands for the parent's main program; runs it when a pickle names something in it."""

    def __init__(self, name: str | None, path: str | None) -> None:
        super().__init__("__main__")
        self.actors_main_program = self._main = (name, path)

    def __getattr__(self, attribute: str) -> Any:
        name, path = vars(self).get("_main", (None, None))
        if attribute.startswith("__") or (name is None and path is None):
            raise AttributeError(f"the parent's main program has no {attribute!r} that can be imported")
        self._main = (None, None)
        global loading_main
        loading_main = True
        try:
            if name is not None:
                found = runpy.run_module(name, run_name="__mp_main__", alter_sys=False)
            else:
                found = runpy.run_path(str(path), run_name="__mp_main__")
        except BaseException as error:
            raise ImportError(
                f"the main program {name or path} cannot be imported by a worker process ({error!r}); "
                'put what it does under if __name__ == "__main__":'
            ) from error
        finally:
            loading_main = False
        vars(self).update(found)
        sys.modules["__mp_main__"] = self
        return getattr(self, attribute)


class _Reader(FrameReader):
    """Reads frames; says why it ends the process if there is no memory for one."""

    def __init__(self, link: Link, *args: Any) -> None:
        super().__init__(*args)
        self._link = link

    def buffer_updated(self, nbytes: int) -> None:
        """See :class:`FrameReader`."""
        try:
            super().buffer_updated(nbytes)
        except MemoryError:  # asyncio would close the connection, and the process end without a word
            self._link.out_of_memory()
            raise


class Worker:
    """The worker's half of a process actor.

    Args:
        sock: the connection to the parent.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._link = Link(sock.fileno())
        self._cell: WorkerCell | None = None
        self._replies: weakref.WeakValueDictionary[int, Reply] = weakref.WeakValueDictionary()
        """The replies that somebody holds, by their calls."""
        self._jobs: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Read frames until the parent closes the connection."""
        loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        self._ended: asyncio.Future[None] = loop.create_future()
        await loop.create_unix_connection(
            lambda: _Reader(self._link, self._read, self._end, self._link.limit), sock=self._sock
        )
        await self._ended

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _read(self, frame: Frame) -> None:
        if frame.kind == Kind.START:
            self._job(self._start(frame))
        elif frame.kind == Kind.CALL:
            self._call(frame)
        elif frame.kind == Kind.HOOK:
            self._job(self._hook(frame))
        elif frame.kind == Kind.GIVEN_UP and (reply := self._replies.get(frame.call)) is not None:
            reply.give_up()

    def _job(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    def forked(self, watched: int) -> None:
        """Let go of the connection, in a child that the actor's code has forked.

        The child would otherwise read its parent's messages and answer them, and keep the connection open after its end.

        Args:
            watched: the other file descriptor of the connection.
        """
        if self._link.fd < 0:
            return  # a child of such a child, whose file descriptors are its own
        self._link.let_go()
        self._sock.close()
        os.close(watched)
        root = logging.getLogger()
        root.handlers[:] = [
            logging.StreamHandler() if isinstance(each, LogHandler) else each for each in root.handlers
        ]

    # -- the actor --------------------------------------------------------------------------------

    async def _start(self, frame: Frame) -> None:
        try:
            spec: Spec = decode(frame, "the actor's settings")
            self._link.limit = spec.limit
            self._prepare(spec)
            actor_class, args, kwargs, error = pickle.loads(spec.actor)  # noqa: S301 - from the parent, as all frames
            try:
                spec.limit_memory(actor_class.__qualname__)
            except ValueError as refusal:  # without a traceback: the mistake is not in this process
                self._link.send(Kind.DIED, 0, refusal.with_traceback(None), "the error")
                return
            system = ActorSystem(f"worker of {spec.path}", stop_grace=spec.stop_grace)
            forking.systems.discard(
                system
            )  # a child that the actor forks must not answer in its name: see forked()
            system.instrument(Taken(self._link))
            cell = WorkerCell(system, None, actor_class, args, kwargs, spec.name, STOP_ON_FAILURE)
            cell.link, cell.path, cell.restarted_for = self._link, spec.path, error
            cell.cut, cell.ending = None, False
            self._cell = cell
            await system.add(cell, system.top)
        except Exception as failure:
            self._link.fail(Kind.DIED, 0, failure)
            return
        self._link.send(Kind.DONE, 0, None, "")

    def _prepare(self, spec: Spec) -> None:
        """Set up this process."""
        spec.prepare()
        sys.modules["__main__"] = sys.modules["__mp_main__"] = _LazyMain(spec.main_name, spec.main_path)
        _log_to(self._link, spec.log_level)

    def _call(self, frame: Frame) -> None:
        assert self._cell is not None
        try:
            message, trace, asked = decode(frame, f"a message to {self._cell.path}")
        except NotPicklable as error:
            self._cell.failed_message = None  # of a message before
            self._link.fail(Kind.FAILED, frame.call, error)
            return
        except MemoryError:
            self._link.out_of_memory()
            raise
        self._replies[frame.call] = reply = Reply(self._link, frame.call, asked)
        with trace_as(None if trace is None else TraceContext.parse(trace)):
            self._put(self._cell, message, reply)

    def _put(self, cell: WorkerCell, message: Any, reply: Reply) -> None:
        envelope = (message, reply, cell.clock(), *origin())
        reply.target = cell
        mailbox = cast("WorkerMailbox", cell.mailbox)
        if not mailbox.put_call(envelope):
            reply.try_fail(mailbox.dead(envelope))

    async def _hook(self, frame: Frame) -> None:
        cell = self._cell
        assert cell is not None
        try:
            name, args = decode(frame, "a hook's arguments")
            if name == "on_stop":
                await self._stop(cell)
            else:
                await self._last_hook(cell, name, args)
        except BaseException as error:
            self._link.fail(Kind.FAILED, frame.call, error)
        else:
            self._link.send(Kind.DONE, frame.call, None, "")

    async def _last_hook(self, cell: WorkerCell, name: str, args: tuple[Any, ...]) -> None:
        """Run one of the last hooks after a failure; before the first one, end all else that belongs to the life."""
        if name == "on_failure":
            await cell.end_work()
        try:
            await asyncio.get_running_loop().create_task(cell.call(name, *args), context=cell.context)
        finally:
            await termination.stop_children(cell)  # those that the hook has spawned

    async def _stop(self, cell: WorkerCell) -> None:
        """Stop the actor; its handler has had its grace in the parent, and is cancelled."""
        cell.ending = True
        for envelope in (*cell.mailbox, *(cell.stashed or ())):
            if isinstance(envelope[1], Reply) and not envelope[1].wanted:
                envelope[1].give_up()  # told, and put aside: the parent has these messages, and reports them
        stopping = asyncio.ensure_future(cell.system.stop())
        await asyncio.sleep(0)
        if cell.task is not None:
            cell.task.cancel()
        await stopping


def _log_to(link: Link, level: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = [LogHandler(link)]
    root.setLevel(level)
    # The parent reports what an asker got; once is enough.
    logging.getLogger("pykka").setLevel(max(level, logging.WARNING))


def _end_with_parent(fd: int) -> None:
    """Wait until the other end of the connection is closed, then give the loop a moment to end orderly."""
    hung_up = select.poll()
    hung_up.register(fd, 0)
    hung_up.poll()
    threading.Event().wait(1.0)
    os._exit(PARENT_IS_GONE)


def _die_with_parent() -> None:
    if sys.platform == "linux" and "ACTORS_NO_PDEATHSIG" not in os.environ:  # a test of the thread
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main(fd: int) -> None:
    """Run the worker.

    Args:
        fd: the file descriptor of the connection to the parent.
    """
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    cast("io.TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    watched = os.dup(fd)
    threading.Thread(target=_end_with_parent, args=(watched,), name="parent", daemon=True).start()
    worker = Worker(socket.socket(fileno=fd))
    os.register_at_fork(after_in_child=lambda: worker.forked(watched))
    asyncio.run(worker.serve())

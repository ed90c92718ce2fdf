"""The parent's half of a process actor: sends one message at a time to the worker, and waits for its end."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import pickle
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from actors._actor import Actor
from actors._core.accounting import account
from actors._core.dead_letters import publish_dropped
from actors._core.error_text import str_of, words_of
from actors._core.interruption import of_program
from actors._core.lifecycle import RESTARTING, RUNNING, STARTING, stop_grace
from actors._core.log_safely import log_safely
from actors._errors import ActorError
from actors.process import main as worker_main
from actors.process.frames import Kind, NotPicklable, encode
from actors.process.spec import Spec, main_program
from actors.process.worker import WorkerDied, WorkerProcess

if TYPE_CHECKING:
    from actors._core.envelope import Envelope
    from actors._future import Future
    from actors.process.actor import ProcessActor

logger = logging.getLogger("actors")


class Host(Actor):
    """The parent's half of a process actor.

    Args:
        args: for the constructor of the actor in the worker.
        kwargs: for it, too.

    Raises:
        NotPicklable: the class or the arguments cannot be pickled, or no worker could import the class.
    """

    hosted: ClassVar[type[ProcessActor]]
    _worker: WorkerProcess | None = None

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self._arguments = args, kwargs
        self._restarted_for: BaseException | None = None
        self._died: BaseException | None = None
        self._sent: tuple[Envelope, int, asyncio.Future[Any]] | None = None
        """The last message that the worker got, with its call and the answer."""
        if self.hosted.__module__ == "__main__" and main_program() == (None, None):
            raise NotPicklable(
                f"{self.hosted.__qualname__} is in a main program that a worker process cannot import (from standard input, "
                "-c, a session or a package's __main__): put it into a module"
            )
        self._pickled(None)  # a mistake is the spawner's

    def _pickled(self, error: BaseException | None) -> bytes:
        what = f"{self.hosted.__qualname__} with its arguments"
        try:
            return pickle.dumps((self.hosted, *self._arguments, error), pickle.HIGHEST_PROTOCOL)
        except BaseException as failure:  # also SystemExit, of an object's own code
            if of_program(failure):
                raise
            raise NotPicklable(f"{what} cannot be pickled: {str_of(failure)}") from failure

    # -- the life ---------------------------------------------------------------------------------

    def after_restart(self, error: BaseException) -> None:
        """Keep the error for the worker's ``after_restart``, which runs before its ``on_start``."""
        self._restarted_for = _sendable(error)

    async def on_start(self) -> None:  # type: ignore[override]
        """Launch the worker."""
        if worker_main.loading_main:
            raise RuntimeError(
                "the main program starts process actors when it is imported; "
                'put what it does under if __name__ == "__main__":'
            )
        loop = asyncio.get_running_loop()
        self._worker = worker = WorkerProcess(
            loop,
            self.path,
            self.hosted.max_message,
            on_taken=self._taken,
            on_failed=self._tell_failed,
            on_died=self._actor_died,
            on_leave=self.stop,
        )
        spec = encode(Kind.START, 0, self._spec(), "the settings of the worker", sys.maxsize)
        try:
            async with asyncio.timeout(self.hosted.start_timeout) as limit:
                await worker.start(spec)
        except TimeoutError:
            self.kill()
            if not limit.expired():
                raise  # the actor's own
            raise WorkerDied(
                f"{self.path}: its worker process was not ready after {self.hosted.start_timeout:g} s, and is killed",
                worker.pid,
                None,
            ) from None
        except BaseException:
            self.kill()
            raise
        if self._died is not None:
            raise self._died
        self.start_task(self._watch(worker))

    def _spec(self) -> Spec:
        name, path = main_program()
        return Spec(
            path=self.path,
            name=self._cell.name,
            actor=self._pickled(self._restarted_for),
            limit=self.hosted.max_message,
            memory=self.hosted.memory_limit,
            stop_grace=stop_grace(self._cell),
            log_level=logging.getLogger().getEffectiveLevel(),
            sys_path=tuple(each or os.getcwd() for each in sys.path),
            argv=tuple(sys.argv),
            directory=os.getcwd(),
            main_name=name,
            main_path=path,
        )

    async def _watch(self, worker: WorkerProcess) -> None:
        """Fail when the process ends by itself."""
        error = await worker.death()
        cell = self._cell
        envelope, sent = cell.envelope, self._sent
        if envelope is not None:
            if cell.state is RUNNING and worker.unsent and sent is not None and sent[0] is envelope:
                self._put_back(envelope)
            else:
                cell.failed_message = envelope[0]
        if cell.reply is not None:
            cell.reply.try_fail(error)
        # Not raised: SystemExit out of a task would end this program's loop.
        cell.fail(error, "task")
        self._expect_no_answer()

    def _actor_died(self, error: BaseException, call: int) -> None:
        """Fail, before this actor's own task takes the next message: the worker would not handle it.

        Args:
            error: the failure of the actor in the worker.
            call: the call that was being handled there; 0 if none was.
        """
        cell = self._cell
        if cell.actor is not self or cell.state is RESTARTING or cell.error is not None:
            return  # it has failed already
        if cell.state is STARTING:
            self._died = error  # on_start goes on with it
            return
        envelope = cell.envelope
        if cell.state is RUNNING and envelope is not None:
            sent, number, answer = self._sent or (None, 0, None)
            if sent is envelope and answer is not None and answer.done() and not answer.cancelled():
                self._answered(envelope, answer)
                if cell.state is not RUNNING:
                    return
            elif sent is envelope and number == call:
                cell.failed_message = envelope[0]
            else:
                self._put_back(envelope)
        # Not raised: SystemExit out of a task would end this program's loop.
        cell.fail(error, "task")
        self._expect_no_answer()

    def _expect_no_answer(self) -> None:
        """End the handler here: the worker has failed, and answers no more. A stop would wait for it."""
        if self._sent is not None:
            self._sent[2].cancel()

    def _put_back(self, envelope: Envelope) -> None:
        """Leave a message that no handler has seen to the next process."""
        cell = self._cell
        if cell.hooks is not None:
            cell.hooks.ended(cell, envelope, cell.began, cell.clock(), asyncio.CancelledError())
        cell.envelope = cell.reply = None
        cell.mailbox.normal.appendleft(envelope)

    def _answered(self, envelope: Envelope, answer: asyncio.Future[Any]) -> None:
        """Do for a message what its handler here, which has not gone on yet, would do with the answer."""
        cell, error = self._cell, answer.exception()
        if error is None and cell.reply is not None:
            cell.reply.try_set(answer.result())
        account(cell, envelope, cell.began, error)
        if error is not None:
            cell.handler_failed(envelope, error)

    def _tell_failed(self, error: BaseException) -> None:
        """Fail for a told message that the actor had put aside: nobody else hears of it."""
        if self._cell.actor is self:
            self._cell.fail(error, "on_receive", resumable=True)

    # -- messages -----------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> Any:
        """Have the worker handle a message."""
        return self._forward(message)

    def _handle_receive(self, message: Any) -> Any:  # pykka's: a call of a proxy
        return self._forward(message)

    async def _forward(self, message: Any) -> Any:
        worker, cell = self._worker, self._cell
        assert worker is not None
        header = None if cell.trace is None else cell.trace.header
        asked = cell.reply is not None
        try:
            answer = worker.call(
                Kind.CALL, (message, header, asked), f"the {type(message).__name__} to {self.path}"
            )
        except NotPicklable as error:
            if asked:
                raise
            log_safely(logger.error, "%s: %s; it is dropped", self.path, error)
            publish_dropped(cell, (message, None, 0, None, None, None), "cannot be pickled")
            return None
        self._sent = cast("Envelope", cell.envelope), worker.last_call, answer
        try:
            return await answer
        finally:
            self._sent = None

    def _taken(self) -> Future[Any] | Callable[[], None]:
        cell = self._cell
        if cell.reply is not None:
            return self.take_reply()
        put_aside = cast("Envelope", cell.envelope)
        if cell.stashed is None:
            cell.stashed = []
        cell.stashed.append(put_aside)
        return functools.partial(self._came_back, put_aside)

    def _came_back(self, put_aside: Envelope) -> None:
        """Forget a told message that the actor in the worker had put aside, and has handled now."""
        stashed = self._cell.stashed or []
        for index, each in enumerate(stashed):  # most are handled in order
            if each is put_aside:
                del stashed[index]
                return

    # -- the end ----------------------------------------------------------------------------------

    async def on_stop(self) -> None:  # type: ignore[override]
        """Run the worker's ``on_stop``, then end the process."""
        await self._last_hook("on_stop", ())

    async def on_failure(self, *failure: Any) -> None:  # type: ignore[override]
        """Run the worker's ``on_failure`` if the process is alive."""
        kind, error, _ = failure
        sent = _sendable(error)
        args = (type(sent) if sent is not error else kind, sent, None)
        # Before a restart, before_restart() comes yet.
        await self._last_hook("on_failure", args, ends=self._cell.error is not None)

    async def before_restart(self, error: BaseException) -> None:
        """Run the worker's ``before_restart`` if the process is alive, then end it."""
        await self._last_hook("before_restart", (_sendable(error),))

    async def _last_hook(self, name: str, args: tuple[Any, ...], *, ends: bool = True) -> None:
        """Run one of the last hooks of the worker's actor; then end the process, whatever came of the hook.

        Args:
            name: the hook's.
            args: for it.
            ends: whether it is the last one, so that the process ends.
        """
        try:
            await self._run_hook(name, args)
        except asyncio.CancelledError:  # its time is over
            if ends:
                self.kill()
            raise
        except GeneratorExit:  # the loop is gone: nothing can be awaited
            ends = False
            self.kill()
            raise
        finally:
            if ends:
                await self._end()

    async def _run_hook(self, name: str, args: tuple[Any, ...]) -> None:
        worker = self._worker
        if worker is None or worker.exited.done() or not _is_ready(worker):
            return
        answer = worker.call(Kind.HOOK, (name, args), f"the argument of {name}()")
        await asyncio.wait(
            [answer, worker.exited],
            timeout=self.hosted.stop_timeout,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if answer.done():
            answer.result()
        elif not worker.exited.done():
            log_safely(
                logger.warning, "%s: %s() is not done after %g s", self.path, name, self.hosted.stop_timeout
            )
            self.kill()

    async def _end(self) -> None:
        try:
            if self._worker is not None:
                await self._worker.end(self.hosted.stop_timeout)
        except asyncio.CancelledError:
            self.kill()
            self._drop_what_was_put_aside()
            raise
        self._drop_what_was_put_aside()

    def _drop_what_was_put_aside(self) -> None:
        """Before a restart, report the told messages that end with the process: the next one might fail of them, too."""
        cell = self._cell
        if cell.state is not RESTARTING:
            return
        put_aside, cell.stashed = cell.stashed, None
        for envelope in put_aside or ():
            publish_dropped(cell, envelope, "put aside in a worker that has ended")

    def kill(self) -> None:
        """Kill the process if there is one."""
        if self._worker is not None:
            self._worker.kill()


def _is_ready(worker: WorkerProcess) -> bool:
    return worker.ready.done() and not worker.ready.cancelled() and worker.ready.exception() is None


def _sendable(error: BaseException) -> BaseException:
    """Return the error, or its text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except BaseException as failure:  # also SystemExit, of an object's own code
        if of_program(failure):
            raise
        return ActorError(words_of(error))
    return error

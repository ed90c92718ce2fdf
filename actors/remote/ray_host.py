"""The half of :mod:`actors.ray` that runs in a Ray worker: a system with one actor. It does not import Ray."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from typing import Any

from actors._actor import Actor
from actors._core.error_text import str_of
from actors._core.log_safely import log_safely
from actors._future import Future
from actors._policy import Supervision
from actors._ref import ActorRef
from actors._system import ActorSystem
from actors._trace import TraceContext, trace_as
from actors.remote.errors import RemoteError

logger = logging.getLogger("actors.ray")

GAVE_UP = 96
"""Exit code of a Ray worker whose actor has escalated; Ray may restart it."""


class Host:
    """Runs in the Ray worker: a system with one actor.

    Args:
        actor_class: the user's actor.
        args: for its constructor.
        kwargs: for it, too.
        supervision: of its instance, in this worker.
    """

    def __init__(
        self,
        actor_class: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        supervision: Supervision,
    ) -> None:
        self._what = actor_class, args, kwargs, supervision
        self._system: ActorSystem | None = None
        self._ref: ActorRef[Any] | None = None
        self._lock = asyncio.Lock()

    async def _started(self) -> ActorRef[Any]:
        if self._ref is None:
            async with self._lock:
                if self._ref is None:
                    actor_class, args, kwargs, supervision = self._what
                    self._system = ActorSystem("ray")
                    self._system.failure.add_done_callback(_exit)
                    self._ref = self._system.spawn(actor_class, *args, supervision=supervision, **kwargs)
        return self._ref

    async def handle(
        self, message: Any, trace: str | None, asked: bool, timeout: float
    ) -> tuple[Any, BaseException | None]:
        """Give the actor a message; return its value and error."""
        answer: Future[Any] | None = None
        try:
            ref = await self._started()
            with trace_as(None if trace is None else TraceContext.parse(trace)):
                if not asked:
                    ref.tell(message)
                    return None, None
                answer = ref.ask(message, block=False, timeout=timeout)
            return await answer, None
        except BaseException as error:
            # The actor's own exit, also out of its constructor, must not end this program; what hits this task is no answer.
            exits = isinstance(error, SystemExit) if answer is None else error is answer.exception()
            if not (exits or isinstance(error, Exception)):
                raise
            return None, _portable(error)

    async def until_end(self) -> BaseException | None:
        """Wait until the actor has stopped for good; return its last failure."""
        try:
            ref = await self._started()
        except Exception as error:
            return _portable(error)
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        assert self._system is not None
        watcher = self._system.spawn(_Watcher, ref, ended)
        try:
            failure = await ended
        finally:
            watcher.stop(block=False)
        return None if failure is None else _portable(failure)

    async def stop(self) -> None:
        """Stop the actor, with its last hook."""
        if self._system is not None:
            await self._system.stop(self._system.stop_timeout)


class _Watcher(Actor):
    def __init__(self, ref: ActorRef[Any], ended: asyncio.Future[BaseException | None]) -> None:
        super().__init__()
        self._watched, self._ended = ref, ended

    def on_start(self) -> None:
        self.watch(self._watched)

    def on_receive(self, message: Any) -> None:
        if not self._ended.done():
            self._ended.set_result(message.error)


def _exit(failure: asyncio.Future[Any]) -> None:
    if not failure.cancelled():
        log_safely(logger.error, "the actor gave up, so its Ray worker exits: %s", failure.result())
        os._exit(GAVE_UP)


def _portable(error: BaseException) -> BaseException:
    """Make the error that the asker gets: one that can be pickled, and neither ends nor cancels what awaits it."""
    error.__traceback__ = None
    if not isinstance(error, Exception):
        return RemoteError(type(error).__name__, str_of(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:
        return RemoteError(type(error).__name__, str_of(error))
    return error

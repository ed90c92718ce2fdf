"""Actors placed on Ray: any actor class in a Ray worker, somewhere in the cluster (extra ``ray``).

    transport = RayTransport()                      # after ray.init()
    counter = transport.spawn(Counter, 3, supervision=POLICY, options={"num_cpus": 1})
    await counter.ask(Add(1), block=False)

In the Ray worker the actor lives in a system of its own, with its mailbox. Its supervision restarts the instance
there; when that gives up, the worker process exits, and Ray's ``max_restarts`` decides: the message at hand and the mailbox
are lost then.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import ray
import ray.exceptions
from pykka import ActorDeadError, Timeout

from actors._actor import Actor
from actors._checks import count, seconds
from actors._core.interruption import failed_itself
from actors._core.log_safely import log_safely
from actors._errors import MailboxFull, NoAnswer
from actors._future import Future
from actors._policy import Backoff, Supervision
from actors._trace import TraceContext
from actors.remote.codec import BadPayload
from actors.remote.errors import ConnectionLost, RemoteError
from actors.remote.ray_host import Host
from actors.remote.ref import RemoteRef, Transport

logger = logging.getLogger("actors.ray")

OnEnd: TypeAlias = "Callable[[BaseException | None], None]"

MAX_ENDED = 1_000
"""Stopped actors whose last failure is remembered."""

_AGAIN = Backoff(first=0.1, most=5.0)
"""Pauses of a watch while Ray restarts the worker."""

_LOOK_AGAIN = 0.05
"""Seconds after which to try again whether Ray takes a message."""

_random = random.Random()


class RayTransport(Transport):
    """Places actors on Ray and carries their messages. Ray is initialised by the program. On one event loop.

    Args:
        max_pending: messages whose handling has not been confirmed, asks and tells; one more is ``MailboxFull``.
        ask_timeout: seconds for an ask without a timeout of its own.

    Raises:
        ValueError: a number is too small.
        TypeError: it is none.
    """

    def __init__(self, *, max_pending: int = 10_000, ask_timeout: float = 30.0) -> None:
        count("max_pending", max_pending, 1)
        seconds("ask_timeout", ask_timeout, above_zero=True)
        self.ask_timeout, self.max_pending = ask_timeout, max_pending
        self._loop = asyncio.get_running_loop()
        self._handles: dict[str, Any] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._listeners: dict[str, dict[int, OnEnd]] = {}
        self._ended: dict[str, BaseException | None] = {}
        self._pending = self._last = 0
        self._refused = False
        """Whether Ray has refused the last message, by a bound of its own."""
        self._lock = threading.Lock()
        self._room = asyncio.Event()
        """A message counts no more as unconfirmed."""
        self._progress = asyncio.Event()
        """One that Ray had taken does not: then Ray may take another one."""

    def spawn(
        self,
        actor_class: type[Actor],
        *args: Any,
        supervision: Supervision | None = None,
        max_restarts: int | None = None,
        options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> RemoteRef:
        """Place an actor on Ray; return before it runs.

        Args:
            actor_class: its class; the Ray worker must be able to import it, or Ray pickles it.
            args: for its constructor, at each start.
            supervision: how the actor's failures are treated in its worker; None takes ``Supervision()``.
            max_restarts: restarts of its worker process, in all, not within a window; None takes the
                ``restarts`` of the supervision's intensity.
            options: for Ray's ``options``, such as ``num_cpus``, ``resources``, ``runtime_env``.
            kwargs: for its constructor.

        Raises:
            BadPayload: the class or the arguments cannot be pickled.
        """
        policy = supervision or Supervision()
        limit = policy.intensity.restarts if max_restarts is None else max_restarts
        remote = ray.remote(Host).options(
            max_restarts=limit, max_task_retries=0, max_concurrency=self.max_pending + 100, **(options or {})
        )
        try:
            handle = remote.remote(actor_class, args, kwargs, policy)
        except TypeError as error:
            raise BadPayload(
                f"{actor_class.__qualname__} with its arguments cannot be pickled: {error}"
            ) from error
        self._last += 1
        address = f"{actor_class.__name__}-{self._last}"
        self._handles[address] = handle
        self._watches[address] = self._loop.create_task(self._watch(address, handle))
        return RemoteRef(self, address)

    def submit(
        self,
        address: str,
        message: Any,
        reply: Future[Any] | None,
        timeout: float,
        trace: TraceContext | None,
    ) -> None:
        """See :meth:`Transport.submit`."""
        handle = self._handles.get(address)
        if handle is None:
            dead = ActorDeadError(f"{address} has stopped")
            dead.__cause__ = self._ended.get(address)
            raise dead
        with self._lock:
            if self._pending >= self.max_pending:
                raise MailboxFull(f"{self.max_pending} messages to Ray are not confirmed")
            self._pending += 1
        try:
            call = handle.handle.remote(message, trace and trace.header, reply is not None, timeout)
        except Exception as error:
            self._confirmed()
            if isinstance(error, ray.exceptions.RayActorError):  # not sent
                raise _dead(address, error) from error
            if isinstance(error, ray.exceptions.PendingCallsLimitExceeded):  # the option max_pending_calls
                self._refused = True
                raise MailboxFull(f"{address} has max_pending_calls: {_first_line(error)}") from error
            raise BadPayload(f"the {type(message).__name__} to {address} cannot be sent: {error}") from error
        call.future().add_done_callback(functools.partial(self._done, address, reply))
        if reply is not None:
            self._on_loop(self._expire_later, reply, timeout)

    def _on_loop(self, call: Callable[..., object], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(call, *args)

    def _expire_later(self, reply: Future[Any], timeout: float) -> None:
        if not reply.done():
            reply.expires(self._loop.call_later(timeout, reply.try_fail, Timeout(f"{timeout} seconds")))

    def _done(self, address: str, reply: Future[Any] | None, done: Any) -> None:
        self._on_loop(self._settle, address, reply, done)  # from a thread of Ray's

    def _settle(self, address: str, reply: Future[Any] | None, done: Any) -> None:
        self._confirmed()
        self._progress.set()
        value, error = None, done.exception()
        if error is None:
            value, error = done.result()
        else:
            error = _unanswered(address, error)
        if reply is None:
            if error is not None:
                log_safely(logger.warning, "a message to %s is lost: %s", address, error)
        elif error is None:
            reply.try_set(value)
        else:
            reply.try_fail(error)

    def _confirmed(self) -> None:
        with self._lock:
            self._pending -= 1
        self._on_loop(self._room.set)

    async def room(self) -> None:
        """See :meth:`Transport.room`."""
        if self._refused:  # one that is confirmed makes room, if it is not another actor's, or Ray's own call
            self._refused = False
            await self._refusal_over()
        while self._pending >= self.max_pending:
            self._room.clear()
            await self._room.wait()

    async def _refusal_over(self) -> None:
        """Wait until it makes sense to try again what Ray has refused."""
        self._progress.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN):
                await self._progress.wait()

    # -- the end ----------------------------------------------------------------------------------

    def watch(self, address: str, on_end: OnEnd) -> Callable[[], None]:
        """See :meth:`Transport.watch`. A restart by Ray is not a stop."""
        if address not in self._handles:
            self._loop.call_soon(on_end, self._ended.get(address))
            return lambda: None
        listeners = self._listeners.setdefault(address, {})
        key = id(on_end)
        listeners[key] = on_end
        return lambda: listeners.pop(key, None) and None

    async def _watch(self, address: str, handle: Any) -> None:
        failures = 0
        while True:
            try:
                self._forget(address, await handle.until_end.remote())
                return
            except ray.exceptions.ActorDiedError as died:
                self._forget(address, _dead(address, died))
                return
            except ray.exceptions.RayError:  # Ray restarts it, or its node is not reached
                failures += 1
                await asyncio.sleep(_AGAIN.delay(failures, _random))

    def _forget(self, address: str, error: BaseException | None) -> None:
        handle = self._handles.pop(address, None)
        self._watches.pop(address, None)
        if handle is None:
            return
        ray.kill(handle, no_restart=True)
        if error is not None:
            self._ended[address] = error
            while len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        for on_end in tuple(self._listeners.pop(address, {}).values()):
            try:
                on_end(error)
            except BaseException as failure:  # the others hear all the same
                if failed_itself(failure):
                    log_safely(logger.exception, "%r, which watches %s, failed", on_end, address)

    async def stop(self, ref: RemoteRef, timeout: float = 60.0) -> bool:
        """Stop an actor after its last hook; kill its worker after ``timeout`` seconds.

        Args:
            ref: the actor, placed by this transport.
            timeout: seconds for the last hook, and all that comes before it.

        Returns:
            False if it had stopped already.
        """
        handle = self._handles.get(ref.address)
        if handle is None:
            return False
        with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
            async with asyncio.timeout(timeout):
                await self._call_stop(handle)
        watch = self._watches.get(ref.address)
        if watch is not None:
            watch.cancel()
        self._forget(ref.address, None)
        return True

    async def _call_stop(self, handle: Any) -> None:
        while True:
            try:
                call = handle.stop.remote()
            except ray.exceptions.PendingCallsLimitExceeded:  # the actor is busy
                await self._refusal_over()
            else:
                await call
                return

    async def close(self, timeout: float = 60.0) -> None:
        """Stop all actors that this transport has placed."""
        await asyncio.gather(*(self.stop(RemoteRef(self, each), timeout) for each in tuple(self._handles)))


_GONE = (
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.OutOfMemoryError,
    ray.exceptions.WorkerCrashedError,
)
"""Ray's errors when a process, a node or a reply is gone, but not the actor."""


def _dead(address: str, error: BaseException, kind: type[ActorDeadError] = ActorDeadError) -> ActorDeadError:
    return kind(f"{address} died: {_first_line(error)}")


def _unanswered(address: str, error: BaseException) -> BaseException:
    """Translate the error that Ray returns for a message that was sent, in place of the host's answer."""
    if isinstance(error, (ray.exceptions.ActorUnavailableError, *_GONE)):
        return ConnectionLost(
            f"{address} cannot be reached; whether it has handled the message is unknown: {_first_line(error)}"
        )
    if isinstance(error, ray.exceptions.RayActorError):
        # Ray does not tell whether the worker had begun with it, but for one that never ran.
        return _dead(address, error, ActorDeadError if error.actor_init_failed else NoAnswer)
    return RemoteError(type(error).__name__, _first_line(error))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

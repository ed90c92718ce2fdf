"""The supervisor of a number of equal workers.

It keeps their number constant and tells the router who they are. Messages do not pass through it: see
:mod:`actors._router`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pykka import ActorDeadError

from actors._actor import Actor
from actors._checks import one_of
from actors._core.closing import close_if_empty
from actors._core.crash_reports import report
from actors._core.interruption import as_failure
from actors._core.lifecycle import check_class, spawn_child
from actors._dispatch import handles
from actors._errors import Escalated
from actors._policy import ESCALATE, RestartHistory, Supervision
from actors._pool_messages import Resize, StopPool
from actors._router import Router, router_by
from actors._routing import Routing

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._future import Future
    from actors._ref import ActorRef

A = TypeVar("A", bound=Actor)

FIRST_LOOK, LAST_LOOK = 0.001, 0.05
"""Seconds between checks whether leaving workers are done: doubled from the first to the last."""


@dataclass(frozen=True, slots=True)
class _Replace:
    """Timer message: start a new worker in the place of a failed one."""

    place: int


class _CheckLeaving:
    """Timer message: check whether the leaving workers are done."""


_CHECK_LEAVING = _CheckLeaving()


class Pool(Actor):
    """Keeps a number of workers alive; made by ``spawn_pool``, which returns its router.

    A worker that fails is restarted as ``supervision`` says, and keeps its ref and mailbox. A worker
    that has stopped for good (by itself, by ``ref.stop()``, by a directive) is replaced: at once if it
    was stopped, after ``supervision.backoff`` if it failed. The messages in its mailbox become dead
    letters. More restarts or replacements than ``supervision.intensity`` allows are a failure of the pool
    (:class:`Escalated`), which the pool's parent gets as if the workers were its own children.

    Args:
        router: told who the workers are; knows how many there should be.
        worker: the workers' class.
        args: for its constructor.
        kwargs: for its constructor.
        workers: how to supervise the workers.
    """

    def __init__(
        self,
        router: Router[Any],
        worker: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        workers: Supervision,
    ) -> None:
        super().__init__()
        self.supervision = workers
        self._router = router
        self._worker, self._args, self._kwargs = worker, args, kwargs
        self._places: dict[int, ActorRef[Any]] = {}
        self._leaving: set[ActorRef[Any]] = set()
        self._resizes: list[tuple[set[ActorRef[Any]], int, Future[int]]] = []
        self._history = RestartHistory()
        self._stopping = False
        self._pause = FIRST_LOOK
        router.leaving = 0
        # In the constructor, so that a failure goes to the caller of spawn_pool, and the workers take
        # messages as soon as there is a router. A restart of the pool runs it again.
        self._fill(router.wanted)

    # -- coming ---------------------------------------------------------------------------------

    def _fill(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a pool has one worker at least, not {size}")
        new: dict[int, ActorRef[Any]] = {}
        try:
            for place in range(size):
                if place not in self._places:
                    new[place] = self._spawn_worker(place)
        except BaseException:
            for ref in new.values():
                ref.stop(block=False)
            raise
        self._places.update(new)
        self._router.wanted = size
        self._publish()

    def _spawn_worker(self, place: int) -> ActorRef[Any]:
        name = self.free_name(f"{self._worker.__name__}-{place}")
        return spawn_child(self._cell, self._worker, self._args, self._kwargs, name, self.supervision)

    def _publish(self) -> None:
        places = sorted(self._places)
        self._router.publish(
            tuple(self._places[place] for place in places), tuple(str(place) for place in places)
        )

    @handles(Resize)
    def _resize(self, message: Resize) -> int | None:
        if self._stopping:
            raise ActorDeadError(f"{self.actor_ref} is stopping")
        size = message.size
        self._fill(size)
        surplus = [place for place in self._places if place >= size]
        if not surplus:
            return size
        gone = {self._places[place] for place in surplus}
        self._resizes.append((gone, size, self.take_reply(message)))
        self._leave(surplus)
        return None

    # -- leaving --------------------------------------------------------------------------------

    @handles(StopPool)
    def _stop_asked(self, _: StopPool) -> None:
        self.take_reply()  # settled by the pool's end
        self._stopping = True
        self._leave(list(self._places))

    def _leave(self, places: list[int]) -> None:
        for place in sorted(places, reverse=True):
            self._leaving.add(self._places.pop(place))
        self._publish()
        self._pause = FIRST_LOOK
        self._check_leaving(_CHECK_LEAVING)

    @handles(_CheckLeaving)
    def _check_leaving(self, _: _CheckLeaving) -> None:
        # Not ref.stop(): a thread that chose the worker before it left, or a sender that waits for room,
        # would put its message behind the request to stop, where it would be lost.
        busy = [ref for ref in self._leaving if ref.is_alive() and not _close_if_done(ref._cell)]
        if busy:
            self.set_timer(_CheckLeaving, self._pause, _CHECK_LEAVING)
            self._pause = min(self._pause * 2, LAST_LOOK)
        self._settle()

    def on_child_stopped(self, ref: ActorRef[Any]) -> None:
        """Replace a worker that has stopped, unless it was to leave."""
        self._leaving.discard(ref)
        place = next((place for place, worker in self._places.items() if worker is ref), None)
        if place is not None:
            del self._places[place]
            self._lost(place, ref)
        self._settle()

    def _settle(self) -> None:
        self._router.leaving = len(self._leaving)
        waiting, self._resizes = self._resizes, []
        for gone, size, reply in waiting:
            left = gone & self._leaving
            if left:
                self._resizes.append((left, size, reply))
            else:
                reply.try_set(size)
        if self._stopping and not self._leaving:
            self.stop()

    # -- replacing ------------------------------------------------------------------------------

    def _lost(self, place: int, ref: ActorRef[Any]) -> None:
        self._publish()
        self._replace_after(ref._cell.error, place, ref.path)

    def _replace_after(self, error: BaseException | None, place: int, path: str) -> None:
        """Have a worker replaced: at once if it was stopped, after a pause if it failed.

        Args:
            error: its failure, or what its constructor has raised; None if it was stopped.
            place: the worker's.
            path: its path.

        Raises:
            Escalated: too many workers were lost.
        """
        history = self._history
        count = history.record(self._cell.loop.time(), self.supervision)
        if history.exceeded(self.supervision):
            window = self.supervision.intensity.window
            raise Escalated(
                path, f"{count} workers of the pool stopped for good within {window:g} s"
            ) from error
        if error is None:
            self._replace(_Replace(place))
        else:
            pause = self.supervision.backoff.delay(history.in_a_row, self.system.rng)
            self.set_timer(_Replace(place), pause, _Replace(place))

    @handles(_Replace)
    def _replace(self, message: _Replace) -> None:
        place = message.place
        if self._stopping or place in self._places or place >= self._router.wanted:
            return
        try:
            self._places[place] = self._spawn_worker(place)
        except BaseException as failure:  # a constructor's: as at a restart of a worker
            error = as_failure(self._cell, failure)
            report(self._cell, error, "restart")
            self._replace_after(error, place, f"{self.path}/{self._worker.__name__}-{place}")
            return
        self._router.replaced += 1
        self._publish()


def _close_if_done(cell: Cell) -> bool:
    """Stop an actor that has nothing left to do; tell whether it was so.

    One lock covers the look into the mailbox and its closing: a message that is sent at this moment is
    either in before, and the actor goes on, or it is refused.
    """
    if cell.task is not None or cell.envelope is not None:
        return False
    if not close_if_empty(cell.mailbox):
        return False
    cell.request_stop()
    return True


def start_pool(
    spawn: Callable[..., ActorRef[Any]],
    actor_class: type[A],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    size: int,
    routing: Routing,
    name: str | None,
    workers: Supervision,
) -> Router[A]:
    """Start a pool and return its router; see :meth:`actors.Actor.spawn_pool`.

    Args:
        spawn: starts the pool's actor: the ``spawn`` of its parent or of the system.
        actor_class: the workers' class.
        args: for its constructor.
        kwargs: for its constructor.
        size: how many workers.
        routing: chooses a message's worker.
        name: the pool's name; None generates one.
        workers: how the pool supervises the workers.
    """
    check_class(actor_class)
    one_of("a pool's size", size, int)
    one_of("supervision", workers, Supervision)
    router: Router[A] = router_by(routing, size)
    router.pool = spawn(Pool, router, actor_class, args, kwargs, workers, name=name, supervision=ESCALATE)
    return router

"""The supervisor of a number of equal workers.

Messages do not pass through it: see :mod:`actors._router`. It keeps the workers at their number, and
tells the router who they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from actors._actor import Actor
from actors._core.lifecycle import spawn_child
from actors._errors import Escalated
from actors._policy import RestartHistory, Supervision
from actors._pool_messages import Resize, StopPool

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._future import Future
    from actors._ref import ActorRef
    from actors._router import Router

FIRST_LOOK, LAST_LOOK = 0.001, 0.05
"""Seconds between two looks whether leaving workers are done: doubled from the first to the last."""


@dataclass(frozen=True, slots=True)
class _Replace:
    place: int


class _Look:
    """Timer message: see whether those that leave are done."""


class Pool(Actor):
    """Keeps a number of workers alive; made by ``spawn_pool``, which returns its router.

    A worker that fails is restarted as ``supervision`` says, and keeps its ref and mailbox. One that
    has stopped for good (by itself, by ``ref.stop()``, by a directive) is replaced in its place: at
    once if it was stopped, after ``supervision.backoff`` if it failed. What its mailbox held is dead
    letters. More than ``supervision.intensity`` allows of either is the pool's own failure
    (:class:`Escalated`), which its owner gets as if the workers were the owner's children.

    Args:
        router: is told who the workers are, and knows how many there should be.
        worker: their class.
        args: for its constructor.
        kwargs: for its constructor.
        workers: how to supervise them.
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
        self._resizes: list[tuple[set[ActorRef[Any]], int, Future[Any]]] = []
        self._history = RestartHistory()
        self._stopping = False
        self._pause = FIRST_LOOK
        router.leaving = 0
        # In the constructor: its failure goes to the caller of spawn_pool, and the workers take
        # messages as soon as there is a router. A restart of the pool comes through here again.
        self._fill(router.wanted)

    def on_receive(self, message: Any) -> Any:
        """Resize, stop, and what timers bring."""
        match message:
            case Resize(size):
                return self._resize(size)
            case StopPool():
                self.take_reply()  # settled by the pool's end
                self._stopping = True
                self._leave(list(self._places))
            case _Replace(place):
                self._replace(place)
            case _Look():
                self._look()
            case _:
                return super().on_receive(message)
        return None

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

    def _resize(self, size: int) -> int | None:
        if self._stopping:
            raise ActorDeadError(f"{self.actor_ref} is stopping")
        self._fill(size)
        surplus = [place for place in self._places if place >= size]
        if not surplus:
            return size
        gone = {self._places[place] for place in surplus}
        self._resizes.append((gone, size, self.take_reply()))
        self._leave(surplus)
        return None

    # -- leaving --------------------------------------------------------------------------------

    def _leave(self, places: list[int]) -> None:
        for place in sorted(places, reverse=True):
            self._leaving.add(self._places.pop(place))
        self._publish()
        self._pause = FIRST_LOOK
        self._look()

    def _look(self) -> None:
        # Not ref.stop(): a thread that had chosen the worker before it left, or a sender that waits
        # for room, would put its message behind the request to stop, and it would be lost.
        busy = [ref for ref in self._leaving if ref.is_alive() and not _close_if_done(ref._cell)]
        if busy:
            self.set_timer(_Look, self._pause, _Look())
            self._pause = min(self._pause * 2, LAST_LOOK)
        self._settle()

    def on_child_stopped(self, ref: ActorRef[Any]) -> None:
        """A worker is gone: expected, or to be replaced."""
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
        error = ref._cell.error
        history = self._history
        count = history.record(self._cell.loop.time(), self.supervision)
        if history.exceeded(self.supervision):
            window = self.supervision.intensity.window
            raise Escalated(
                ref.path, f"{count} workers of the pool stopped for good within {window:g} s"
            ) from error
        if error is None:
            self._replace(place)
        else:
            pause = self.supervision.backoff.delay(history.in_a_row, self.system.rng)
            self.set_timer(_Replace(place), pause, _Replace(place))

    def _replace(self, place: int) -> None:
        if self._stopping or place in self._places or place >= self._router.wanted:
            return
        self._places[place] = self._spawn_worker(place)
        self._router.replaced += 1
        self._publish()


def _close_if_done(cell: Cell) -> bool:
    """Stop an actor that has nothing left to do; whether it is so.

    Whoever puts at this moment is either in before (and the actor goes on) or is refused: the
    mailbox is seen empty and closed under one lock.
    """
    if cell.task is not None or cell.envelope is not None:
        return False
    if not cell.mailbox.close_if_empty():
        return False
    cell.request_stop()
    return True

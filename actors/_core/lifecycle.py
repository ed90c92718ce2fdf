"""The lives of an actor: states, birth, restart, children.

States: new -> starting -> running -> (restarting -> starting)* -> stopping -> stopped. Module
``termination`` ends a life, ``supervision`` decides on a restart.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any

import pykka
from pykka import ActorDeadError

from actors._checks import one_of
from actors._core.begun import task_of
from actors._core.context import bare, building
from actors._core.error_fields import is_a
from actors._core.interruption import as_failure, interrupted
from actors._errors import ActorError, SpawnRefused
from actors._events import ActorStarted
from actors._future import Future
from actors._policy import Supervision

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._core.cell import Cell
    from actors._ref import ActorRef

logger = logging.getLogger("actors")
pykka_logger = logging.getLogger("pykka")

NEW, STARTING, RUNNING, RESTARTING, STOPPING, STOPPED = (
    "new",
    "starting",
    "running",
    "restarting",
    "stopping",
    "stopped",
)

NO_CHILDREN: dict[str, Any] = {}
"""The children of all actors that have none; never changed."""

NO_KWARGS: dict[str, Any] = {}
"""The keyword arguments of all actors that were given none; never changed."""


class StopFlag:
    """Tell whether the actor has stopped; stands in for the ``threading.Event`` that pykka keeps."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Tell whether the actor has stopped."""
        return self._set

    def set(self) -> None:
        """Mark the actor as stopped."""
        self._set = True
        if self._event is not None:
            self._event.set()

    def set_quietly(self) -> None:
        """Mark the actor as stopped after a fork, where the event may be locked for ever."""
        self._set, self._event = True, None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait in a thread until the actor has stopped, ``timeout`` seconds at most; tell whether it has."""
        if not self._set and self._event is None:
            self._event = threading.Event()  # either set() sees it, or the next line sees _set
        return self._set or self._event is None or self._event.wait(timeout)


def stop_grace(cell: Cell) -> float:
    """Return the seconds that a handler may go on when the actor stops: the class's, or the system's."""
    own = cell.actor_class.stop_grace
    return cell.system.stop_grace if own is None else own


def hook_timeout(cell: Cell) -> float:
    """Return the seconds that each last hook may take: the class's, or the system's."""
    own = cell.actor_class.hook_timeout
    return cell.system.hook_timeout if own is None else own


# -- birth --------------------------------------------------------------------------------------


def create(cell: Cell) -> None:
    """Construct the actor's instance. The constructor's exception goes to the caller."""
    if cell.born is None and len(cell.context) > 1:
        cell.born = cell.context.copy()  # the spawner's variables, for each later life
    cell.context.run(_construct, cell)


def _construct(cell: Cell) -> None:
    cell.receive = cell.behaviours = None  # before the constructor, which may call become()
    token = building.set(cell)
    try:
        actor = cell.actor_class(*cell.args, **cell.kwargs)
    finally:
        building.reset(token)
    if (
        cell.actor is not actor and not cell.stopped_flag.is_set()
    ):  # stopped by its system, beside the constructor
        raise ActorError(f"{cell.actor_class.__name__}.__init__() did not call super().__init__()")


def begin(cell: Cell, before: BaseException | None = None) -> None:
    """Start this life: run ``on_start``, then handle messages. On the loop's thread.

    Args:
        cell: the actor's.
        before: the failure that ended the life before, for ``after_restart``; None in the first life.
    """
    if cell.state not in (NEW, RESTARTING):
        return
    cell.state = STARTING
    try:
        # A cell made in another thread may have missed a change of the instruments.
        cell.hooks = cell.mailbox.hooks = cell.system.hooks_in_use
        early, cell.early = cell.early, None
        if early is not None:
            cell.fail(*early)
        elif before is None and cell.actor_class.on_start is pykka.Actor.on_start:
            _start_ended(cell, "on_start", None)
        else:
            cell.loop.call_soon(_start, cell, before, context=cell.context)
    except (KeyboardInterrupt, SystemExit) as error:
        _struck(cell, error)
        raise


def _start(cell: Cell, before: BaseException | None) -> None:
    if cell.state is not STARTING:
        return
    try:
        cell.task = task_of(cell.loop, _run_start_hooks(cell, before), cell.context)
        cell.task.add_done_callback(lambda task: _start_task_ended(cell, task), context=cell.context)
    except (KeyboardInterrupt, SystemExit) as error:
        _struck(cell, error)
        raise


def _struck(cell: Cell, error: BaseException) -> None:
    """Ctrl-C has hit the start itself: the start has failed, or the actor runs and has to be woken."""
    if cell.state is STARTING:
        cell.fail(interrupted(cell, error), "on_start")
    elif cell.state is RUNNING:
        _tell_waiters(cell)
        cell.wake()


async def _run_start_hooks(cell: Cell, before: BaseException | None) -> None:
    task, hook, error = cell.task, "restart", None
    try:
        if before is not None:
            await cell.call("after_restart", before)
        hook = "on_start"
        await cell.call("on_start")
    except GeneratorExit:  # the loop is gone
        raise
    except BaseException as failure:
        error = failure
    if cell.task is task:
        try:
            cell.task = None
            _start_ended(cell, hook, error)
        except (KeyboardInterrupt, SystemExit) as strike:
            _struck(cell, strike)
            raise


def _start_task_ended(cell: Cell, task: asyncio.Task[None]) -> None:
    if cell.task is task:  # cancelled before its first step
        try:
            cell.task = None
            _start_ended(cell, "on_start", asyncio.CancelledError())
        except (KeyboardInterrupt, SystemExit) as strike:
            _struck(cell, strike)
            raise


def _start_ended(cell: Cell, hook: str, error: BaseException | None) -> None:
    if error is None and cell.state is STARTING:
        error = cell.prepare()
    if error is None:
        cell.started = True
        _running(cell)
    elif cell.state is not STOPPING or not is_a(error, asyncio.CancelledError):
        cell.fail(as_failure(cell, error), hook)


def _running(cell: Cell) -> None:
    if cell.state is not STARTING:
        return
    cell.resume()
    _tell_waiters(cell)
    events = cell.system.events
    if events.wants(ActorStarted):
        events.publish(ActorStarted(cell.path, cell.actor_class.__name__, cell.restarts))
    cell.wake()


def _tell_waiters(cell: Cell) -> None:
    for future in cell.start_waiters or ():
        future.try_set(cell.ref)
    cell.start_waiters = None


async def started(cell: Cell) -> ActorRef[Any]:
    """Wait until the actor runs; return its ref."""
    future: Future[Any] = Future()
    if not cell.system.on_loop(_wait_for_start, cell, future):
        raise ActorDeadError(f"{cell.ref} not found")
    try:
        await future
    except asyncio.CancelledError:
        cell.system.on_loop(_waits_no_more, cell, future)
        raise
    return cell.ref


def _waits_no_more(cell: Cell, future: Future[Any]) -> None:
    if cell.start_waiters and future in cell.start_waiters:
        cell.start_waiters.remove(future)


def _wait_for_start(cell: Cell, future: Future[Any]) -> None:
    if cell.state is RUNNING:
        future.try_set(cell.ref)
    elif cell.state in (STOPPING, STOPPED):
        future.try_fail(cell.dead("stopped"))
    else:
        cell.start_waiters = [*(cell.start_waiters or ()), future]


def rebirth(cell: Cell, error: BaseException) -> None:
    """Begin the next life: a new instance behind the same ref and mailbox.

    Args:
        cell: the actor's.
        error: the failure that ended the life before, for ``after_restart``.
    """
    cell.restart = cell.early = None
    # Nothing that the life before has set: its context is left behind.
    cell.context = cell.own = bare(cell) if cell.born is None else cell.born.copy()
    try:
        create(cell)
        cell.restarts += 1
    except BaseException as again:
        if cell.state is RESTARTING:
            cell.state = STARTING
            cell.fail(as_failure(cell, again), "restart")
    else:
        begin(cell, error)


# -- children -----------------------------------------------------------------------------------


def spawn_child(
    cell: Cell,
    actor_class: type[Actor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str | None,
    supervision: Supervision,
) -> ActorRef[Any]:
    """Start a child of the cell's actor.

    Args:
        cell: the parent's.
        actor_class: the class of the child.
        args: for its constructor.
        kwargs: for its constructor.
        name: the last part of its path; None makes one.
        supervision: how its failures are treated.
    """
    if cell.state in (STOPPING, STOPPED):
        raise SpawnRefused(f"{cell.ref} is stopping: it has no more children")
    if cell.ending_children:
        raise SpawnRefused(f"{cell.ref} is about to restart: its children are being stopped")
    check_class(actor_class)
    one_of("supervision", supervision, Supervision)
    if cell.children is NO_CHILDREN:
        cell.children = {}
        cell.child_numbers = itertools.count(1)
    if name is None:
        assert cell.child_numbers is not None
        name = generated_name(actor_class, cell.child_numbers, cell.children)
    child = actor_class._cell_class(cell.system, cell, actor_class, args, kwargs, name, supervision)
    return cell.system.add(child, cell.children)


def check_class(actor_class: Any) -> None:
    """Refuse what is no class of actors."""
    if not isinstance(actor_class, type) or getattr(actor_class, "_cell_class", None) is None:
        raise TypeError(
            f"an actor is started from its class, a subclass of actors.Actor, not from {actor_class!r}"
        )


def generated_name(actor_class: type, numbers: Iterator[int], taken: Container[str]) -> str:
    """Make a name from the class and the next number; one that a sibling was given explicitly is passed over.

    Args:
        actor_class: gives the first part of the name.
        numbers: gives the second part; names that are taken use up a number.
        taken: the names of the siblings.
    """
    while True:
        name = f"{actor_class.__name__}-{next(numbers)}"
        if name not in taken:
            return name

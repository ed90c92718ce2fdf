"""One simulated run: an actor system in virtual time, with all random decisions drawn from one seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from actors._core.instruments import Instrument
from actors._core.lifecycle import STOPPED
from actors._system import ActorSystem
from actors.testing.invariants import Invariants
from actors.testing.loop import (
    MAX_STEPS,
    MAX_STUCK,
    MAX_WALL,
    CannotSimulate,
    Deadlock,
    Livelock,
    Shuffled,
    SimLoop,
)
from actors.testing.schedule import PCTDispatcher, SeededDispatcher

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._ref import ActorRef
    from actors.testing.faults import Fault
    from actors.testing.probe import Probe

T = TypeVar("T")

MODES = ("actors", "pct", "harsh", "loop")
"""The order in which actors and callbacks run.

- ``actors``: any ready actor goes next, all equally likely.
- ``pct``: the ready actor with the highest random priority goes next.
- ``harsh``: the loop's callbacks run in any order; half of the seeds also choose actors as ``actors`` does.
- ``loop``: the order of the real loop; only time is virtual.
"""

TICK = 1e-6
"""A sleep of this many virtual seconds ends only when nothing else is left to do at this moment."""

SHOWN = 25
"""Number of last messages in the text of a failure."""


class Violation(AssertionError):
    """An invariant of the runtime was violated."""


class SimulationFailed(AssertionError):
    """A simulated run failed; the text contains the call that runs it again.

    Args:
        sim: the simulation.
        scenario: what was run.
        error: how it failed.
    """

    def __init__(self, sim: Sim, scenario: str, error: BaseException) -> None:
        self.seed, self.mode, self.error = sim.seed, sim.mode, error
        self.trace = tuple(sim.trace)
        last = "".join(f"\n    {path} <- {message}" for path, message in self.trace[-SHOWN:])
        super().__init__(
            f"{type(error).__name__}: {error}\n"
            f"replay: simulate({scenario}, seed={sim.seed!r}, mode={sim.mode!r})\n"
            f"at {sim.loop.time():.6f} virtual seconds; the last of {len(self.trace)} messages:{last}"
        )


class SimSystem(ActorSystem):
    """A system that remembers its actors and refuses actors with a thread of their own."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cells: list[Cell] = []

    def add(self, cell: Cell, siblings: dict[str, Cell]) -> ActorRef[Any]:
        """See :meth:`actors.ActorSystem.add`.

        Raises:
            CannotSimulate: the actor has a thread or a process of its own.
        """
        if cell.threaded or getattr(cell, "elsewhere", False):
            own = "thread" if cell.threaded else "process"
            raise CannotSimulate(
                f"{cell.path} ({cell.actor_class.__name__}) has a {own} of its own; test it on a real loop, "
                "or replace it by an Actor in the simulation"
            )
        self.cells.append(cell)
        return super().add(cell, siblings)


class _Recorder(Instrument):
    def __init__(self, trace: list[tuple[str, str]]) -> None:
        self._trace = trace

    def begin(self, cell: Cell, envelope: Envelope) -> None:
        self._trace.append((cell.path, type(envelope[0]).__name__))


class Sim:
    """One simulated run, step by step; :func:`simulate` does all steps at once.

    Args:
        seed: an int or a str; the seed of the schedule, of the system's random numbers, and of the faults.
        mode: one of :data:`MODES`.
        faults: installed before the first actor; the simulation takes fresh copies.
        depth: for ``pct``, the number of ordered events that a bug may need, at least 1.
        may_escalate: whether a top-level actor may give up; by default that fails the run.
        max_steps: most turns of the loop.
        max_stuck: most turns of the loop without progress of virtual time.
        wall: most real seconds.
        options: further options of :class:`actors.ActorSystem`.

    Raises:
        ValueError: the mode is unknown.
    """

    def __init__(
        self,
        seed: int | str = 0,
        mode: str = "actors",
        *,
        faults: Sequence[Fault] = (),
        depth: int = 3,
        may_escalate: bool = False,
        max_steps: int = MAX_STEPS,
        max_stuck: int = MAX_STUCK,
        wall: float = MAX_WALL,
        **options: Any,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        self.seed, self.mode = seed, mode
        self.rng = self.rng_for("scenario")
        """Random numbers for the scenario's own data."""
        self.trace: list[tuple[str, str]] = []
        """(path, name of the message's type) of each handled message."""
        self._may_escalate = may_escalate
        self._errors: list[str] = []
        self._finished = False
        self.loop = SimLoop(
            shuffle=self.rng_for("loop") if mode == "harsh" else None,
            max_steps=max_steps,
            max_stuck=max_stuck,
            wall=wall,
        )
        self.loop.virtual.describe = self.describe
        self.loop.set_exception_handler(self._unhandled)
        self.system = SimSystem(
            "simulation",
            loop=self.loop,
            rng=self.rng_for("system"),
            clock=self.loop.clock,
            dispatcher=self._dispatcher(depth),
            **options,
        )
        if mode == "harsh":
            self.system.turns.ready = Shuffled(self.rng_for("turns"))
        self.invariants = Invariants(lambda text: self.loop.fail(Violation(text)))
        self.invariants.install(self.system)
        self.system.instrument(_Recorder(self.trace))
        self.faults: list[Fault] = []
        for fault in faults:
            self.inject(fault)

    def rng_for(self, purpose: str) -> random.Random:
        """Return a random generator for one purpose, independent of those for other purposes."""
        return random.Random(f"{self.seed}/{purpose}")

    chance = rng_for
    """The earlier name of :meth:`rng_for`."""

    def _dispatcher(self, depth: int) -> SeededDispatcher | None:
        rng = self.rng_for("schedule")
        if self.mode == "pct":
            return PCTDispatcher(rng, depth=depth, loop=self.loop)
        if self.mode == "loop" or (self.mode == "harsh" and rng.random() < 0.5):
            return None
        return SeededDispatcher(rng, loop=self.loop)

    # -- for scenarios --------------------------------------------------------------------------

    def inject(self, fault: Fault) -> Callable[[], None]:
        """Install a copy of a fault and return a function that removes it."""
        mine = fault.bound(self.loop, self.rng_for(f"fault {len(self.faults)}"))
        self.faults.append(mine)
        return self.system.instrument(mine)

    def probe(self, name: str = "probe") -> Probe:
        """Spawn a :class:`~actors.testing.Probe` in this system."""
        from actors.testing.probe import Probe

        return Probe(self.system, name)

    async def settle(self) -> None:
        """Wait until nothing is left to do at this moment; timers may be set for later."""
        await asyncio.sleep(TICK)

    async def sleep(self, seconds: float) -> None:
        """Let virtual seconds pass."""
        await asyncio.sleep(seconds)

    def run(self, work: Awaitable[T]) -> T:
        """Run the loop until ``work`` is done and return its value.

        Raises:
            Violation: an invariant was violated, or a callback or task failed without anyone awaiting it.
            Deadlock: nothing can happen any more, and ``work`` is not done.
            Livelock: a bound on turns or real time is exceeded.
        """
        value = self.loop.run_until_complete(_awaited(work))
        self._raise_found()
        return value

    def _raise_found(self) -> None:
        found = [*self.invariants.violations, *self._errors]
        if found:
            raise Violation("; ".join(found))

    def finish(self) -> None:
        """Stop the system and check that nothing is left behind. Raises as :meth:`run` does."""
        if not self._finished:
            self._finished = True
            self.run(self._finish())
            self.invariants.check_end()
            self._raise_found()

    async def _finish(self) -> None:
        failure = self.system.failure
        if failure.done() and not self._may_escalate:
            raise Violation(f"a top-level actor gave up: {failure.result()}")
        report = await self.system.stop(100 * self.system.stop_grace)
        for path in report.left:
            self.invariants.violated(f"left behind: {path} did not stop")
        for fault in self.faults:
            fault.flush()
        await self.settle()
        for task in asyncio.all_tasks(self.loop):
            if task is not asyncio.current_task():
                self.invariants.violated(f"left behind: the task {task.get_coro()!r}")

    def close(self) -> None:
        """Cancel the remaining tasks and close the loop, even after :meth:`run` or :meth:`finish` raised."""
        if self.loop.is_closed():
            return
        self.loop.set_exception_handler(lambda _loop, _context: None)
        self.loop.virtual.failure = None
        self.invariants._on_violation = None
        self.system.failure.cancel()
        for cell in self.system.cells:
            cell.state = STOPPED  # so that no mailbox is read any more
        try:
            self.loop.virtual.more(10_000)
            # An aborted run may have left a pending stop of the loop. And each task needs a first step: a
            # task that is cancelled before it leaves a coroutine that was never awaited.
            for _ in range(3):
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
            while tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(_ended(tasks))
        except (Deadlock, Livelock, CannotSimulate, RuntimeError):
            pass
        finally:
            self.loop.close()

    # -- diagnosis -------------------------------------------------------------------------------

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._errors.append(f"{context.get('message')}: {error!r}")
        self.loop.fail(Violation(self._errors[0]))

    def describe(self) -> str:
        """Describe which actor waits for which, one line each, followed by a dump of the system."""
        lines = [
            f"{ask.asker or 'outside'} waits for {ask.target}: {ask.message} is {ask.state}"
            for ask in self.system.pending_asks()
        ]
        for cell in self.system.cells:
            owed = sum(not reply.done() for reply in cell.owed or ())
            if owed:
                lines.append(f"{cell.path} has taken {owed} replies and not settled them")
            if cell.waiting_on is not None and cell.waiting_on.target is not None:
                lines.append(f"{cell.path} waits for {cell.waiting_on.target.path}")
        if self.system.failure.done() and not self.system.failure.cancelled():
            lines.append(f"a top-level actor gave up: {self.system.failure.result()}")
        return "\n".join([*lines, self.system.dump()])


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)

"""A base class for Hypothesis state machines that drive a simulated system.

The initial rule draws the seed of the schedule like any other data, so a failing example shrinks both its
steps and its seed. Needs the ``hypothesis`` package.

    class Counting(SystemMachine):
        def start(self):
            self.counter = self.system.spawn(Counter)

        @rule(amount=integers(0, 9))
        def add(self, amount):
            self.counter.tell(amount)

    TestCounting = Counting.TestCase
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar, TypeVar

from hypothesis import note, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize

from actors.testing.simulation import TICK, Sim, SimSystem

T = TypeVar("T")


class SystemMachine(RuleBasedStateMachine):
    """A state machine with one simulated system per example.

    Actors handle no messages between rules: a rule that only tells leaves the message in the mailbox, and the
    schedule decides later when it is handled. :meth:`run` and :meth:`settle` let the actors work.
    """

    modes: ClassVar[tuple[str, ...]] = ("actors", "pct", "harsh")
    """The schedule modes to draw from; examples shrink towards the first."""

    options: ClassVar[Mapping[str, Any]] = {}
    """Further options of :class:`~actors.testing.Sim`."""

    sim: Sim

    @initialize(data=strategies.data())
    def _begin(self, data: Any) -> None:
        seed = data.draw(strategies.integers(0, 2**32 - 1), label="seed")
        mode = data.draw(strategies.sampled_from(self.modes), label="mode")
        note(f"Sim(seed={seed}, mode={mode!r})")
        self.sim = Sim(seed, mode, **self.options)
        self.start()

    def start(self) -> None:
        """Override this to spawn the actors.

        Runs before all rules. Initial rules of subclasses may run before it.
        """

    @property
    def system(self) -> SimSystem:
        """The system of the current example."""
        return self.sim.system

    def run(self, work: Awaitable[T]) -> T:
        """Run the loop until ``work`` is done and return its value: ``self.run(ref.ask(1, block=False))``."""
        return self.sim.run(work)

    def settle(self, seconds: float = TICK) -> None:
        """Let virtual seconds pass; by default only until nothing is left to do at this moment."""
        self.sim.run(self.sim.sleep(seconds))

    def teardown(self) -> None:
        """Stop the system and check that nothing is left behind."""
        if not hasattr(self, "sim"):
            return
        try:
            if sys.exc_info()[1] is None:  # otherwise a rule failed, and its error is the one to report
                self.sim.finish()
        finally:
            self.sim.close()

"""A base for Hypothesis' state machines over a simulated system.

The seed of the schedule is drawn like all other data, in the initial rule, so a failing example
shrinks in both: fewer steps, and a small seed. Needs the ``hypothesis`` package.

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
    """One simulated system per example; rules tell and ask between runs of its loop.

    Nothing is handled between rules: a rule that only tells leaves the message in the mailbox, and
    the schedule decides later. :meth:`run` and :meth:`settle` let the actors work.
    """

    modes: ClassVar[tuple[str, ...]] = ("actors", "pct", "harsh")
    """Which modes the example's own is drawn from; examples shrink towards the first."""

    options: ClassVar[Mapping[str, Any]] = {}
    """For :class:`~actors.testing.Sim`."""

    sim: Sim

    @initialize(data=strategies.data())
    def _begin(self, data: Any) -> None:
        seed = data.draw(strategies.integers(0, 2**32 - 1), label="seed")
        mode = data.draw(strategies.sampled_from(self.modes), label="mode")
        note(f"Sim(seed={seed}, mode={mode!r})")
        self.sim = Sim(seed, mode, **self.options)
        self.start()

    def start(self) -> None:
        """Override: spawn the actors. Runs before all rules, and initial rules of subclasses may
        run before it."""

    @property
    def system(self) -> SimSystem:
        """The example's system."""
        return self.sim.system

    def run(self, work: Awaitable[T]) -> T:
        """Run the loop until ``work`` is done, such as ``self.run(ref.ask(1, block=False))``."""
        return self.sim.run(work)

    def settle(self, seconds: float = TICK) -> None:
        """Let virtual seconds pass; without any, all that can happen now happens."""
        self.sim.run(self.sim.sleep(seconds))

    def teardown(self) -> None:
        """Stop the system and check that nothing is left."""
        if not hasattr(self, "sim"):
            return
        try:
            if sys.exc_info()[1] is None:  # else a rule failed, and that is what is to be told
                self.sim.finish()
        finally:
            self.sim.close()

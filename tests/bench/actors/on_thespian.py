"""The pipeline on thespian's ``simpleSystemBase``: a queue that the sender's own thread processes.

It is thespian's fastest base by two orders of magnitude (``multiprocTCPBase`` takes about 1,600 microseconds
per message here). It never waits, and its queue has no bound.
"""

from __future__ import annotations

from typing import Any

from thespian.actors import Actor, ActorAddress, ActorSystem

from tests.bench.actors.handlers import Result
from tests.bench.actors.tally import Tally


class Pass(Actor):  # type: ignore[misc]
    """A middle stage; its first message is the address of the next stage."""

    next: ActorAddress = None

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        """Send the message to the next stage."""
        if self.next is None:
            self.next = message
        else:
            self.send(self.next, message)


class Last(Actor):  # type: ignore[misc]
    """The last stage, which counts the messages; its first message is the tally."""

    tally: Tally | None = None

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        """Count the message."""
        if self.tally is None:
            self.tally = message
        else:
            self.tally.take(message)


def pipeline(count: int) -> Result:
    """Send messages through the stages; each tell returns when no message is left in the system."""
    tally = Tally(count)
    system = ActorSystem("simpleSystemBase", logDefs=False)
    first, middle, last = (system.createActor(stage) for stage in (Pass, Pass, Last))
    system.tell(last, tally)
    system.tell(middle, last)
    system.tell(first, middle)
    while tally.more():
        system.tell(first, tally.next())
    system.shutdown()
    return tally.result()

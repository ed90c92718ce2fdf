"""The pipeline on thespian's ``simpleSystemBase``: a queue that the teller's own thread works off.

It is thespian's fastest base by two orders of magnitude (``multiprocTCPBase``: about 1,600
microseconds a message here), and it neither waits for anything nor bounds anything.
"""

from __future__ import annotations

from typing import Any

from thespian.actors import Actor, ActorAddress, ActorSystem

from tests.bench.actors.handlers import Result
from tests.bench.actors.stages import Tally


class Pass(Actor):  # type: ignore[misc]
    """A middle stage; its first message says what comes behind it."""

    next: ActorAddress = None

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        """Pass it on."""
        if self.next is None:
            self.next = message
        else:
            self.send(self.next, message)


class Last(Actor):  # type: ignore[misc]
    """The last stage keeps the books."""

    tally: Tally | None = None

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        """Count it."""
        if self.tally is None:
            self.tally = message
        else:
            self.tally.take(message)


def pipeline(count: int) -> Result:
    """Messages sent from stage to stage; each tell returns when the system is at rest."""
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

"""An embeddable asyncio actor runtime with pykka's API and supervision.

>>> from actors import Actor, ActorSystem
"""

from pykka import ActorDeadError, Timeout

from actors._actor import Actor
from actors._errors import ActorError, Escalated, MailboxFull, WouldDeadlock
from actors._future import Future
from actors._policy import ESCALATE, STOP_ON_FAILURE, Backoff, Directive, Intensity, Supervision
from actors._ref import ActorRef
from actors._system import ActorSystem, StopReport

__all__ = [
    "ESCALATE",
    "STOP_ON_FAILURE",
    "Actor",
    "ActorDeadError",
    "ActorError",
    "ActorRef",
    "ActorSystem",
    "Backoff",
    "Directive",
    "Escalated",
    "Future",
    "Intensity",
    "MailboxFull",
    "StopReport",
    "Supervision",
    "Timeout",
    "WouldDeadlock",
]

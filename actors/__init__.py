"""An embeddable asyncio actor runtime with pykka's API and supervision.

>>> from actors import Actor, ActorSystem
"""

from pykka import ActorDeadError, ActorRegistry, Timeout, get_all, traversable

from actors._actor import Actor
from actors._broadcast import BroadcastRouter
from actors._core.inspection import PendingAsk
from actors._core.instruments import HELD, Instrument
from actors._core.mailbox import ControlMessage
from actors._core.stats import ActorStatistics, Histogram, MailboxStatistics
from actors._dispatch import handles
from actors._errors import (
    ActorError,
    AskCycle,
    Escalated,
    Interrupted,
    MailboxFull,
    NoAnswer,
    SpawnRefused,
    StashFull,
    TooManyTasks,
    WouldDeadlock,
)
from actors._events import (
    ActorFailed,
    ActorRestarting,
    ActorStarted,
    ActorStopped,
    AskCycleFound,
    DeadLetter,
    Dropped,
    Event,
    EventStream,
    LoopBlocked,
    SlowHandler,
    Unhandled,
)
from actors._future import Future
from actors._messages import Piped, ReceiveTimeout, Request, Terminated
from actors._overflow import DROP_NEW, DROP_OLD, FAIL, Overflow, Wait
from actors._policy import (
    ESCALATE,
    STOP_ON_FAILURE,
    Backoff,
    Directive,
    Intensity,
    OnError,
    Strategy,
    Supervision,
)
from actors._pool import Pool
from actors._pool_messages import RouterStatistics
from actors._proxy import ActorProxy, CallableProxy
from actors._ref import ActorRef
from actors._router import Router
from actors._routing import (
    Broadcast,
    ConsistentHash,
    LeastMailbox,
    Members,
    Random,
    RoundRobin,
    Routing,
)
from actors._system import ActorSystem
from actors._system_view import StopReport
from actors._threaded import ThreadedActor
from actors._trace import TraceContext, trace_as
from actors.process.actor import ProcessActor
from actors.process.frames import NotPicklable
from actors.process.worker import WorkerDied

__all__ = [
    "DROP_NEW",
    "DROP_OLD",
    "ESCALATE",
    "FAIL",
    "HELD",
    "STOP_ON_FAILURE",
    "Actor",
    "ActorDeadError",
    "ActorError",
    "ActorFailed",
    "ActorProxy",
    "ActorRef",
    "ActorRegistry",
    "ActorRestarting",
    "ActorStarted",
    "ActorStatistics",
    "ActorStopped",
    "ActorSystem",
    "AskCycle",
    "AskCycleFound",
    "Backoff",
    "Broadcast",
    "BroadcastRouter",
    "CallableProxy",
    "ConsistentHash",
    "ControlMessage",
    "DeadLetter",
    "Directive",
    "Dropped",
    "Escalated",
    "Event",
    "EventStream",
    "Future",
    "Histogram",
    "Instrument",
    "Intensity",
    "Interrupted",
    "LeastMailbox",
    "LoopBlocked",
    "MailboxFull",
    "MailboxStatistics",
    "Members",
    "NoAnswer",
    "NotPicklable",
    "OnError",
    "Overflow",
    "PendingAsk",
    "Piped",
    "Pool",
    "ProcessActor",
    "Random",
    "ReceiveTimeout",
    "Request",
    "RoundRobin",
    "Router",
    "RouterStatistics",
    "Routing",
    "SlowHandler",
    "SpawnRefused",
    "StashFull",
    "StopReport",
    "Strategy",
    "Supervision",
    "Terminated",
    "ThreadedActor",
    "Timeout",
    "TooManyTasks",
    "TraceContext",
    "Unhandled",
    "Wait",
    "WorkerDied",
    "WouldDeadlock",
    "get_all",
    "handles",
    "trace_as",
    "traversable",
]

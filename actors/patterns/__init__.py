"""Patterns on top of the runtime: a circuit breaker, asks with retries, cron timers, state machines, groups.

They use the public API of :mod:`actors` only. Time and chance are arguments, so they run in simulations.
"""

from actors.patterns.breaker import CircuitBreaker, CircuitOpen
from actors.patterns.cron import Cron, CronTimer, start_cron
from actors.patterns.fsm import ANY, StateMachine, StateTimeout, entering, when
from actors.patterns.groups import GroupFull, Groups
from actors.patterns.retry import ask_with_retry

__all__ = [
    "ANY",
    "CircuitBreaker",
    "CircuitOpen",
    "Cron",
    "CronTimer",
    "GroupFull",
    "Groups",
    "StateMachine",
    "StateTimeout",
    "ask_with_retry",
    "entering",
    "start_cron",
    "when",
]

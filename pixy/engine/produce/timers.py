"""Messages that a topic's producer sends to itself, later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flush:
    """Send what is gathered."""


class Pass:
    """The loop has made another pass."""


PASS = Pass()


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look the topic up: nothing is known of it, or it may have other partitions now."""


@dataclass(frozen=True, slots=True)
class Expire:
    """The first message has waited for its topic as long as it may."""


@dataclass(frozen=True, slots=True)
class DrainTimeout:
    """The drain has taken long enough: give up the messages that are still gathered."""


@dataclass(frozen=True, slots=True)
class IdleCheck:
    """Stop if no message has come since the last check."""

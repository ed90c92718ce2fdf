"""Why no broker can be reached, from the errors that librdkafka reports to a client (``error_cb``).

It reports a broker's failure with the reason and then, if that was the last broker, that all are down, with numbers that are read a
moment later and contradict that: ``0/2 brokers are down``. So the reason is kept from the one before.
"""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaError as LibraryError

_OF_A_BROKER: Final = frozenset(
    {
        LibraryError._TRANSPORT,
        LibraryError._RESOLVE,
        LibraryError._TIMED_OUT,
        LibraryError._AUTHENTICATION,
        LibraryError._SSL,
    }
)
_LASTING: Final = frozenset({LibraryError._AUTHENTICATION, LibraryError._SSL})
"""Reported while others are tried: these need a person."""
_ROLE: Final = re.compile(r"^(\S+)/(?:bootstrap|\d+|\w*[Cc]oordinator): ")
_STATE: Final = re.compile(r" \(after \d+ms in state .*\)$")
_ATTEMPT: Final = re.compile(r"(?:Connect to \S+ failed|Failed to resolve '[^']*'): (.)")


class Outages:
    """Keeps the reason why no broker can be reached.

    Attributes:
        down: the reason; empty as long as no client has lost all brokers. librdkafka does not say when one is up again.
    """

    def __init__(self) -> None:
        self.down = ""
        self._last = ""

    def note(self, error: LibraryError) -> None:
        """Note an error of librdkafka."""
        code = error.code()
        if code in _OF_A_BROKER:
            self._last = reason_of(error.str())
            self.down = self.down and self._last
        if code == LibraryError._ALL_BROKERS_DOWN or code in _LASTING:
            self.down = self._last or "no broker is connected"


def reason_of(text: str) -> str:
    """Return what a broker's error says: its address and the cause, as ``localhost:1: connection refused``."""
    text = _STATE.sub("", _ROLE.sub(r"\1: ", text))
    return _ATTEMPT.sub(lambda found: found[1].lower(), text)


__all__ = ["Outages", "reason_of"]

"""Patterns of topics, in RE2's syntax, which covers Java's but for lookaround and back references. Pure.

RE2 takes time linear in the length of a name, and bounded memory, whatever the pattern. librdkafka's engine takes
4.8 GB for a pattern of 41 characters, so it never sees one: the daemon matches, and names the topics to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

import re2

from pixy.errors import InvalidParameter

MAX_LENGTH: Final = 1000
"""Characters of a pattern."""
MAX_TIME: Final = 1.0
"""Seconds that matching all topics of a cluster may take, in a thread."""
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics, which no pattern matches."""
_MEMORY: Final = 128 << 10  # bytes; compiling the most costly pattern that is refused then takes 20 ms


class TopicPattern:
    """A pattern that matches whole names.

    Args:
        text: the regular expression.

    Raises:
        InvalidParameter: RE2 does not understand it, or it is too long or too complex.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidParameter(f"topic_pattern: longer than {MAX_LENGTH} characters")
        options = re2.Options()
        options.max_mem = _MEMORY
        options.log_errors = False
        try:
            self._matches: Callable[[str], object] = re2.compile(text, options).fullmatch
        except re2.error as error:
            raise InvalidParameter(f"topic_pattern: {_why(error)}") from None

    def matching(self, names: Iterable[str], clock: Callable[[], float] = time.monotonic) -> tuple[str, ...]:
        """Return the names that match, sorted.

        Args:
            names: of topics.
            clock: seconds.

        Raises:
            InvalidParameter: matching takes longer than :data:`MAX_TIME`.
        """
        until = clock() + MAX_TIME
        found = []
        for name in names:
            if name not in INTERNAL and self._matches(name):
                found.append(name)
            if clock() > until:
                raise InvalidParameter("topic_pattern: too costly to match against all topics")
        return tuple(sorted(found))


def _why(error: Exception) -> str:
    why = error.args[0] if error.args else ""
    return why.decode(errors="replace") if isinstance(why, bytes) else str(why)


__all__ = ["INTERNAL", "MAX_LENGTH", "MAX_TIME", "TopicPattern"]

"""Ask a coordinator about topics once for all groups of the process that it coordinates.

Each group compares the ids of its topics every few seconds, also when it is idle. With a request, and a thread, of its own
for each, 200 idle groups took a processor and a half.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from pixy.kafka.topics import Topics

RECENT: Final = 2.5
"""Seconds for which an answer is given to others."""

Found = Callable[[Topics], None]


@dataclass(slots=True)
class _Coordinator:
    topics: Topics | None = None
    asked_at: float = 0.0
    names: frozenset[str] = frozenset()
    waiting: dict[Hashable, tuple[frozenset[str], Found]] = field(default_factory=dict)
    """The questions that wait, by asker: one each."""
    asking: bool = False


class SharedTopics:
    """Answers of coordinators by their addresses. Any thread may call.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._coordinators: dict[Hashable, _Coordinator] = {}
        """As many as there are brokers."""

    def wants(
        self, coordinator: Hashable, who: Hashable, names: Iterable[str], since: float, found: Found
    ) -> bool:
        """Answer from what is known, or wait for the next answer.

        Args:
            coordinator: identifies the broker, and as whom it is asked.
            who: identifies the asker; a later question replaces its earlier one.
            names: of topics.
            since: an answer to a question from before this time, in the clock's seconds, is of no use.
            found: called with the answer, in any thread.

        Returns:
            whether the caller has to :meth:`ask`, because nobody does.
        """
        wanted = frozenset(names)
        with self._lock:
            known = self._coordinators.setdefault(coordinator, _Coordinator())
            topics = known.topics
            if (
                topics is None
                or known.asked_at < max(since, self._clock() - RECENT)
                or not wanted <= known.names
            ):
                known.waiting[who] = wanted, found
                asks, known.asking = not known.asking, True
                return asks
        found(topics)
        return False

    def ask(self, coordinator: Hashable, ask: Callable[[frozenset[str]], Topics | None]) -> None:
        """Ask for all who wait, and for those who come meanwhile.

        Args:
            coordinator: as in :meth:`wants`.
            ask: asks the broker about topics; returns None if another broker has answered. If it raises, the askers
                that wait get no answer, and have to call :meth:`wants` again.
        """
        with self._lock:
            known = self._coordinators[coordinator]
        try:
            while True:
                with self._lock:
                    waiting, known.waiting = known.waiting, {}
                    if not waiting:
                        known.asking = False
                        return
                names = frozenset().union(*(names for names, _ in waiting.values()))
                asked_at = self._clock()
                topics = ask(names)
                if topics is None:
                    continue
                with self._lock:
                    known.topics, known.asked_at, known.names = topics, asked_at, names
                for _, found in waiting.values():
                    found(topics)
        except BaseException:
            self.nobody_asks(coordinator)
            raise

    def nobody_asks(self, coordinator: Hashable) -> None:
        """Drop the questions that wait, because the caller that had to :meth:`ask` cannot. Their askers have to ask again."""
        with self._lock:
            known = self._coordinators[coordinator]
            known.asking, known.waiting = False, {}


SHARED: Final = SharedTopics()
"""The process's."""

__all__ = ["RECENT", "SHARED", "SharedTopics"]

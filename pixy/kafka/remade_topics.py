"""Finds topics that were deleted and made again while messages wait for them. Pure.

A topic that is made again has leader epochs that begin at 0. librdkafka (2.16) takes them for outdated if it knows a
higher one of the old topic (librdkafka issue 4898). A producer then sends to the old leader for ever, which refuses, and the
messages time out. Only a new producer helps; the client says nothing, so this is found by the topics' ids. Brokers before
Kafka 2.8 give none; there a cluster that was made again, at the same addresses, is found by its own id.

A new producer is made on evidence alone: the topic is another one than when the producer first wrote to it, and since
the last look messages have waited all the time, or some have failed. Without trouble the id that was known is
kept: trouble may come later, when the leader moves.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import Final

from pixy.kafka.topics import differ

LOOK_EVERY: Final = 5.0
"""Seconds between two looks."""


class RemadeTopics:
    """The topics that a producer has written to. It forgets none, as librdkafka does, until :meth:`renewed`.

    Args:
        patience: seconds after which a message has its result, an error at least.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._ids: dict[str, uuid.UUID] = {}
        """As they were when the topics were first written to."""
        self._used: dict[str, float] = {}
        """The times at which topics were last written to."""
        self._cluster = ""
        """The id of the cluster that had these topics."""
        self._unknown: set[str] = set()
        self._since = -math.inf
        """Topics used earlier have no messages that wait."""
        self._waiting = False
        self._errors = 0

    def used(self, topic: str, now: float) -> bool:
        """Note that a topic is written to; return whether that is the first time.

        Args:
            topic: its name.
            now: seconds.
        """
        first = topic not in self._used
        if first:
            self._unknown.add(topic)
        self._used[topic] = now
        return first

    def look(self, now: float, waiting: int, errors: int) -> tuple[list[str], bool]:
        """Begin a look.

        Args:
            now: seconds.
            waiting: how many messages have no result.
            errors: how many have failed so far.

        Returns:
            The topics whose ids to ask for, and whether there is trouble.
        """
        troubled = errors != self._errors or (waiting > 0 and self._waiting)
        self._waiting, self._errors = waiting > 0, errors
        self._since = now - self._patience - 2 * LOOK_EVERY
        names = [topic for topic, at in self._used.items() if at >= self._since] if troubled else []
        return list(self._unknown.union(names)), troubled

    def found(self, ids: Mapping[str, uuid.UUID], troubled: bool, cluster: str = "") -> list[str]:
        """End a look.

        Args:
            ids: of the topics that exist.
            troubled: as :meth:`look` returned it.
            cluster: the id of their cluster; empty if it has none.

        Returns:
            Topics that were made again; if there are any, make a new producer.
        """
        remade = []
        self._cluster = self._cluster or cluster
        elsewhere = bool(cluster) and cluster != self._cluster
        for topic, now in ids.items():
            was = self._ids.setdefault(topic, now)
            self._unknown.discard(topic)
            if troubled and (elsewhere or differ(was, now)):
                remade.append(topic)
        if remade:
            self._ids.update(ids)
            self._cluster = cluster or self._cluster
        return remade

    def renewed(self) -> None:
        """Forget the topics: there is a new producer, which remembers none, and has the messages that wait."""
        self._used = {topic: at for topic, at in self._used.items() if at >= self._since}
        self._ids.clear()
        self._cluster = ""
        self._unknown = set(self._used)


__all__ = ["LOOK_EVERY", "RemadeTopics"]

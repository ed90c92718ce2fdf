"""The open connections, as the observer knows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.tap.config import Bounds
from pixy.tap.lru import LruDict
from pixy.tap.partial_decoders import Topic
from pixy.tap.registry import Peer
from pixy.tap.topics import Topics

_SESSION_PARTITIONS: Final = 10_000


@dataclass(slots=True)
class Connection:
    """An open connection."""

    peer: Peer
    opened: float
    pending: LruDict[int, tuple[float, Any]]
    """Requests that wait for their response: number to (time, body or summary)."""
    counts: Counter[str] = field(default_factory=Counter)
    opaque: str = ""
    fetching: LruDict[tuple[Topic, int], int] = field(default_factory=lambda: LruDict(_SESSION_PARTITIONS))
    """The fetch session (KIP-227): partition to the offset that the client requested last."""
    reading: dict[Topic, None] = field(default_factory=dict)
    """The topics of the fetch session."""
    reader: str = ""
    fetched_at: float = 0.0
    """Client id and time of the last Fetch request."""
    counted: bool = False
    """True if the inventory has counted it."""


class Connections:
    """All connections that have begun and not ended.

    Args:
        bounds: limits of connections and of requests in flight.
        topics: names of topics; knows their readers.
    """

    def __init__(self, bounds: Bounds, topics: Topics) -> None:
        self._bounds, self._topics = bounds, topics
        self._open: LruDict[int, Connection] = LruDict(bounds.connections * 2)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[int]:
        return iter(self._open)

    @property
    def forgotten(self) -> int:
        """Number of connections evicted at the limit."""
        return self._open.forgotten

    def get(self, number: int, at: float) -> Connection:
        """Return a connection; one that was not known has begun at the time ``at``."""
        limit = self._bounds.in_flight
        return self._open.get_or_create(number, lambda: Connection(Peer(number), at, LruDict(limit)))

    def end(self, number: int) -> Connection | None:
        """Remove a connection and return it, None if it is not known."""
        found = self._open.pop(number)
        if found is not None:
            self.settle_reading(found)
        return found

    def settle_reading(self, connection: Connection) -> None:
        """Record the last read of each topic of a fetch session: a request does not name what has not changed."""
        for topic in connection.reading:
            self._topics.used(topic, connection.reader, connection.fetched_at, written=False)

    def settle_all(self) -> None:
        """Record the last reads of all fetch sessions."""
        for each in self._open.values():
            self.settle_reading(each)

    def to_json(self, now: float) -> list[dict[str, Any]]:
        """Describe the open connections, oldest first."""
        return [
            {
                "connection": number,
                "client": each.peer.client,
                "broker": each.peer.broker,
                "client_id": each.peer.client_id,
                "software": each.peer.software_text,
                "opaque": each.opaque or None,
                "seconds": round(now - each.opened, 3),
                "counts": dict(each.counts),
                "fetching": self._fetching(each),
            }
            for number, each in sorted(self._open.items(), key=lambda entry: entry[0])
        ]

    def _fetching(self, connection: Connection) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in connection.fetching.items():
            found.setdefault(self._topics.show(topic), {})[str(partition)] = offset
        return found


__all__ = ["Connection", "Connections"]

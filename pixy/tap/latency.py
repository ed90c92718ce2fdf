"""Response times in buckets: by API, by API and broker, by API and client id; and the times inside the tap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pixy.tap.lru import LruDict
from pixy.tap.queueing import BOUNDS as QUEUE_BOUNDS
from pixy.wire import schema

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the buckets, in seconds; one more bucket is open."""

_BY: Final = 2_000
"""Pairs of API and broker, and as many of API and client, whose times are kept."""


class Histogram:
    """Numbers of responses by bucket, and the sum of their times in seconds."""

    __slots__ = ("bounds", "buckets", "seconds")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """Number of responses."""
        return sum(self.buckets)

    def add(self, buckets: Sequence[int], seconds: float) -> None:
        """Add responses.

        Args:
            buckets: their numbers by bucket.
            seconds: the sum of their times.
        """
        self.seconds += seconds
        self.buckets = [one + other for one, other in zip(self.buckets, buckets, strict=True)]

    def quantile(self, share: float) -> float | None:
        """Return a time that at least ``share`` of the responses did not exceed: the end of a bucket, in seconds.

        None if there is no response, or if the bucket is the open one.
        """
        wanted = share * self.count
        found = 0
        for bound, count in zip(self.bounds, self.buckets, strict=False):
            found += count
            if found and found >= wanted:
                return bound
        return None

    def to_json(self) -> dict[str, Any]:
        """Describe the times: number, mean, and the ends of the buckets of three quantiles, in seconds."""
        count = self.count
        return {
            "count": count,
            "mean": round(self.seconds / count, 6) if count else None,
            "p50_at_most": self.quantile(0.5),
            "p95_at_most": self.quantile(0.95),
            "p99_at_most": self.quantile(0.99),
            "buckets": list(self.buckets),
        }


class Timing(NamedTuple):
    """The times of one API as they are exported: of one broker, or inside the tap."""

    api: str
    broker: str
    """Host and port; empty for the time inside the tap."""
    bounds: tuple[float, ...]
    buckets: tuple[int, ...]
    seconds: float


_NO_QUEUE: Final = Histogram(QUEUE_BOUNDS)


class Latency:
    """The response times of all connections."""

    def __init__(self) -> None:
        self.apis: dict[int, Histogram] = {}
        self.queues: dict[int, Histogram] = {}
        """Times inside the tap, by API."""
        self.held = [0.0, 0.0]
        """Seconds in which brokers, and clients, did not accept what the tap had for them."""
        self.brokers: LruDict[tuple[int, str], Histogram] = LruDict(_BY)
        self.clients: LruDict[tuple[int, str], Histogram] = LruDict(_BY)

    def add(
        self,
        found: Mapping[int, Sequence[int]],
        seconds: Mapping[int, float],
        broker: str,
        client_id: str,
    ) -> None:
        """Add what a connection has counted.

        Args:
            found: numbers by bucket, by API key.
            seconds: sums of the times by API key.
            broker: the connection's broker.
            client_id: the connection's client id, empty if none.
        """
        known = schema.keys()
        for number, buckets in found.items():
            key = number if number in known else -1
            total = seconds.get(number, 0.0)
            self.apis.setdefault(key, Histogram()).add(buckets, total)
            self.brokers.get_or_create((key, broker), Histogram).add(buckets, total)
            self.clients.get_or_create((key, client_id), Histogram).add(buckets, total)

    def add_queues(
        self, found: Mapping[int, Sequence[int]], seconds: Mapping[int, float], held: Sequence[float]
    ) -> None:
        """Add the times inside the tap that a connection has counted.

        Args:
            found: numbers by bucket, by API key.
            seconds: sums of the times by API key.
            held: seconds in which the broker, and the client, accepted nothing.
        """
        known = schema.keys()
        for number, buckets in found.items():
            key = number if number in known else -1
            queue = self.queues.setdefault(key, Histogram(QUEUE_BOUNDS))
            queue.add(buckets, seconds.get(number, 0.0))
        self.held = [one + other for one, other in zip(self.held, held, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Describe all times. Those of Fetch contain the wait for records, those of JoinGroup the wait for members."""
        return {
            "bounds": list(BOUNDS),
            "tap_bounds": list(QUEUE_BOUNDS),
            "apis": [
                {"api": api_name(key), **each.to_json(), "tap": self.queues.get(key, _NO_QUEUE).to_json()}
                for key, each in sorted(self.apis.items())
            ],
            "brokers": _listed(self.brokers, "broker"),
            "clients": _listed(self.clients, "client_id"),
            "held": {"to_brokers": round(self.held[0], 6), "to_clients": round(self.held[1], 6)},
        }

    def timings(self) -> list[Timing]:
        """List the times by API and broker, and those inside the tap by API."""
        found = [(api_name(key), broker, each) for (key, broker), each in self.brokers.items() if broker]
        found += [(api_name(key), "", each) for key, each in self.queues.items()]
        return [
            Timing(api, broker, each.bounds, tuple(each.buckets), each.seconds) for api, broker, each in found
        ]

    @property
    def forgotten(self) -> int:
        """Number of entries evicted at the limit."""
        return self.brokers.forgotten + self.clients.forgotten


def api_name(key: int) -> str:
    """Return the name of an API, ``unknown`` if there is none of that key."""
    return schema.keys().get(key, "unknown")


def _listed(found: LruDict[tuple[int, str], Histogram], name: str) -> list[dict[str, Any]]:
    return [
        {"api": api_name(key), name: other, **each.to_json()}
        for (key, other), each in sorted(found.items(), key=lambda entry: entry[0])
    ]


__all__ = ["BOUNDS", "Histogram", "Latency", "Timing", "api_name"]

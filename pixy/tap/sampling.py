"""Which share of the requests was read: under load, of requests that change no group the tap reads some, and only counts the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pixy.tap.latency import api_name


class Sampling:
    """Numbers of requests by API key, since the tap began."""

    def __init__(self) -> None:
        self._requests: Counter[int] = Counter()
        self._sampled: Counter[int] = Counter()

    def add(self, requests: Mapping[tuple[int, int], int], sampled: Mapping[int, int]) -> None:
        """Count.

        Args:
            requests: all requests, by API key and version.
            sampled: those of which only the header was read, by API key.
        """
        for (key, _), count in requests.items():
            self._requests[key] += count
        for key, count in sampled.items():
            self._sampled[key] += count

    def one_in(self, *keys: int) -> float | None:
        """Return how many requests of these APIs there were for each that was read: 1 if all were, None if none was."""
        requests, sampled = (sum(each[key] for key in keys) for each in (self._requests, self._sampled))
        if not sampled:
            return 1.0
        return round(requests / (requests - sampled), 2) if requests > sampled else None

    def apis(self) -> dict[int, float | None]:
        """Return :meth:`one_in` of each API of which not all requests were read."""
        return {key: self.one_in(key) for key in sorted(self._sampled)}

    def to_json(self) -> dict[str, Any]:
        """Describe the APIs of which not all requests were read."""
        return {
            api_name(key): {
                "requests": self._requests[key],
                "read": self._requests[key] - self._sampled[key],
                "one_in": share,
            }
            for key, share in self.apis().items()
        }


__all__ = ["Sampling"]

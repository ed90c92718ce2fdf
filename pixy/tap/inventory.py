"""Client software, the API versions that it uses, and which of them Kafka 4 refuses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.tap.lru import LruDict
from pixy.wire import schema

MINIMUM: Final = {
    0: 3,
    1: 4,
    2: 1,
    8: 2,
    9: 1,
    19: 2,
    20: 1,
    23: 2,
    27: 1,
    29: 1,
    30: 1,
    31: 1,
    32: 1,
    34: 1,
    35: 1,
    38: 1,
    39: 1,
    40: 1,
    41: 1,
    56: 2,
    76: 1,
    77: 1,
    78: 1,
    79: 1,
}
"""First version of each API that Kafka 4.3 accepts, if not 0; a test derives the table from the schemas in Kafka's jar."""

REMOVED: Final = frozenset({4, 5, 6, 7})
"""APIs that Kafka 4 removed with ZooKeeper: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown."""

_CLIENT_IDS = 50
_APIS = 500


def breaks(key: int, version: int) -> bool:
    """Tell whether Kafka 4 refuses a version of a request.

    Args:
        key: the API key.
        version: the request's version.
    """
    return key in REMOVED or version < MINIMUM.get(key, 0)


@dataclass
class Usage:
    """Requests of one software, counted by (API key, version)."""

    client_ids: LruDict[str, int] = field(default_factory=lambda: LruDict(_CLIENT_IDS))
    requests: Counter[tuple[int, int]] = field(default_factory=Counter)
    connections: int = 0


class Inventory:
    """Usage by software name and version from ApiVersions v3+; ("unknown", "") for other clients."""

    def __init__(self, limit: int) -> None:
        self._software: LruDict[tuple[str, str], Usage] = LruDict(limit)

    @property
    def forgotten(self) -> int:
        """Number of entries evicted at the limit."""
        return self._software.forgotten

    def connected(self, software: tuple[str, str]) -> None:
        """Count a connection of a software."""
        self._software.get_or_create(software, Usage).connections += 1

    def sent(self, software: tuple[str, str], client_id: str, requests: dict[tuple[int, int], int]) -> None:
        """Count requests.

        Args:
            software: name and version.
            client_id: the client id, empty if none.
            requests: number of requests by (API key, version).
        """
        usage = self._software.get_or_create(software, Usage)
        if client_id:
            usage.client_ids[client_id] = 1
        for each, count in requests.items():
            if each in usage.requests or len(usage.requests) < _APIS:
                usage.requests[each] += count

    def items(self) -> list[tuple[tuple[str, str], Usage]]:
        """List all software with its usage, by name and version."""
        return sorted(self._software.items(), key=lambda each: each[0])

    def to_json(self) -> list[dict[str, Any]]:
        """Describe all software, by name and version."""
        return [_to_json(software, usage) for software, usage in self.items()]


def _to_json(software: tuple[str, str], usage: Usage) -> dict[str, Any]:
    apis: dict[str, dict[str, int]] = {}
    breaking = []
    for (key, version), count in sorted(usage.requests.items()):
        name = schema.keys().get(key, str(key))
        apis.setdefault(name, {})[str(version)] = count
        if breaks(key, version):
            least = "gone in 4.0" if key in REMOVED else f"needs {MINIMUM.get(key, 0)} or later"
            breaking.append(f"{name} v{version} ({least})")
    return {
        "software": software[0],
        "version": software[1],
        "connections": usage.connections,
        "client_ids": sorted(usage.client_ids),
        "apis": apis,
        "breaks_on_kafka_4": breaking,
    }
